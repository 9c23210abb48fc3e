package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/demo"
	"github.com/outspan/outspan/model"
)

func fmtCommand(a *app) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use: "fmt FILE...", Short: "write job and configuration files in their canonical form", Args: atLeast(1),
		Long: "Rewrites files in place; \"-\" reads standard input and writes standard output. With --check nothing is written: the names of files that would change are printed, and the exit code is 1.",
		RunE: func(_ *cobra.Command, args []string) error {
			changed := 0
			for _, path := range args {
				differs, err := a.formatFile(path, check)
				if err != nil {
					return err
				}
				if differs {
					changed++
				}
			}
			if check && changed > 0 {
				return quiet{exitOther}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only say which files would change")
	return cmd
}

func (a *app) formatFile(path string, check bool) (differs bool, err error) {
	src, err := a.readFile(path, maxJobFile)
	if err != nil {
		return false, err
	}
	out, err := config.Format(path, src)
	if err != nil {
		return false, err
	}
	differs = !bytes.Equal(src, out)
	switch {
	case path == "-" && !check:
		_, err = a.out.Write(out)
		return differs, err
	case !differs:
		return false, nil
	}
	a.printf("%s\n", path)
	if check {
		return true, nil
	}
	return true, replaceFile(path, out)
}

// replaceFile replaces a file in one step and keeps its mode.
func replaceFile(path string, data []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return usage("can't write the file: %v", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".outspan-fmt-*")
	if err != nil {
		return usage("can't write %s: %v", path, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone already when all went well
	_, err = tmp.Write(data)
	for _, next := range []func() error{func() error { return tmp.Chmod(info.Mode().Perm()) }, tmp.Sync} {
		if err == nil {
			err = next()
		}
	}
	if closed := tmp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// configPaths lets the files of a command be given as the run commands take them, too.
func configPaths(cmd *cobra.Command) *cobra.Command {
	named := cmd.Flags().StringArray("config", nil, "file, or directory of *.hcl files, as for server run and agent run")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args = append(args, *named...); len(args) == 0 {
			return usage("%s needs a file", cmd.CommandPath()).WithHint("name a file, or a directory such as /etc/outspan.d")
		}
		return run(cmd, args)
	}
	return cmd
}

func roleText(c *config.Config) string {
	switch {
	case c.Server != nil && c.Agent != nil:
		return "server and agent " + c.Name
	case c.Server != nil:
		return "server " + c.Name
	}
	return "agent " + c.Name
}

func configShow(a *app) *cobra.Command {
	return configPaths(&cobra.Command{
		Use: "show FILE|DIR...", Short: "show what the files come to, with every default", Args: atLeast(0),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := config.Load(args...)
			if err != nil {
				return err
			}
			v := configView(c)
			s, err := shownValue(v, []string{c.Name}, nil)
			if err != nil {
				return err
			}
			s.text = func(p *page) {
				var b bytes.Buffer
				if err := printYAML(&b, s.json); err == nil {
					p.line("%s", bytes.TrimRight(b.Bytes(), "\n"))
				}
			}
			return a.show(s)
		},
	})
}

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "show the version of this binary", Args: exactly(),
		RunE: func(_ *cobra.Command, _ []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
				Format  uint16 `json:"format"`
			}{a.program.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, model.CurrentFormat}
			s, err := shownValue(v, []string{a.program.Version}, func(p *page) {
				p.line("outspan %s (%s, %s/%s, log format %d)", v.Version, v.Go, v.OS, v.Arch, v.Format)
			})
			if err != nil {
				return err
			}
			return a.show(s)
		},
	}
}

func devCommand(a *app) *cobra.Command {
	var options devOptions
	cmd := &cobra.Command{
		Use: "dev", Short: "run one server and one agent in this process, for trying a job file", Args: exactly(),
		Long: "Runs a whole small cluster in one process on loopback until Ctrl-C, and says how to reach it. What it keeps is in a temporary directory that goes with it, unless --dir.",
		RunE: func(cmd *cobra.Command, _ []string) error { return runDev(cmd.Context(), options) },
	}
	devFlags(cmd, &options)
	options.Out, options.Program = a.out, a.program
	return cmd
}

