package local

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/transport"
)

// upOptions are the flags of the command up.
type upOptions struct {
	setupFlags
	cluster string // "" means the default
}

// Up returns the command up.
func Up(t *term.Console, calls SetupCalls) *cobra.Command {
	o := &upOptions{}
	cmd := &cobra.Command{
		Use: "up", Short: "make this machine the first server of a new cluster", Args: term.Exactly(),
		Example: "sudo outspan up\nsudo outspan up --name s1 --advertise 10.0.0.1 --no-agent\n" +
			"outspan up --config ./conf --data ./data --advertise 127.0.0.1 --no-start",
		Long: `Sets up this machine as a cluster of one server, and as its first worker unless --no-agent. Then further machines join it.

It makes the cluster's CA, the certificates of this machine, the key of the gossip pool and the keyring below the data directory, and writes
outspan.hcl into the configuration directory. The cluster issues and renews all certificates from then on (tls { managed = true }).

As root on a machine with systemd it also installs, enables and starts the unit outspan.service, and waits until the server answers. Then it makes two join
tokens, one for 2 servers within 1h and one for 20 workers within 24h, and prints the lines by which these machines join. Otherwise, and with --no-start,
it prints the commands that start the server and make tokens. The lines contain secrets: give them only to those who set up the machines.

It changes nothing on a machine that is a member of a cluster already. If it was interrupted, run it again.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			return runUp(cmd.Context(), t, calls, o)
		},
	}
	o.register(cmd)
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "name of the new cluster (default: "+transport.DefaultCluster+")")
	return cmd
}

func runUp(ctx context.Context, t *term.Console, calls SetupCalls, o *upOptions) error {
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
			return o.found(found.cfg)
		})
		if err != nil {
			return err
		}
	}
	if found.stage == stageMember { // perhaps because another up was faster
		return o.show(t, found.cfg, setupResult{Member: true, Next: calls.JoinSteps(ctx, "", "")})
	}
	if transport.IsLoopback(found.cfg.Advertise) {
		t.Note("warning: no other machine can reach %s, so none can join", found.cfg.Advertise)
	}
	socket := ""
	started, err := o.start(ctx, t, calls.Ready, found.cfg, process{})
	if err != nil {
		return err
	}
	if started {
		socket = socketOf(found.cfg)
	}
	return o.show(t, found.cfg, setupResult{Started: started, Next: calls.JoinSteps(ctx, socket, found.cfg.Advertise)})
}
