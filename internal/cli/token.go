package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func tokenID(t api.Token) string { return string(t.ID) }

func byTokenAge(x, y api.Token) int { return cmp.Compare(x.CreatedIndex, y.CreatedIndex) }

func (a *app) tokenColumns() []term.Column[api.Token] {
	return []term.Column[api.Token]{
		{Head: "id", Cell: tokenID},
		{Head: "role", Cell: func(t api.Token) string { return t.Role }},
		{Head: "state", Cell: func(t api.Token) string { return string(t.State) }},
		{Head: "used", Cell: func(t api.Token) string { return fmt.Sprintf("%d of %d", t.Used, t.Uses) }},
		{Head: "expires in", Cell: func(t api.Token) string {
			if t.State != api.TokenActive {
				return ""
			}
			return term.Span(t.Expires.Sub(a.Now()))
		}},
		{Head: "node name", Cell: func(t api.Token) string { return t.NodeName }},
		{Head: "labels", Cell: func(t api.Token) string { return term.LabelsText(t.Labels) }},
		{Head: "created by", Wide: true, Cell: func(t api.Token) string { return string(t.CreatedBy) }},
		{Head: "created index", Wide: true, Cell: func(t api.Token) string { return term.Number(t.CreatedIndex) }},
	}
}

func tokenLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list join tokens, the oldest first", Args: term.Exactly(),
		Long: "Lists join tokens. Nobody can read the secret text of a token again. A token that has ended is listed for " +
			"another day or longer. The state ca_replaced means that the token names a CA that was replaced: it admits nobody.",
		Example: "outspan token ls\noutspan token ls --filter state=active -o name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Tokens.List(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, sorted(got, byTokenAge), tokenID, a.tokenColumns())
		},
	}
	filter.register(cmd)
	return cmd
}

// tokenFlags describe a new token.
type tokenFlags struct {
	role, name string
	ttl        term.DurationFlag
	uses       int
	labels     []string
}

func (f *tokenFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.role, "role", "", "what the token admits: server (and its agent), or agent")
	f.ttl.RegisterTTL(cmd, "how long the token admits newcomers (default 1h)")
	cmd.Flags().IntVar(&f.uses, "uses", 1, "how many newcomers the token admits")
	cmd.Flags().StringVar(&f.name, "node-name", "", "only newcomers whose name matches this pattern, such as 'web-*'")
	cmd.Flags().StringArrayVar(&f.labels, "label", nil, "k=v, a label of the nodes that the token admits; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("role", completeWords("agent", "server")) // no error is possible: the flag exists
}

func (f *tokenFlags) body() (api.TokenBody, error) {
	if f.role != string(model.SubjectServer) && f.role != string(model.SubjectAgent) {
		return api.TokenBody{}, term.Usage("--role is %q; a token admits servers or agents", f.role).
			WithHint("write: outspan token create --role agent, or --role server")
	}
	b := api.TokenBody{Role: f.role, Uses: &f.uses, NodeName: f.name}
	if f.ttl.Given {
		b.TTL = f.ttl.Value
	}
	for _, label := range f.labels {
		k, v, ok := strings.Cut(label, "=")
		if !ok || k == "" || v == "" {
			return api.TokenBody{}, term.Usage("--label %q is not k=v", label).WithHint("for example: --label rack=r1")
		}
		if b.Labels == nil {
			b.Labels = map[string]string{}
		}
		b.Labels[k] = v
	}
	return b, nil
}

func tokenCreate(a *app) *cobra.Command {
	var write writeFlags
	var f tokenFlags
	cmd := &cobra.Command{
		Use: "create --role server|agent", Short: "make a token by which new machines join", Args: term.Exactly(),
		Long: `Makes a join token, and prints it with the command that is to be typed on the new machine. The text of the token is shown only now: the servers keep a
hash of it. Whoever has the text can join until the token has expired, is used up or is revoked. The token of a server admits a server, which then has
every secret of the cluster: give it to nobody else.`,
		Example: "outspan token create --role agent\n" +
			"outspan token create --role agent --uses 20 --ttl 4h --node-name 'web-*' --label rack=r1\n" +
			"outspan token create --role server\noutspan token create --role agent --format '{{.text}}'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := f.body()
			if err != nil {
				return err
			}
			got, err := a.client().Tokens.Create(cmd.Context(), body, write.options())
			if err != nil {
				return err
			}
			return a.showNewToken(cmd.Context(), got, &write)
		},
	}
	write.register(cmd, "check only, make no token")
	f.register(cmd)
	return cmd
}

