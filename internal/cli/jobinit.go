package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/jobfile"
	"github.com/outspan/outspan/model"
)

func jobInit(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "init [FILE]", Short: "write an example of a job file", Args: term.Between(0, 1),
		Long: "Writes a commented job file into FILE (default job.hcl); \"-\" writes standard output.",
		RunE: func(_ *cobra.Command, args []string) error {
			path := "job.hcl"
			if len(args) == 1 {
				path = args[0]
			}
			if path == "-" {
				_, err := io.WriteString(a.Out, exampleJob())
				return err
			}
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if os.IsExist(err) {
				return model.Refuse(model.CodeConflict, "%s exists already", path).
					WithHint("name another file: outspan job init FILE")
			}
			if err != nil {
				return term.Usage("can't write the file: %v", err)
			}
			_, err = io.WriteString(f, exampleJob())
			if err = errors.Join(err, f.Close()); err != nil {
				_ = os.Remove(path) // an incomplete file would block the next attempt
				return err
			}
			s, err := term.ResultOf(map[string]string{"file": path}, []string{path}, func(p *term.Page) {
				p.Line("wrote %s", path)
				p.Line("  see what it would do: outspan job plan %s", path)
			})
			if err != nil {
				return err
			}
			return a.Show(s)
		},
	}
}

func jobValidate(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE", Short: "check a job file, and show it with every default", Args: term.Exactly("FILE"),
		Long: "Checks a job file without a cluster and prints what it comes to: each role's preset and every " +
			"default filled in.",
		RunE: func(_ *cobra.Command, args []string) error {
			spec, err := a.readJob(args[0])
			if err != nil {
				return err
			}
			expanded := spec.Expand()
			text, err := jobfile.Print(expanded)
			if err != nil {
				return err
			}
			s, err := term.ResultOf(expanded, []string{string(expanded.Name)}, func(p *term.Page) {
				_, _ = p.Write([]byte(text))
				budgetNotes(p, expanded)
			})
			if err != nil {
				return err
			}
			return a.Show(s)
		},
	}
}

// exampleJob returns the job file that job init writes. A user can run the job unchanged: its program is the command
// demo-app of this binary. If not every user can execute this binary, the program is Python's web server instead,
// because an agent that runs as root starts programs as other users.
func exampleJob() string {
	command, args := "/usr/bin/python3", `["-m", "http.server", "${port.http}"]`
	if own, err := os.Executable(); err == nil && executableByAll(own) {
		command, args = own, `["demo-app"]`
	}
	return strings.NewReplacer("COMMAND", strconv.Quote(command), "ARGS", args).Replace(exampleText)
}

// executableByAll reports whether every user of this machine can execute the program at path. If this process does not
// run as root, executableByAll returns true without a check.
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
