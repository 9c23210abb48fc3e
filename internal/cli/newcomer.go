package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func newcomerSubject(n api.Newcomer) string { return n.Subject }

func byNewcomerAge(x, y api.Newcomer) int { return cmp.Compare(x.Index, y.Index) }

func (a *app) newcomerColumns() []term.Column[api.Newcomer] {
	return []term.Column[api.Newcomer]{
		{Head: "newcomer", Cell: newcomerSubject},
		{Head: "state", Cell: func(n api.Newcomer) string { return string(n.State) }},
		{Head: "key", Cell: func(n api.Newcomer) string { return n.Key }},
		{Head: "address", Cell: func(n api.Newcomer) string { return n.Address }},
		{Head: "token", Cell: func(n api.Newcomer) string { return string(n.Token) }},
		{Head: "for", Cell: func(n api.Newcomer) string { return term.Span(a.Now().Sub(n.Since)) }},
		{Head: "decided by", Wide: true, Cell: func(n api.Newcomer) string { return string(n.DecidedBy) }},
		{Head: "key of its agent", Wide: true, Cell: func(n api.Newcomer) string { return n.AgentKey }},
		{Head: "version", Wide: true, Cell: func(n api.Newcomer) string { return n.Version }},
	}
}

func tokenWaiting(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "waiting", Short: "list the machines that wait until a person approves them", Args: term.Exactly(),
		Long: "Lists the machines that have a good token and wait because of the setting join_approval, the one that waits " +
			"longest first. Those that were approved and have not come yet are listed too, and those that were rejected. " +
			"The same key stands on the screen of the new machine: compare the two before you approve it with outspan node " +
			"approve or outspan server approve. A machine waits for a day at most, and no longer than its token lasts.",
		Example: "outspan token waiting\noutspan token waiting --filter state=waiting -o name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Trust.Newcomers(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, sorted(got, byNewcomerAge), newcomerSubject, a.newcomerColumns())
		},
	}
	filter.register(cmd)
	return cmd
}

// newcomerNames returns the names of all newcomers of a kind that wait, for completion.
func (a *app) newcomerNames(ctx context.Context, kind model.SubjectKind) []string {
	options := client.ListOptions{Filter: []string{"kind=" + string(kind), "state=waiting"}}
	got, err := a.client().Trust.Newcomers(ctx, options)
	if err != nil {
		return nil
	}
	return namesOf(got.Items, func(n api.Newcomer) string { return n.Name })
}

// newcomerVerb is a command that approves or rejects a newcomer.
type newcomerVerb struct {
	verb        string // "approve" or "reject"
	kind        model.SubjectKind
	short, long string
	done, next  string // what is done, and what happens next; the %s of next is the id of the token
	decide      func(client.Trust, context.Context, model.Subject, api.NewcomerBody, client.WriteOptions) (
		client.Response[api.NewcomerReply], error)
}

func (v newcomerVerb) command(a *app) *cobra.Command {
	var write writeFlags
	var key string
	cmd := &cobra.Command{
		Use: v.verb + " NAME", Short: v.short, Long: v.long, Args: term.Exactly("NAME"),
		ValidArgsFunction: a.complete("newcomer " + string(v.kind) + "s"),
		RunE: func(cmd *cobra.Command, args []string) error {
			who := model.Subject{Kind: v.kind, Name: args[0]}
			got, err := v.decide(a.client().Trust, cmd.Context(), who, api.NewcomerBody{Key: key}, write.options())
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: args, Text: func(p *term.Page) {
				n := got.Value.Newcomer
				if n == nil { // it was faster than the answer
					n = &api.Newcomer{}
				}
				p.Line("%s with the key %s %s %s", who, n.Key, write.would(v.done), write.done(got.Value.Index))
				if !write.dryRun {
					p.Line("  "+v.next, n.Token)
				}
			}})
		},
	}
	write.register(cmd, "check only, change nothing")
	cmd.Flags().StringVar(&key, "key", "",
		"its key as outspan token waiting shows it; needed if several machines of this name wait")
	return cmd
}

const (
	approvedNext = "it joins when it asks again, within an hour; the approval is for this key and join token %s"
	rejectedNext = "whoever has join token %s can ask again with another key; to end that: outspan token revoke %[1]s"
)

func nodeApprove(a *app) *cobra.Command {
	return newcomerVerb{
		verb: "approve", kind: model.SubjectAgent, short: "let a new worker join that waits", done: "is approved",
		next: approvedNext, decide: client.Trust.ApproveNewcomer,
		long: `Lets a machine join that waits because of the setting join_approval: it is admitted when it asks again, which outspan join does every few seconds. Compare the
key first: outspan token waiting shows it, and so does outspan join on the new machine. The approval lasts an hour, also if the time of the join token ends
before. A token that was revoked admits nobody.
A machine that is to be a server, with or without an agent, is approved with outspan server approve.`,
	}.command(a)
}

func nodeReject(a *app) *cobra.Command {
	return newcomerVerb{
		verb: "reject", kind: model.SubjectAgent, short: "refuse a new worker that waits", done: "is rejected",
		next: rejectedNext, decide: client.Trust.RejectNewcomer,
		long: "Ends the wait of a machine for its approval, so that its outspan join fails. It can't undo an approval. " +
			"Whoever has the join token can ask again with another key: outspan token revoke ends that.",
	}.command(a)
}

func serverApprove(a *app) *cobra.Command {
	return newcomerVerb{
		verb: "approve", kind: model.SubjectServer, short: "let a new server join that waits", done: "is approved",
		next: approvedNext, decide: client.Trust.ApproveNewcomer,
		long: `Lets a machine join as a server that waits because of the setting join_approval, together with its agent. It then has every secret of the cluster. It is
admitted when it asks again, which outspan join does every few seconds. Compare the key first: outspan token waiting shows it, and so does outspan join on the
new machine. The approval lasts an hour, also if the time of the join token ends before. A token that was revoked admits nobody.`,
	}.command(a)
}

func serverReject(a *app) *cobra.Command {
	return newcomerVerb{
		verb: "reject", kind: model.SubjectServer, short: "refuse a new server that waits", done: "is rejected",
		next: rejectedNext, decide: client.Trust.RejectNewcomer,
		long: "Ends the wait of a machine for its approval as a server, so that its outspan join fails. It can't undo an " +
			"approval. Whoever has the join token can ask again with another key: outspan token revoke ends that.",
	}.command(a)
}