func (a *app) showNewToken(ctx context.Context, got client.Response[api.NewTokenReply], write *writeFlags) error {
	t := got.Value.Token
	if t == nil {
		t = &api.Token{} // no server of this version leaves it out
	}
	var servers []string
	if !write.dryRun && !a.Output.Machine() {
		servers = a.serverAddresses(ctx)
	}
	return a.Show(term.Result{JSON: got.Raw, Names: []string{string(t.ID)}, Text: func(p *term.Page) {
		if write.dryRun {
			p.Line("a join token for %s would be made %s", admits(t), write.done(got.Value.Index))
			return
		}
		p.Line("join token %s admits %s until %s %s", t.ID, admits(t), term.Stamp(&t.Expires), write.done(got.Value.Index))
		p.Line("")
		p.Line("%s", got.Value.Text)
		p.Line("")
		p.Line("It is shown only this once. On the new machine type the next line, then paste the token and press Enter:")
		p.Line("")
		p.Line("  %s", joinLine(t.Role, servers))
	}})
}

// admits describes the newcomers that a token admits: "2 agents named web-*".
func admits(t *api.Token) string {
	text := fmt.Sprintf("%d %s", t.Uses, t.Role)
	if t.Uses != 1 {
		text += "s"
	}
	if t.NodeName != "" {
		text += " named " + t.NodeName
	}
	return text
}

// joinLine returns the command that a newcomer types. Without any address, it has a word that the user replaces.
func joinLine(role string, servers []string) string {
	words := []string{"sudo outspan join"}
	if role == string(model.SubjectServer) {
		words = append(words, "--server")
	}
	words = append(words, "--token-file -")
	if len(servers) == 0 {
		servers = []string{"ADDRESS_OF_A_SERVER:7640"}
	}
	return strings.Join(append(words, servers...), " ")
}

// serverAddresses returns where the API of each server listens, in the order of their names. It returns nil if the
// servers don't tell within two seconds: the token is there already, and must be shown.
func (a *app) serverAddresses(ctx context.Context) []string {
	limited, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	got, err := a.client().Members.List(limited, client.ListOptions{})
	if err != nil {
		return nil
	}
	members := slices.DeleteFunc(sorted(got, byMemberName).Items, func(m api.Member) bool {
		return m.Address == "" || m.State == "left"
	})
	return namesOf(members, func(m api.Member) string { return m.Address })
}

func tokenRevoke(a *app) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: "revoke TOKEN", Short: "end a join token for ever", Args: term.Exactly("TOKEN"),
		ValidArgsFunction: a.complete("tokens"),
		Long: "Ends a join token: it admits nobody any more. Machines that it has admitted stay. To throw one of them out: " +
			"outspan node revoke NODE, or outspan server revoke SERVER. TOKEN is its id, or its secret text if only that is " +
			"known.",
		RunE: func(cmd *cobra.Command, args []string) error {
			id := local.TokenID(args[0])
			got, err := a.client().Tokens.Revoke(cmd.Context(), id, write.options())
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: []string{id}, Text: func(p *term.Page) {
				p.Line("join token %s %s %s", id, write.would("is revoked"), write.done(got.Value.Index))
			}})
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}

// trustedNames returns the names of all members of a kind that are not revoked, for completion.
func (a *app) trustedNames(ctx context.Context, kind model.SubjectKind) []string {
	options := client.ListOptions{Filter: []string{"kind=" + string(kind), "revoked=false"}}
	got, err := a.client().Trust.Members(ctx, options)
	if err != nil {
		return nil
	}
	return namesOf(got.Items, func(m api.TrustMember) string { return m.Name })
}

