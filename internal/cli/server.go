package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func memberName(m api.Member) string { return m.Name }

func byMemberName(x, y api.Member) int { return cmp.Compare(x.Name, y.Name) }

// memberColumns returns the columns of the table of servers. Without -o wide, the column of clocks is shown only if a
// clock is wrong, that of disks only if a disk has little room, and that of votes only if a server gets none.
func memberColumns(members []api.Member) []term.Column[api.Member] {
	clocksAgree := !slices.ContainsFunc(members, func(m api.Member) bool {
		return clockText(model.Duration(m.ClockAhead)) != clockOK
	})
	little := func(m api.Member) bool { return m.Disk == api.DiskLow || m.Disk == api.DiskFull }
	disksHaveRoom := !slices.ContainsFunc(members, little)
	allMayVote := !slices.ContainsFunc(members, func(m api.Member) bool { return m.NoVote != "" })
	return []term.Column[api.Member]{
		{Head: "name", Cell: memberName},
		{Head: "id", Cell: func(m api.Member) string { return string(m.ID) }},
		{Head: "address", Cell: func(m api.Member) string { return m.Address }},
		{Head: "role", Cell: func(m api.Member) string { return m.Role }},
		{Head: "leader", Cell: func(m api.Member) string { return term.YesNo(m.Leader) }},
		{Head: "voter", Cell: func(m api.Member) string { return term.YesNo(m.Voter) }},
		{Head: "state", Cell: func(m api.Member) string { return m.State }},
		{Head: "index lag", Cell: func(m api.Member) string { return fmt.Sprint(m.IndexLag) }},
		{Head: "version", Cell: func(m api.Member) string { return m.Version }},
		{Head: "clock", Cell: func(m api.Member) string {
			return clockText(model.Duration(m.ClockAhead))
		}, Wide: clocksAgree},
		{Head: "disk", Cell: diskText, Wide: disksHaveRoom},
		{Head: "no vote because", Cell: func(m api.Member) string { return m.NoVote }, Wide: allMayVote},
	}
}

func diskText(m api.Member) string {
	if m.TotalBytes == 0 {
		return string(m.Disk)
	}
	return fmt.Sprintf("%s, %s free", m.Disk, model.SizeText(m.FreeBytes))
}

// clockText describes how far a server's clock is from the median of all servers' clocks. For a difference of up to 2 s
// it returns clockOK.
func clockText(ahead model.Duration) string {
	switch {
	case ahead > 2*model.Second:
		return (ahead / model.Second * model.Second).String() + " ahead"
	case ahead < -2*model.Second:
		return (-ahead / model.Second * model.Second).String() + " behind"
	}
	return clockOK
}

const clockOK = "ok"

func serverRun(a *app) *cobra.Command {
	return runVerb("server", "run a server",
		"Runs a server until SIGTERM or SIGINT; then it hands leadership over and ends with 0. SIGHUP reloads log level, "+
			"TLS and limits.", a.program.RunServer)
}

// runVerb makes a command that runs a server or an agent from its configuration files.
func runVerb(noun, short, long string, run func(context.Context, []string) error) *cobra.Command {
	var paths []string
	cmd := &cobra.Command{
		Use: "run", Short: short, Long: long, Args: term.Exactly(),
		Example: fmt.Sprintf("outspan %s run --config /etc/outspan.d", noun),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(paths) == 0 {
				return term.Usage("%s needs --config", cmd.CommandPath()).
					WithHint("name a file, or a directory such as /etc/outspan.d")
			}
			return run(cmd.Context(), paths)
		},
	}
	cmd.Flags().
		StringArrayVar(&paths, "config", nil,
			"file, or directory of *.hcl files that are overlaid in name order; may be repeated")
	return cmd
}

func serverMembers(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "members", Short: "list the servers", Args: term.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var got client.List[api.Member]
			o := filter.options()
			err := orStale(a, o.Consistency, func(fresh client.Consistency) (err error) {
				o.Consistency = fresh
				got, err = a.client().Members.List(cmd.Context(), o)
				return err
			})
			if err != nil {
				return err
			}
			if err := showList(a, sorted(got, byMemberName), memberName, memberColumns(got.Items)); err != nil {
				return err
			}
			// A listed server whose name nobody knows may be one of those that joined.
			nameless := slices.ContainsFunc(got.Items, func(m api.Member) bool { return m.Name == string(m.ID) })
			if len(o.Filter) == 0 && !a.Output.Machine() && !nameless {
				a.noteJoined(cmd.Context(), model.SubjectServer, o.Consistency, namesOf(got.Items, memberName),
					"joined and not in the cluster: %s. If a server never ran, look there: journalctl -u outspan. To end the "+
						"certificates: outspan server revoke NAME")
			}
			return nil
		},
	}
	filter.register(cmd)
	return cmd
}

// showMembership shows the servers after one was added, promoted or removed. If err is not nil, it only returns err.
func (a *app) showMembership(got client.Response[api.MemberReply], err error) error {
	if err != nil {
		return err
	}
	items := got.Value.Items
	return showList(a, sorted(client.List[api.Member]{Items: items, Raw: got.Raw, Index: got.Value.Index}, byMemberName),
		memberName, memberColumns(items))
}

func serverJoin(a *app) *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use: "join --address HOST:PORT", Short: "add a server to the cluster", Args: term.Exactly(),
		Long: "Makes the cluster look for the server that gossips at --address. The leader takes in what is found: it " +
			"starts without a vote and gets one when\nit has caught up. A new server whose file names a member in retry_join " +
			"needs none of this. To say which server to ask, use OUTSPAN_ADDR.",
		Example: "outspan server join --address 10.0.0.4:7642",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if address == "" {
				return term.Usage("server join needs --address").
					WithHint("write: outspan server join --address HOST:7642, where the new server gossips")
			}
			return a.showMembership(a.client().Members.Join(cmd.Context(), api.JoinBody{Address: address},
				client.MemberOptions{}))
		},
	}
	cmd.Flags().StringVar(&address, "address", "", "host:port at which the new server gossips (its listen.gossip_port)")
	return cmd
}

