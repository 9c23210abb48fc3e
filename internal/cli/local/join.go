package local

import (
	"context"
	"errors"
	"net"
	"strconv"

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
	version   string // of this program

	token     pki.JoinToken
	addresses []string // host:port
}

// Join returns the command join.
func Join(t *term.Console, program daemon.Program, calls SetupCalls) *cobra.Command {
	o := &joinOptions{version: program.Version}
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

The token is a secret: it must not be an argument, because every user of the machine sees those. Pipe or paste it (--token-file -), or name a file.

As root on a machine with systemd it also installs, enables and starts the unit outspan.service, and waits until the process works. Otherwise, and with
--no-start, it prints the command that starts the process.

It changes nothing on a machine that is a member already, unless it is a worker whose certificate has expired. If it failed or was interrupted, run it again: that uses the token only once.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := refuseTokenInSight(cmd, args); err != nil {
				return err
			}
			if o.addresses, err = joinAddresses(args); err != nil {
				return err
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
	cmd.Flags().StringVar(&o.tokenFile, "token-file", "", "file with the join token; - reads a line of standard input")
	return cmd
}

func runJoin(ctx context.Context, t *term.Console, calls SetupCalls, o *joinOptions) error {
	// The first look makes no directory, so a refusal leaves nothing behind.
	found, err := o.look()
	if err != nil {
		return err
	}
	if found.stage != stageMember {
		if err := checkPorts(ctx, found.cfg); err != nil {
			return err
		}
		if err := makeDirs(found.cfg.DataDir, o.configDir); err != nil {
			return err
		}
		err = transport.ManagedDir(found.cfg.DataDir).Lock(ctx, func() (err error) {
			if found, err = o.look(); err != nil || found.stage != stageNew {
				return err
			}
			return o.join(ctx, t, &found)
		})
		if err != nil {
			return err
		}
	}
	if found.stage == stageMember { // perhaps because another join was faster
		return o.show(t, found.cfg, setupResult{Member: true})
	}
	started, err := o.start(ctx, t, calls.Ready, found.cfg)
	if err != nil {
		return err
	}
	return o.show(t, found.cfg, setupResult{Started: started})
}

// join asks the servers for certificates, and writes the files of this machine. The certificates come last, so that a
// join that was interrupted is continued by the next one, with the same keys.
func (o *joinOptions) join(ctx context.Context, t *term.Console, found *joinState) error {
	cfg := found.cfg
	wanted, request, err := makeRequests(cfg)
	if err != nil {
		return err
	}
	request.Version = o.version
	request.Address = net.JoinHostPort(cfg.Advertise, strconv.Itoa(cfg.Listen.Port))
	t.Note("asking %s to admit %s", term.Joined(o.addresses), roleText(cfg))
	reply, server, err := transport.Join(ctx, o.addresses, o.token, request)
	if err != nil {
		return o.explain(err)
	}
	if err := wanted.accept(reply, server, t.Now()); err != nil {
		return err
	}
	if found.written && cfg.Cluster != reply.Cluster {
		return o.differsFromServer(cfg.Cluster, reply.Cluster)
	}
	return o.write(found, reply, wanted)
}

// explain adds the next step to errors of servers that don't know the flags of this command.
func (o *joinOptions) explain(err error) error {
	var refusal *model.Error
	if errors.As(err, &refusal) && refusal.Code == model.CodeMemberRevoked {
		return model.Refuse(refusal.Code, "%s", model.Reason(err)).
			WithHint("remove the old keys of this machine, which count no more: rm -r %s; then join again",
				transport.ManagedDir(o.dataDir).Path())
	}
	return err
}