func demoCommand(a *app) *cobra.Command {
	options := demo.Options{Out: a.out}
	cmd := &cobra.Command{
		Use: "demo", Short: "show a whole cluster at work on this machine, within a minute", Args: exactly(),
		Long: `Starts three servers, four agents and a web service as real processes on loopback, in a temporary directory, and tells a story with them: a drain,
a machine that dies, a leader that dies in the middle of a drain, a machine that returns. It checks what it tells, prints what it measured, and leaves nothing
behind. Exit code 1 if anything was not as it should be.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return demo.Run(cmd.Context(), options) },
	}
	cmd.Flags().BoolVar(&options.Keep, "keep", false, "leave it running at the end, until Ctrl-C, and say how to use it")
	cmd.Flags().Bool("script", false, "plain lines only (always so)")
	return cmd
}

func demoAppCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "demo-app", Short: "the web service of the demo", Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return demo.RunApp(context.WithoutCancel(cmd.Context()), args)
		},
	}
}

func jobInit(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "init [FILE]", Short: "write an example of a job file", Args: between(0, 1),
		Long: "Writes a commented job file into FILE (default job.hcl); \"-\" writes standard output.",
		RunE: func(_ *cobra.Command, args []string) error {
			path := "job.hcl"
			if len(args) == 1 {
				path = args[0]
			}
			if path == "-" {
				_, err := io.WriteString(a.out, exampleJob())
				return err
			}
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if os.IsExist(err) {
				return model.Refuse(model.CodeConflict, "%s exists already", path).WithHint("name another file: outspan job init FILE")
			}
			if err != nil {
				return usage("can't write the file: %v", err)
			}
			_, err = io.WriteString(f, exampleJob())
			if err = errors.Join(err, f.Close()); err != nil {
				_ = os.Remove(path) // half a file would be in the way of the next try
				return err
			}
			s, err := shownValue(map[string]string{"file": path}, []string{path}, func(p *page) {
				p.line("wrote %s", path)
				p.line("  see what it would do: outspan job plan %s", path)
			})
			if err != nil {
				return err
			}
			return a.show(s)
		},
	}
}

func jobValidate(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE", Short: "check a job file, and show it with every default", Args: exactly("FILE"),
		Long: "Checks a job file without a cluster and prints what it comes to: each role's preset and every default filled in.",
		RunE: func(_ *cobra.Command, args []string) error {
			spec, err := a.readJob(args[0])
			if err != nil {
				return err
			}
			expanded := spec.Expand()
			text, err := jobHCL(expanded)
			if err != nil {
				return err
			}
			s, err := shownValue(expanded, []string{string(expanded.Name)}, func(p *page) {
				p.b.WriteString(text)
				p.budgetNotes(expanded)
			})
			if err != nil {
				return err
			}
			return a.show(s)
		},
	}
}

// exampleJob is what job init writes. It runs as it is: with the web server that is built in, or with python's where an
// ordinary user can't execute this binary, because agents of root run their work as other users.
func exampleJob() string {
	command, args := "/usr/bin/python3", `["-m", "http.server", "${port.http}"]`
	if own, err := os.Executable(); err == nil && executableByAll(own) {
		command, args = own, `["demo-app"]`
	}
	return strings.NewReplacer("COMMAND", strconv.Quote(command), "ARGS", args).Replace(exampleText)
}

// executableByAll reports whether every user of this machine can execute a program, or whether there is none but the
// present one to care for.
func executableByAll(path string) bool {
	if os.Geteuid() != 0 {
		return true
	}
	for {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(path)
		if parent == path {
			return true
		}
		path = parent
	}
}

const exampleText = `# A job is what you want to run. See what this file would do with: outspan job plan FILE
job "web" {
  class = "production" # system, critical, production or batch: who is placed first

  # A group is a number of equal instances of one program.
  group "http" {
    count = 3

    exec {
      command = COMMAND
      args    = ARGS
    }

    resources {
      cpu    = 100     # shares, soft
      memory = "64MiB" # a hard cap
    }

    # A port of the machine, chosen anew for each instance. With static = 8080 it is always that one.
    port "http" {}

    # Every agent forwards port 8080 to the instances that are ready.
    service "web" {
      port   = "http"
      expose = 8080
    }

    # An instance is ready while its checks pass.
    check "alive" {
      type     = "http"
      port     = "http"
      path     = "/"
      interval = "2s"
    }

    # Readiness is withdrawn, then the signal is sent, and after grace what is left is killed.
    stop {
      signal = "SIGTERM"
      grace  = "10s"
    }

    # A new version is rolled out one by one, and taken back if it fails.
    update {
      max_surge       = 1
      max_unavailable = 0
      auto_revert     = true
    }

    # What drains, rollouts and operators may take away at once.
    budget {
      min_ready = 2
    }
  }
}
`