func serverPromote(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "promote SERVER", Short: "let a server vote", Args: term.Exactly("SERVER"),
		ValidArgsFunction: a.complete("members"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.showMembership(a.client().Members.Promote(cmd.Context(), args[0], client.MemberOptions{}))
		},
	}
}

func serverRemove(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "remove SERVER", Short: "take a server out of the cluster", Args: term.Exactly("SERVER"),
		ValidArgsFunction: a.complete("members"),
		Long: "Takes a server out for good. It is refused where the rest would have no majority, " +
			"unless --force.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.showMembership(a.client().Members.Remove(cmd.Context(), args[0], client.RemoveOptions{Force: force}))
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also where a majority would be lost")
	return cmd
}

func serverTransferLeader(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "transfer-leader [SERVER]", Short: "hand leadership to another server", Args: term.Between(0, 1),
		ValidArgsFunction: a.complete("members"),
		Long:              "Hands leadership to the named server, or to the most current one.",
		RunE: func(cmd *cobra.Command, args []string) error {
			var body api.TransferBody
			if len(args) == 1 {
				body.To = args[0]
			}
			ctx := cmd.Context()
			if _, err := a.client().Members.TransferLeader(ctx, body, client.MemberOptions{}); err != nil {
				return err
			}
			got, err := a.membersWithLeader(ctx)
			if err != nil {
				return err
			}
			return showList(a, sorted(got, byMemberName), memberName, memberColumns(got.Items))
		},
	}
}

// membersWithLeader lists the servers as soon as one of them leads. It waits for up to 10 s, because right after a
// transfer there may be no leader.
func (a *app) membersWithLeader(ctx context.Context) (client.List[api.Member], error) {
	limited, cancel := context.WithTimeoutCause(ctx, 10*time.Second,
		model.Refuse(model.CodeNoLeader, "leadership was given away, but nobody has taken it yet").
			WithHint("see: outspan server members"))
	defer cancel()
	for {
		got, err := a.client().Members.List(limited,
			client.ListOptions{ReadOptions: client.ReadOptions{Consistency: client.Stale}})
		switch {
		case err == nil && slices.ContainsFunc(got.Items, func(m api.Member) bool { return m.Leader }):
			return got, nil
		case err != nil && exitOf(err) != term.ExitTransient && limited.Err() == nil:
			return got, err
		case !wait(limited, 100*time.Millisecond):
			return got, context.Cause(limited)
		}
	}
}

// upCommand is the command up of package local, with the calls to the new server.
func upCommand(a *app) *cobra.Command { return local.Up(&a.Console, a.setupCalls()) }

// joinCommand is the command join of package local, with the calls to this machine's server.
func joinCommand(a *app) *cobra.Command { return local.Join(&a.Console, a.program, a.setupCalls()) }

func (a *app) setupCalls() local.SetupCalls {
	return local.SetupCalls{Ready: serverReady, JoinSteps: a.joinSteps}
}

// setupRetry is longer than any wait of package local, so that only its context ends the calls.
const setupRetry = 10 * time.Minute

func atSocket(socket string) (*client.Client, error) {
	return client.New(client.Config{Addresses: []string{"unix://" + socket}, RetryFor: setupRetry})
}

// serverReady waits until the server at a unix socket knows a leader. Its calls are repeated until ctx ends.
func serverReady(ctx context.Context, socket string) error {
	c, err := atSocket(socket)
	if err != nil {
		return err
	}
	_, err = c.Cluster.Status(ctx, client.ReadOptions{})
	return err
}

// firstTokens are the tokens that `outspan up` makes. The token for servers can be used twice, which is enough for
// three servers.
var firstTokens = []struct {
	role model.SubjectKind
	ttl  model.Duration
	uses int
}{
	{model.SubjectServer, model.Hour, 2},
	{model.SubjectAgent, 24 * model.Hour, 20},
}

// tokenWait limits how long joinSteps waits for tokens.
const tokenWait = 30 * time.Second

// joinSteps is local.SetupCalls.JoinSteps. If the tokens can't be made, it returns the commands that make them, and
// says why.
func (a *app) joinSteps(ctx context.Context, socket, address string) (steps []string) {
	if socket != "" {
		ctx, cancel := context.WithTimeout(ctx, tokenWait)
		defer cancel()
		for _, one := range firstTokens {
			text, err := newToken(ctx, socket, api.TokenBody{Role: string(one.role), TTL: &one.ttl, Uses: &one.uses})
			if err != nil {
				a.Note("warning: no join token was made: %s", model.Reason(err))
				break
			}
			// echo is a part of the shell, so ps does not show the token.
			steps = append(steps, fmt.Sprintf("echo %s | %s", text, joinLine(string(one.role), []string{address})))
		}
	}
	for _, one := range firstTokens[len(steps):] {
		steps = append(steps, "outspan token create --role "+string(one.role))
	}
	return steps
}

// newToken makes a token, and returns its text. A new cluster makes none before its CA is in the state, so the client
// tries again until ctx ends.
func newToken(ctx context.Context, socket string, body api.TokenBody) (string, error) {
	c, err := atSocket(socket)
	if err != nil {
		return "", err
	}
	got, err := c.Tokens.Create(ctx, body, client.WriteOptions{})
	return got.Value.Text, err
}