// noteJoined names the members of a kind that joined, are not revoked, and are not in the list running. text has a %s
// for the names. It says nothing if the caller may not read the members, or if nothing joins the cluster by token.
func (a *app) noteJoined(ctx context.Context, kind model.SubjectKind, fresh client.Consistency, running []string,
	text string) {
	const atMost = 5
	var names []string
	options := client.ListOptions{Filter: []string{"kind=" + string(kind), "revoked=false"}}
	options.Consistency = fresh
	for m, err := range a.client().Trust.AllMembers(ctx, options) {
		if err != nil {
			return
		}
		if !slices.Contains(running, m.Name) {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	more := ""
	if len(names) > atMost {
		more = fmt.Sprintf(" and %d more", len(names)-atMost)
		names = names[:atMost]
	}
	a.Note(text, strings.Join(names, ", ")+more)
}

// revokeVerb is a command that revokes the certificates of one machine.
type revokeVerb struct {
	arg, complete string
	short, long   string
	warns         string // says what a revocation does, if --yes is missing; its %s is the name
	next          string // what the user may do next; its %s is the name
	unknown       string // help of the flag --unknown, or empty if there is none
	force         string // help of the flag --force, or empty if there is none
	revoke        func(client.Trust, context.Context, string, api.RevokeBody,
		client.RevokeServerOptions) (client.Response[api.RevokeReply], error)
}

func (v revokeVerb) command(a *app) *cobra.Command {
	var write writeFlags
	var message string
	var yes, unknown, force bool
	cmd := &cobra.Command{
		Use: "revoke " + v.arg, Short: v.short, Long: v.long, Args: term.Exactly(v.arg),
		ValidArgsFunction: a.complete(v.complete),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes && !write.dryRun {
				return term.Usage(v.warns, args[0]).WithHint("if that is what you want, say so with --yes")
			}
			got, err := v.revoke(a.client().Trust, cmd.Context(), args[0], api.RevokeBody{Reason: message},
				client.RevokeServerOptions{WriteOptions: write.options(), Unknown: unknown, Force: force})
			if err != nil {
				return err
			}
			name := args[0]
			if got.Value.Member != nil {
				name = got.Value.Member.Name
			}
			return a.Show(term.Result{JSON: got.Raw, Names: []string{name}, Text: func(p *term.Page) {
				if got.Value.Removed {
					p.Line("%s %s is removed from the cluster", strings.ToLower(v.arg), name)
				}
				p.Line("%s %s %s %s", strings.ToLower(v.arg), name, write.would("is revoked"), write.done(got.Value.Index))
				if token := got.Value.Token; token != "" {
					p.Line("  join token %s %s too: it had uses left", token, write.would("is revoked"))
				}
				if m := got.Value.Member; got.Value.Files && m != nil {
					p.Line("  its certificate is from your own CA, and counts until %s; the name %s free for another machine with a "+
						"new token", m.NotAfter.UTC().Format(time.RFC3339), write.would("is"))
				}
				if !write.dryRun {
					p.Line("  "+v.next, name)
				}
			}})
		},
	}
	write.register(cmd, "check only, change nothing")
	cmd.Flags().StringVarP(&message, "message", "m", "", "why, for people; stands in the event")
	cmd.Flags().BoolVar(&yes, "yes", false, "end its certificates for ever")
	if v.unknown != "" {
		cmd.Flags().BoolVar(&unknown, "unknown", false, v.unknown)
	}
	if v.force != "" {
		cmd.Flags().BoolVar(&force, "force", false, v.force)
	}
	return cmd
}

func nodeRevoke(a *app) *cobra.Command {
	return revokeVerb{
		arg: "NODE", complete: "trusted agents", short: "end the certificates of a node's agent for ever",
		long: `Ends all certificates of a node's agent: the servers accept none of them any more. Use it for a machine that was stolen or broken into, or before another
machine takes its name. The machine comes back only by joining with a token that was made after the revocation, and a new key. The token with which it joined
is revoked too, if it has uses left.
The heartbeats of the node no longer count: it gets no new instances, and becomes offline by itself. What runs there goes on. To empty it before: outspan node
drain. To replace what runs there: switch the machine off, and once the node is offline: outspan node confirm-dead. Other agents learn of a revocation only
from the servers: they still exchange data of volumes with the revoked agent until its certificate expires. A server on the same machine has a certificate of its own: outspan server revoke.
In a cluster with a CA of your own (tls { issue }) it frees the name for another machine, and the node gets no instances. The certificate counts until it ends.`,
		warns: "revoking %s ends the certificates of its agent for ever; it comes back only with a new join token",
		next: "if it has a node, that becomes offline; what runs there continues until that machine is switched off; then: " +
			"outspan node confirm-dead %s",
		revoke: func(t client.Trust, ctx context.Context, ref string, body api.RevokeBody, o client.RevokeServerOptions) (
			client.Response[api.RevokeReply], error) {
			return t.RevokeNode(ctx, ref, body, o.WriteOptions)
		},
	}.command(a)
}

func serverRevoke(a *app) *cobra.Command {
	return revokeVerb{
		arg: "SERVER", complete: "trusted servers", short: "end the certificates of a server for ever",
		long: `Ends all certificates of a server: the other servers accept none of them any more. Agents don't know of revocations: they accept a certificate of
that server as long as it makes itself new ones, so switch the machine off, or keep it away from the agents. It is refused for a server that votes and is alive:
take that out first with outspan server remove, or with --force, which does both. One that is dead is taken out too. The machine comes back only by joining with a token that was made after the revocation, and a new key. The token
with which it joined is revoked too, if it has uses left.
After a recovery the servers don't know a server that joined after the snapshot, but its certificates count: revoke it with --unknown.
In a cluster with a CA of your own (tls { issue }) it only frees the name for another machine: the certificate counts until it ends.
The server has had every secret of the cluster, such as the keys that sign certificates. A revocation replaces only the gossip key. An agent on the same machine
has a certificate of its own: outspan node revoke.`,
		warns:   "revoking %s ends the certificates of this server for ever; it comes back only with a new join token",
		next:    "an agent on the same machine has a certificate of its own: outspan node revoke %s",
		unknown: "also revoke a server that the servers don't know, as after a recovery",
		force: "first remove the server from the cluster, if it is in it; refused where a majority would be lost, and for " +
			"the leader",
		revoke: client.Trust.RevokeServer,
	}.command(a)
}
