package local

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// joinOptions are the flags of the command join, and what follows from them.
type joinOptions struct {
	setupFlags
	server    bool
	tokenFile string
	version   string        // of this program
	wait      time.Duration // for a person who approves this machine
	askEvery  time.Duration // pause between two requests while a person has not approved this machine

	token     pki.JoinToken
	addresses []string   // host:port
	refused   []pki.Role // whose certificate the servers refuse, although its time is not over
	newCA     bool       // this server was off while its cluster replaced the CA; see look
}

// Join returns the command join.
func Join(t *term.Console, program daemon.Program, calls SetupCalls) *cobra.Command {
	o := &joinOptions{version: program.Version, askEvery: askEvery}
	cmd := &cobra.Command{
		Use: "join [--server] --token-file FILE|- ADDRESS...", Short: "make this machine a member of a cluster that exists",
		Args: cobra.ArbitraryArgs,
		Example: "echo TOKEN | sudo outspan join --token-file - 10.0.0.1\n" +
			"sudo outspan join --server --token-file /root/token 10.0.0.1 10.0.0.2\n" +
			"outspan join --token-file - --config ./conf --data ./data --name n1 --no-start 127.0.0.1:7640",
		Long: `Joins a cluster that outspan up has begun: as a worker, or with --server as a server, which is also a worker unless --no-agent. The join token comes from
outspan up or outspan token create, and decides which of the two is allowed. ADDRESS is that of any server; the port is 7640 if it is missing.

The machine makes its own keys, and sends the token only to a server that belongs to the cluster of the token. It gets its certificates and the keys that
its role needs, and writes them below the data directory, and outspan.hcl into the configuration directory. The cluster renews the certificates from then on.

If the cluster has the setting join_approval, a person approves the machine first. join shows the key to compare and the command to type on a server, and asks
again until the machine is approved, rejected, or --wait is over. The same command again goes on waiting.

The token is a secret: it must not be an argument, because every user of the machine sees those. Pipe or paste it (--token-file -), or name a file.

As root on a machine with systemd it also installs, enables and starts the unit outspan.service, and waits until the process works. Otherwise, and with
--no-start, it prints the command that starts the process.

If it failed or was interrupted, run it again: that uses the token only once. On a machine that is a member already it changes nothing, unless a
certificate is missing, has expired, or is refused by the servers because the machine was revoked. Then it asks for another one, with a new token; the
configuration, the node's id and its volumes stay, and an agent that runs goes on. On a server, the token of an agent is enough for the certificate of its
agent.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := refuseTokenInSight(cmd, args); err != nil {
				return err
			}
			if o.addresses, err = joinAddresses(args); err != nil {
				return err
			}
			if o.wait < 0 {
				return term.Usage("--wait is %s; it can't be negative", o.wait).WithHint("to ask only once: --wait 0")
			}
			if o.token, err = readToken(t, o.tokenFile); err != nil {
				return err
			}
			if err := checkRole(o.token, o.server, o.noAgent); err != nil {
				return err
			}
			if err := o.complete(cmd); err != nil {
				return err
			}
			return runJoin(cmd.Context(), t, calls, o)
		},
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.server, "server", false, "be a server; needs the token of a server")
	cmd.Flags().DurationVar(&o.wait, "wait", approvalWait,
		"how long to wait if a person has to approve this machine; 0: don't wait")
	cmd.Flags().StringVar(&o.tokenFile, "token-file", "", "file with the join token; - reads a line of standard input")
	hideTokenFlag(cmd)
	return cmd
}

func runJoin(ctx context.Context, t *term.Console, calls SetupCalls, o *joinOptions) error {
	// The first look makes no directory, so a refusal leaves nothing behind.
	found, err := o.look()
	if err != nil {
		return err
	}
	if o.findRefused(ctx, found) {
		if found, err = o.look(); err != nil {
			return err
		}
	}
	before := processOf(found.cfg)
	asked := false
	if found.stage != stageMember {
		if !before.server && !before.agent {
			if err := checkPorts(ctx, found.cfg); err != nil {
				return err
			}
		}
		if err := makeDirs(found.cfg.DataDir, o.configDir); err != nil {
			return err
		}
		if asked, err = o.admit(ctx, t, &found); err != nil {
			return err
		}
	}
	if found.stage == stageMember { // perhaps because another join was faster
		return o.show(t, found.cfg, setupResult{Member: true})
	}
	result := setupResult{kept: !asked}
	before.outdated = asked && (before.server || before.agent)
	if before.outdated && before.agent && !slices.Contains(found.ask, pki.RoleServer) && found.cfg.TLS.Managed {
		result.Running = true // the agent finds the new certificate in its files
		if !o.noStart {
			t.Note("waiting until the agent has registered with its new certificate")
			err = before.waitRegistered(ctx, found.cfg)
		}
	} else {
		result.Started, err = o.start(ctx, t, calls.Ready, found.cfg, before)
		result.restart = before.outdated && !result.Started
	}
	if err != nil {
		return err
	}
	return o.show(t, found.cfg, result)
}

// findRefused asks the servers about the certificates of a machine that has all it needs, and notes those that they
// refuse. It reports whether there is one. Without an answer, the certificates count as good.
func (o *joinOptions) findRefused(ctx context.Context, found joinState) bool {
	if found.stage == stageNew {
		return false
	}
	for _, role := range rolesOf(found.cfg) {
		creds, err := transport.ManagedDir(found.cfg.DataDir).Credentials(found.cfg.Cluster, role, found.cfg.Name)
		if err != nil {
			continue // the files changed after look read them, so there is no certificate to ask about
		}
		err = transport.Admitted(ctx, creds, o.addresses)
		if errors.Is(err, &model.Error{Code: model.CodeCertificateRefused}) {
			o.refused = append(o.refused, role)
		}
	}
	return len(o.refused) > 0
}

// join asks the servers for certificates, and writes the files of this machine. The certificates come last, so that a
// join that was interrupted is continued by the next one, with the same keys. first is false if it asks again.
func (o *joinOptions) join(ctx context.Context, t *term.Console, found *joinState, first bool) error {
	cfg := found.cfg
	if first {
		t.Note("asking %s to admit %s", term.Joined(o.addresses), askedText(found))
	}
	wanted, reply, server, err := o.ask(ctx, found)
	if err != nil {
		return err
	}
	if err := wanted.accept(reply, server, t.Now()); err != nil {
		return err
	}
	if found.written && cfg.Cluster != reply.Cluster {
		return o.differsFromServer(cfg.Cluster, reply.Cluster)
	}
	return o.write(found, reply, wanted)
}

// ask sends the request, with the keys of this machine. A member that was revoked comes back with a new key. The
// servers don't say which of two keys was revoked, so the agent's is replaced first.
func (o *joinOptions) ask(ctx context.Context, found *joinState) (c certificates, reply transport.JoinReply,
	server pki.JoinServer, err error) {
	rounds := [][]pki.Role{nil, found.ask}
	switch {
	case o.newCA:
		rounds = rounds[:1] // the key says that it is the same server
	case len(found.ask) > 1:
		rounds = slices.Insert(rounds, 1, []pki.Role{pki.RoleAgent})
	}
	for _, fresh := range rounds {
		var request transport.JoinRequest
		if c, request, err = makeRequests(found.cfg, found.ask, fresh); err != nil {
			break
		}
		request.Version, request.Known = o.version, o.newCA
		request.Address = net.JoinHostPort(found.cfg.Advertise, strconv.Itoa(found.cfg.Listen.Port))
		reply, server, err = transport.Join(ctx, o.addresses, o.token, request)
		if !errors.Is(err, &model.Error{Code: model.CodeMemberRevoked}) {
			break
		}
	}
	return c, reply, server, err
}
