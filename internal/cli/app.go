package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outspan/outspan/internal/daemon"
)

// app is one run of the command line: where it reads and writes, and what its global flags say.
type app struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
	terminal bool // out is a terminal
	now      func() time.Time

	program daemon.Program

	conn   connFlags
	output outputFlags
}

// verb makes one command of the tree.
type verb func(*app) *cobra.Command

// Run runs one command line on the standard streams and returns its exit code.
func Run(ctx context.Context, program daemon.Program, args []string) (code int) {
	return newApp(program).run(ctx, args)
}

func newApp(program daemon.Program) *app {
	a := &app{program: program, in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv, terminal: isTerminal(os.Stdout), now: time.Now}
	a.conn.waiting = a.noteWaiting
	return a
}

// run runs one command line and returns its exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	if len(args) == 0 || args[0] != cobra.ShellCompRequestCmd && args[0] != cobra.ShellCompNoDescRequestCmd {
		names := flagNames(root)
		args = longFlags(args, func(name string) bool { return names[name] })
	}
	a.output.asked = askedForJSON(args)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	return a.finish(ctx, err)
}

// root builds the whole tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "outspan",
		Short: "Run programs on a cluster of machines, and take machines out of it without losing anything",
		Long: `outspan keeps programs running on a cluster of machines, and takes machines out of it without losing anything.

Begin with:  outspan demo      a whole cluster on this machine, within a minute
             outspan dev       one server and one agent, for trying a job file`,
		Args:              cobra.ArbitraryArgs,
		Version:           a.program.Version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(flagError)
	a.conn.register(root.PersistentFlags())
	a.output.register(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("output", completeWords("table", "json", "yaml", "wide", "name")) // the flag is there: it was made above
	for _, n := range nouns() {
		root.AddCommand(a.noun(n))
	}
	for _, v := range alone() {
		root.AddCommand(v(a))
	}
	root.SetHelpCommand(helpCommand(a))
	fillExamples(root)
	return root
}

func (a *app) noun(n noun) *cobra.Command {
	cmd := &cobra.Command{Use: n.name, Short: n.short}
	if n.bare != nil {
		cmd = n.bare(a)
		cmd.Use, cmd.Short = n.name+" [NODE...]", n.short
		cmd.Long = fmt.Sprintf("outspan %s NODE... is short for: outspan node drain NODE...", n.name)
		run := cmd.RunE
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !anyChanged(cmd) {
				return missingVerb(cmd)
			}
			return run(cmd, args)
		}
	} else {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return missingVerb(cmd)
			}
			return unknownCommand(cmd, args[0])
		}
	}
	for _, v := range n.verbs {
		cmd.AddCommand(v(a))
	}
	return cmd
}

// aliasOf is a verb without its noun, as people type it.
func aliasOf(v verb, use string) verb {
	return func(a *app) *cobra.Command {
		cmd := v(a)
		cmd.Use = use
		return cmd
	}
}

// anyChanged reports whether a flag of the command itself was given.
func anyChanged(cmd *cobra.Command) bool {
	changed := false
	cmd.LocalNonPersistentFlags().Visit(func(*pflag.Flag) { changed = true })
	return changed
}

// flagNames are the long names of every flag in the tree.
func flagNames(root *cobra.Command) map[string]bool {
	names := map[string]bool{"help": true}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		note := func(f *pflag.Flag) { names[f.Name] = len(f.Name) > 1 }
		cmd.LocalFlags().VisitAll(note)
		cmd.PersistentFlags().VisitAll(note)
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root)
	return names
}

// singleDash is the name in -name or -name=value; false for anything else.
func singleDash(arg string) (string, bool) {
	if len(arg) < 3 || arg[0] != '-' || arg[1] == '-' {
		return "", false
	}
	name, _, _ := strings.Cut(arg[1:], "=")
	return name, true
}

// printf writes to stdout.
func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.out, format, args...) }

// note writes a line for people to stderr: stdout holds only what was asked for. With JSON stderr holds nothing but an
// error as JSON.
func (a *app) note(format string, args ...any) {
	if !a.output.asked {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// longFlags turns -json into --json: a single dash before the name of a long flag, as people know it from elsewhere.
// Single letters, and what follows --, stay as they are.
func longFlags(args []string, known func(name string) bool) []string {
	out := slices.Clone(args)
	for i, arg := range out {
		if arg == "--" {
			break
		}
		if name, ok := singleDash(arg); ok && known(name) {
			out[i] = "-" + arg
		}
	}
	return out
}
