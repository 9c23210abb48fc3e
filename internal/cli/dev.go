package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/internal/procs"
)

// devOptions are the flags of `outspan dev`.
type devOptions struct {
	Dir     string
	Address string
	Out     io.Writer
	Program daemon.Program
}

func devFlags(cmd *cobra.Command, options *devOptions) {
	options.Out = cmd.OutOrStdout()
	cmd.Flags().StringVar(&options.Dir, "dir", "", "keep everything in this directory (default: a temporary one that goes at the end)")
	cmd.Flags().StringVar(&options.Address, "listen", "127.0.0.1", "loopback address to listen on, at any free port")
}

// runDev runs one server and one agent in this process until ctx ends. Without a directory of the user's, all of it
// goes at the end, the instances included.
func runDev(ctx context.Context, o devOptions) (err error) {
	dir, temporary := o.Dir, o.Dir == ""
	if temporary {
		s, err := procs.New(0, 0)
		if err != nil {
			return err
		}
		dir = s.Dir
		defer func() { err = errors.Join(err, s.Close()) }()
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("find %s: %w", o.Dir, err)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("make the directory of dev: %w", err)
	}
	if err := daemon.LetPass(dir); err != nil {
		return err
	}
	file := filepath.Join(dir, "dev.hcl")
	socket := filepath.Join(dir, "api.sock")
	text := fmt.Sprintf("name = \"dev\"\ndata_dir = %q\nserver {\n  bootstrap_expect = 1\n}\nagent {\n  cgroup_root = %q\n  allow_root = true\n}\ntls {\n  dir = %q\n}\ngossip {\n  profile = \"fast\"\n}\nsettings {\n  offline_after = \"5s\"\n}\nlisten {\n  address = %q\n  port = 0\n  gossip_port = 0\n  socket = %q\n}\nlog {\n  level = \"warn\"\n}\n",
		filepath.Join(dir, "data"), "outspan-"+filepath.Base(dir), filepath.Join(dir, "tls"), o.Address, socket)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration of dev: %w", err)
	}
	cfg, err := config.Load(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "One server and one agent run until Ctrl-C. In another terminal:\n  export OUTSPAN_ADDR=unix://%s\n  outspan node ls\n  outspan job init web.hcl && outspan job run web.hcl\n", socket)
	err = o.Program.Run(ctx, cfg, func() (*config.Config, error) { return config.Load(file) })
	if err == nil && !temporary {
		fmt.Fprintf(o.Out, "What was not stopped goes on running. To take it up again: outspan dev --dir %s\n", dir)
	}
	return err
}
