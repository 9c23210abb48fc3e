package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/internal/demo"
	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/model"
)

type devOptions struct {
	Dir     string
	Address string
	Out     io.Writer
	Program daemon.Program
}

func devFlags(cmd *cobra.Command, options *devOptions) {
	options.Out = cmd.OutOrStdout()
	cmd.Flags().
		StringVar(&options.Dir, "dir", "",
			"keep everything in this directory (default: a temporary one that goes at the end)")
	cmd.Flags().StringVar(&options.Address, "listen", "127.0.0.1", "loopback address to listen on, at any free port")
}

// runDev runs one server and one agent in this process until ctx ends. If o.Dir is "", runDev uses a temporary
// directory. In that case it stops all instances and removes the directory before it returns.
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
	text := fmt.Sprintf("name = \"dev\"\ndata_dir = %q\nserver {\n  bootstrap_expect = 1\n"+
		"}\nagent {\n  cgroup_root = %q\n  allow_root = true\n"+
		"}\ntls {\n  dir = %q\n}\ngossip {\n  profile = \"fast\"\n"+
		"}\nsettings {\n  offline_after = \"5s\"\n}\nlisten {\n"+
		"  address = %q\n  port = 0\n  gossip_port = 0\n  socket = %q\n}\nlog {\n  level = \"warn\"\n}\n",
		filepath.Join(dir, "data"), "outspan-"+filepath.Base(dir), filepath.Join(dir, "tls"), o.Address, socket)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration of dev: %w", err)
	}
	cfg, err := config.Load(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out,
		"One server and one agent run until Ctrl-C. In another terminal:\n"+
			"  export OUTSPAN_ADDR=unix://%s\n  outspan node ls\n  outspan job init web.hcl && outspan job run web.hcl\n",
		socket)
	err = o.Program.Run(ctx, cfg, func() (*config.Config, error) { return config.Load(file) })
	if err == nil && !temporary {
		fmt.Fprintf(o.Out, "What was not stopped goes on running. To take it up again: outspan dev --dir %s\n", dir)
	}
	return err
}

// Version returns the command version.
func Version(t *term.Console, program daemon.Program) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "show the version of this binary", Args: term.Exactly(),
		RunE: func(_ *cobra.Command, _ []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
				Format  uint16 `json:"format"`
			}{program.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, model.CurrentFormat}
			s, err := term.ResultOf(v, []string{program.Version}, func(p *term.Page) {
				p.Line("outspan %s (%s, %s/%s, log format %d)", v.Version, v.Go, v.OS, v.Arch, v.Format)
			})
			if err != nil {
				return err
			}
			return t.Show(s)
		},
	}
}

// Dev returns the command dev.
func Dev(t *term.Console, program daemon.Program) *cobra.Command {
	var options devOptions
	cmd := &cobra.Command{
		Use: "dev", Short: "run one server and one agent in this process, for trying a job file", Args: term.Exactly(),
		Long: "Runs a whole small cluster in one process on loopback until Ctrl-C, and says how to reach it. What it keeps " +
			"is in a temporary directory that goes with it, unless --dir.",
		RunE: func(cmd *cobra.Command, _ []string) error { return runDev(cmd.Context(), options) },
	}
	devFlags(cmd, &options)
	options.Out, options.Program = t.Out, program
	return cmd
}

// Demo returns the command demo.
func Demo(t *term.Console) *cobra.Command {
	options := demo.Options{Out: t.Out}
	cmd := &cobra.Command{
		Use: "demo", Short: "show a whole cluster at work on this machine, within a minute", Args: term.Exactly(),
		Long: `Sets up three servers, four agents (by outspan up and join tokens) and a web service, as real processes on loopback, and tells a story with them: a drain,
a machine that dies, a leader that dies in the middle of a drain, a machine that returns. It checks what it tells, prints what it measured, and leaves nothing
behind. Exit code 1 if anything was not as it should be.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return demo.Run(cmd.Context(), options) },
	}
	cmd.Flags().BoolVar(&options.Keep, "keep", false, "leave it running at the end, until Ctrl-C, and say how to use it")
	cmd.Flags().Bool("script", false, "plain lines only (always so)")
	return cmd
}

// DemoApp returns the hidden command demo-app: the web service that instances of the demo and of example jobs run.
func DemoApp(t *term.Console) *cobra.Command {
	return &cobra.Command{
		Use: "demo-app", Short: "the web service of the demo", Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return demo.RunApp(context.WithoutCancel(cmd.Context()), args)
		},
	}
}
