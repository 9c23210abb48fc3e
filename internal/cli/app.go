package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/daemon"
)

// app is one run of the command line: its streams, its global flags, and its connection to the cluster.
type app struct {
	term.Console
	program daemon.Program
	conn    connFlags
}

// verb makes one command of the command tree.
type verb func(*app) *cobra.Command

// Run runs one command line on the standard streams and returns its exit code.
func Run(ctx context.Context, program daemon.Program, args []string) (code int) {
	return newApp(program).run(ctx, args)
}

func newApp(program daemon.Program) *app {
	a := &app{Console: term.NewConsole(), program: program}
	a.conn.waiting = a.noteWaiting
	return a
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	if len(args) == 0 || args[0] != cobra.ShellCompRequestCmd && args[0] != cobra.ShellCompNoDescRequestCmd {
		names := flagNames(root)
		args = longFlags(args, func(name string) bool { return names[name] })
	}
	a.Output.Asked = term.AskedForJSON(args)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	return a.finish(ctx, err)
}

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
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(flagError)
	a.conn.register(root.PersistentFlags())
	a.conn.in, a.conn.note = a.In, a.Note
	a.Output.Register(root.PersistentFlags())
	// can't fail, because the flag exists
	_ = root.RegisterFlagCompletionFunc("output", completeWords("table", "json", "yaml", "wide", "name"))
	for _, n := range nouns() {
		root.AddCommand(a.noun(n))
	}
	for _, v := range alone() {
		root.AddCommand(v(a))
	}
	root.SetHelpCommand(helpCommand(a))
	completeParents(root)
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
	}
	for _, v := range n.verbs {
		cmd.AddCommand(v(a))
	}
	return cmd
}

// completeParents sets the action verbOf in each command of the tree that has subcommands and no action of its own.
func completeParents(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		completeParents(child)
	}
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, verbOf
	}
}

// verbOf is the action of a command that only has subcommands. It returns an error that lists the subcommands, or an
// error about the first word in args, which is not one of them.
func verbOf(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return missingVerb(cmd)
	}
	return unknownCommand(cmd, args[0])
}

// aliasOf returns the command v with another usage line. It is for commands that are short for a noun and a verb, such
// as outspan run for outspan job run.
func aliasOf(v verb, use string) verb {
	return func(a *app) *cobra.Command {
		cmd := v(a)
		cmd.Use = use
		return cmd
	}
}

// anyChanged reports whether the command line sets a flag of the command itself. It ignores global flags.
func anyChanged(cmd *cobra.Command) bool {
	changed := false
	cmd.LocalNonPersistentFlags().Visit(func(*pflag.Flag) { changed = true })
	return changed
}

// flagNames has a key for each flag name in the command tree. The value is true if the name has more than one letter.
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

// singleDash returns the name in an argument such as -name or -name=value. It returns false for any other argument,
// also for a single letter such as -n.
func singleDash(arg string) (string, bool) {
	if len(arg) < 3 || arg[0] != '-' || arg[1] == '-' {
		return "", false
	}
	name, _, _ := strings.Cut(arg[1:], "=")
	return name, true
}

// longFlags adds the second dash to known flags such as -json, because some tools write long flags with a single dash.
// Single letters, and everything after --, stay unchanged.
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
