package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

const (
	healthLook = time.Second // pause after the first check that succeeds; the leader asks the servers this often, too
	closeBy    = 250         // entries; a server that lags by more has not caught up
)

func serverHealth(a *app) *cobra.Command {
	var leader bool
	var until waitFlags
	cmd := &cobra.Command{
		Use: "health", Short: "ask servers whether they are ready", Args: term.Exactly(),
		Example: "outspan server health\noutspan server health --wait --timeout 60s",
		Long: `Asks each server at --address whether it has caught up and knows a leader. Exit code 6 when one of them is not ready.

--wait waits for the whole cluster: until there is a leader, every server of the cluster answers it, votes and has caught up, and
those at --address are ready. It prints what it waits for on stderr. It is what to wait for between two steps of a rolling restart.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if err := a.waitForServers(ctx, leader, &until); err != nil {
				return err
			}
			all, failed := a.askHealth(ctx, leader)
			if len(all) == 0 {
				return failed
			}
			return cmp.Or(a.showHealth(all), failed)
		},
	}
	cmd.Flags().
		BoolVar(&leader, "leader", false,
			"only the leader is ready; of several addresses it is enough that one is the leader's")
	until.register(cmd, "ready")
	return cmd
}

// serverAnswer is the report of the server at one address about itself.
type serverAnswer struct {
	Address string `json:"address"`
	api.Health
	raw  []byte
	dark bool // the server gave no report; Status has the reason
}

// askHealth asks each address separately, because one server must not answer for another. But if leader is true, one
// call looks for the leader at all addresses. If some of several servers are not ready, askHealth returns all answers
// and the error of the first server that is not ready. After any other error it returns no answers.
func (a *app) askHealth(ctx context.Context, leader bool) ([]serverAnswer, error) {
	addresses, err := a.conn.endpoints(a.Env)
	if err != nil {
		return nil, err
	}
	if len(addresses) == 1 || leader {
		got, err := a.client().Cluster.Ready(ctx, leader)
		if err != nil {
			return nil, err
		}
		return []serverAnswer{{Address: strings.Join(addresses, ","), Health: got.Value, raw: got.Raw}}, nil
	}
	all, errs := make([]serverAnswer, len(addresses)), make([]error, len(addresses))
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() {
			one := *a
			one.conn.opened, one.conn.address = nil, address
			got, err := one.client().Cluster.Ready(ctx, leader)
			all[i], errs[i] = serverAnswer{Address: address, Health: got.Value, raw: got.Raw}, err
		})
	}
	asked.Wait()
	var failed error
	for i, err := range errs {
		var known *model.Error
		switch {
		case err == nil:
		case errors.As(err, &known) && exitOf(err) == term.ExitTransient && ctx.Err() == nil:
			all[i].Status, all[i].dark = strings.ReplaceAll(string(known.Code), "_", " "), true
			failed = cmp.Or(failed,
				error(model.Refuse(known.Code, "the server at %s is not ready: %s", addresses[i], describe(err).Message).
					WithHint("%s", term.First(known.Hint, "see its log, and: outspan server members"))))
		default:
			return nil, err
		}
	}
	return all, failed
}

func (a *app) showHealth(all []serverAnswer) error {
	h := all[max(0, slices.IndexFunc(all, func(s serverAnswer) bool { return !s.dark }))]
	if len(all) == 1 {
		return a.Show(term.Result{JSON: h.raw, Names: []string{h.Name}, Text: func(p *term.Page) {
			p.Fields(term.Field{"Name", h.Name}, term.Field{"Status", h.Status}, term.Field{"Leader", term.YesNo(h.Leader)},
				term.Field{"Index", fmt.Sprint(h.Index)}, term.Field{"Disk", string(h.Disk)})
		}})
	}
	var names []string
	for _, one := range all {
		if !one.dark {
			names = append(names, one.Name)
		}
	}
	told := func(cell func(serverAnswer) string) func(serverAnswer) string {
		return func(s serverAnswer) string {
			if s.dark {
				return "-"
			}
			return cell(s)
		}
	}
	s, err := term.ResultOf(struct { // the report of the first ready server, and the answers of all
		api.Health
		Servers []serverAnswer `json:"servers"`
	}{h.Health, all}, names, func(p *term.Page) {
		term.Rows(p, all, []term.Column[serverAnswer]{
			{Head: "address", Cell: func(s serverAnswer) string { return s.Address }},
			{Head: "name", Cell: told(func(s serverAnswer) string { return s.Name })},
			{Head: "status", Cell: func(s serverAnswer) string { return s.Status }},
			{Head: "leader", Cell: told(func(s serverAnswer) string { return term.YesNo(s.Leader) })},
			{Head: "index", Cell: told(func(s serverAnswer) string { return fmt.Sprint(s.Index) })},
		})
	})
	if err != nil {
		return err
	}
	return a.Show(s)
}

// waitForServers waits until the cluster lacks nothing (see lackingServer) and the servers at --address are ready. Two
// checks in a row must succeed, because the first check may still find a server that has just stopped. Without --wait,
// it returns at once.
func (a *app) waitForServers(ctx context.Context, leader bool, until *waitFlags) error {
	if until.state == "" {
		return nil
	}
	ctx, cancel := until.limit(ctx, "the cluster")
	defer cancel()
	lacks, shown := "no server is ready", ""
	for whole := 0; ; {
		why, err := a.lookAtServers(ctx, leader)
		switch {
		case err == nil && why == "":
			if whole++; whole == 2 {
				return nil
			}
		case err != nil && ctx.Err() == nil && exitOf(err) != term.ExitTransient:
			return err
		case ctx.Err() == nil:
			if whole, lacks = 0, why; lacks != shown {
				fmt.Fprintf(a.Err, "waiting: %s\n", term.Printable(lacks))
				shown = lacks
			}
		}
		pause := healthLook
		if whole == 0 {
			pause /= 5
		}
		if !wait(ctx, pause) {
			if cause := context.Cause(ctx); !isCode(cause, codeWaitTimedOut) {
				return cause
			}
			return model.Refuse(codeWaitTimedOut, "the cluster is not whole after %s: %s", until.timeout, lacks).
				WithHint("don't stop another server now; see its log, and: outspan server members")
		}
	}
}

// lookAtServers returns what the cluster lacks, or "" if it lacks nothing. If a call fails, it returns the error and
// the message of the error.
func (a *app) lookAtServers(ctx context.Context, leader bool) (string, error) {
	if _, err := a.askHealth(ctx, leader); err != nil {
		return describe(err).Message, err
	}
	got, err := a.client().Members.List(ctx, client.ListOptions{})
	if err != nil {
		return describe(err).Message, err
	}
	return lackingServer(got.Items), nil
}

// lackingServer returns what a cluster lacks: it has no leader, or one of its servers is not alive, has no vote, does
// not answer or lags. It returns "" if the cluster lacks nothing.
func lackingServer(members []api.Member) string {
	if !slices.ContainsFunc(members, func(m api.Member) bool { return m.Leader }) {
		return "there is no leader"
	}
	for _, m := range members {
		switch {
		case m.State != api.MemberAlive:
			return fmt.Sprintf("server %s is %s", m.Name, m.State)
		case !m.Voter:
			return fmt.Sprintf("server %s has no vote yet", m.Name)
		case !m.Answers:
			return fmt.Sprintf("server %s does not answer the leader", m.Name)
		case m.IndexLag > closeBy:
			return fmt.Sprintf("server %s is %d entries behind the leader", m.Name, m.IndexLag)
		}
	}
	return ""
}

// codeNotVerified means that a verification could not compare every server.
const codeNotVerified model.Code = "not_verified"

func serverVerify(a *app) *cobra.Command {
	patience := 10 * time.Second
	cmd := &cobra.Command{
		Use: "verify", Short: "compare the states of all servers", Args: term.Exactly(),
		Long: `Compares the digests of all servers' states at one index; nothing is written, and no leader is needed. Servers do the same by
themselves at their start, every ten minutes, and after a snapshot or a restore. One whose state a majority of the voters contradicts
stops, leaves a report in its data directory, and does not start on that state again.
Exit code 0 when all are equal, 7 when one differs, 6 when some could not be compared.`,
		Example: "outspan server verify\noutspan server verify --timeout 60s --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.verifyServers(cmd.Context(), patience) },
	}
	cmd.Flags().DurationVar(&patience, "timeout", patience, "how long to wait for servers that are behind; at most 60s")
	return cmd
}

func (a *app) verifyServers(ctx context.Context, patience time.Duration) error {
	got, err := a.client().Members.Verify(ctx, patience)
	if err != nil {
		return err
	}
	v := got.Value
	var names []string
	for _, s := range v.Items {
		names = append(names, s.Name)
	}
	if err := a.Show(term.Result{JSON: got.Raw, Names: names, Text: func(p *term.Page) {
		verificationPage(p, v)
	}}); err != nil {
		return err
	}
	return verified(v)
}

func verificationPage(p *term.Page, v api.Verification) {
	term.Rows(p, v.Items, []term.Column[api.VerifiedServer]{
		{Head: "name", Cell: func(s api.VerifiedServer) string { return s.Name }},
		{Head: "id", Wide: true, Cell: func(s api.VerifiedServer) string { return string(s.ID) }},
		{Head: "voter", Cell: func(s api.VerifiedServer) string { return term.YesNo(s.Voter) }},
		{Head: "leader", Cell: func(s api.VerifiedServer) string { return term.YesNo(s.Leader) }},
		{Head: "index", Cell: func(s api.VerifiedServer) string { return term.Number(s.Index) }},
		{Head: "digest", Cell: func(s api.VerifiedServer) string { return short(s.Digest) }},
		{Head: "verdict", Cell: func(s api.VerifiedServer) string { return emphasise(s.Verdict) }},
		{Head: "version", Wide: true, Cell: func(s api.VerifiedServer) string { return s.Version }},
		{Head: "detail", Cell: func(s api.VerifiedServer) string { return s.Detail }},
	})
	for _, s := range v.Items {
		if len(s.Tables) == 0 {
			continue
		}
		p.Section("Tables of %s that differ", s.Name)
		term.Rows(p, s.Tables, []term.Column[api.TableDiff]{
			{Head: "table", Cell: func(t api.TableDiff) string { return t.Name }},
			{Head: "rows", Cell: func(t api.TableDiff) string { return fmt.Sprint(t.Rows) }},
			{Head: "digest", Cell: func(t api.TableDiff) string { return short(t.Digest) }},
			{Head: "expected rows", Cell: func(t api.TableDiff) string { return fmt.Sprint(t.ExpectedRows) }},
			{Head: "expected digest", Cell: func(t api.TableDiff) string { return short(t.ExpectedDigest) }},
		})
	}
}

func short(digest string) string { return digest[:min(len(digest), 12)] }

// emphasise writes the verdict in capitals if states differ.
func emphasise(verdict string) string {
	if verdict == string(cluster.VerdictDiffers) {
		return strings.ToUpper(verdict)
	}
	return verdict
}

// verified returns nil if the states of all servers are equal. Otherwise it returns an error, whose code selects the
// exit code.
func verified(v api.Verification) error {
	var differ, missing []string
	for _, s := range v.Items {
		switch cluster.Verdict(s.Verdict) {
		case cluster.VerdictEqual:
		case cluster.VerdictDiffers:
			differ = append(differ, s.Name)
		default:
			missing = append(missing, s.Name)
		}
	}
	switch cluster.Verdict(v.Verdict) {
	case cluster.VerdictEqual:
		return nil
	case cluster.VerdictUndecided:
		return model.Refuse(model.CodeStateDiffers, "servers differ, and no state has a majority of the voters: %s",
			strings.Join(differ, ", ")).
			WithHint("bring the other voters back: then it is known who is wrong. Before that, save a snapshot and copy the " +
				"data directories")
	case cluster.VerdictDiffers:
		return model.Refuse(model.CodeStateDiffers, "the majority of the voters contradicts: %s", strings.Join(differ, ", ")).
			WithHint("such a server stops by itself and says in its log how it comes back; it keeps a report in state-differs " +
				"in its data_dir")
	}
	return model.Refuse(codeNotVerified, "not compared: %s; the others are equal", strings.Join(missing, ", ")).
		WithHint("try again when they answer, with a longer --timeout for those that are behind; see: outspan server members")
}
