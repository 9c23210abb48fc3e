package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/daemon"
)

// genDocsCommand makes the hidden command gen-docs, which `make docs` calls. The command writes the references of the
// command line, the job file, the configuration and the metrics.
func genDocsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "gen-docs DIR", Short: "write the reference of the command line below DIR",
		Hidden: true, Args: term.Exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeDocs(cmd.Root(), args[0])
		},
	}
}

func writeDocs(root *cobra.Command, dir string) error {
	cli := filepath.Join(dir, "cli")
	if err := os.MkdirAll(cli, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", cli, err)
	}
	files := map[string]string{"README.md": docsIndex(root)}
	for _, cmd := range root.Commands() {
		if documented(cmd) {
			files[cmd.Name()+".md"] = docsPage(cmd)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(cli, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the reference: %w", err)
		}
	}
	if err := local.WriteJobDocs(filepath.Join(dir, "job-file.md")); err != nil {
		return err
	}
	if err := local.WriteConfigDocs(filepath.Join(dir, "configuration.md")); err != nil {
		return err
	}
	return local.WriteMetricsDocs(filepath.Join(dir, "metrics.md"), daemon.Collectors()...)
}

// documented reports whether the reference contains a command. Hidden commands and help are not in it.
func documented(cmd *cobra.Command) bool { return cmd.IsAvailableCommand() && cmd.Name() != "help" }

// docsIndex returns the front page: all commands, the global flags and the exit codes.
func docsIndex(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(
		"# The command line\n\nMade from the program by `make docs`.\n\n    outspan NOUN VERB [ID|PREFIX] [flags]\n\n")
	b.WriteString("What changes something takes whole names and ids; only the id of an instance may be cut, to at least " +
		"6 characters. What only reads takes\nany unique prefix. `-json` is taken for `--json`, and so for " +
		"every long flag.\n\n")
	b.WriteString("| command | |\n|---|---|\n")
	for _, cmd := range root.Commands() {
		if documented(cmd) {
			fmt.Fprintf(&b, "| [%s](%s.md) | %s |\n", cmd.Name(), cmd.Name(), verbsText(cmd))
		}
	}
	b.WriteString("\n## Flags of every command\n" + flagTable(root.PersistentFlags()))
	b.WriteString("\nA flag wins over its environment variable, and both over the local socket. Colour is only used on " +
		"a terminal, and not with `NO_COLOR`.\n")
	b.WriteString("\n## Exit codes\n| code | meaning |\n|---|---|\n")
	for _, line := range exitTable() {
		fmt.Fprintf(&b, "| %d | %s |\n", line.code, line.meaning)
	}
	b.WriteString("\nErrors go to stderr: what failed, why (a code), what to do next. With `-o json`: " +
		"`{\"code\",\"message\",\"hint\",\"retryable\",\"index\"}`.\n")
	return b.String()
}

func verbsText(cmd *cobra.Command) string {
	var verbs []string
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			verbs = append(verbs, child.Name())
		}
	}
	if len(verbs) == 0 {
		return cmd.Short
	}
	return cmd.Short + ": " + strings.Join(verbs, ", ")
}

// docsPage returns the page of a noun with all its verbs, or of a command without verbs.
func docsPage(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"# outspan %s\n\nMade from the program by `make docs`. Flags of every command, exit codes: "+
			"[README](README.md).\n\n%s\n", cmd.Name(), sentence(cmd.Short))
	if len(cmd.Commands()) > 0 && cmd.Long != "" {
		fmt.Fprintf(&b, "%s\n", cmd.Long)
	}
	docsOf(&b, cmd)
	return b.String()
}

func docsOf(b *strings.Builder, cmd *cobra.Command) {
	children := false
	for _, child := range cmd.Commands() {
		if !child.IsAvailableCommand() {
			continue
		}
		children = true
		if len(child.Commands()) == 0 {
			fmt.Fprintf(b, "\n## %s\n\n%s\n", child.CommandPath(), sentence(child.Short))
		}
		docsOf(b, child)
	}
	if children {
		return
	}
	fmt.Fprintf(b, "\n    %s\n", term.UseLine(cmd))
	if cmd.Long != "" {
		fmt.Fprintf(b, "\n%s\n", cmd.Long)
	}
	if lines := examplesOf(cmd); len(lines) > 0 {
		fmt.Fprintf(b, "\n    %s\n", strings.Join(lines, "\n    "))
	}
	if table := flagTable(cmd.LocalNonPersistentFlags()); table != "" {
		b.WriteString("\n" + table)
	}
}

// sentence turns the short help of a command into a sentence.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

func flagTable(fs *pflag.FlagSet) string {
	var b strings.Builder
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if b.Len() == 0 {
			b.WriteString("| flag | |\n|---|---|\n")
		}
		name := "`--" + f.Name
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		kind, help := pflag.UnquoteUsage(f)
		if f.NoOptDefVal != "" && f.NoOptDefVal != "true" {
			kind = "[=" + kind + "]"
		} else if kind != "" {
			kind = " " + kind
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" && f.DefValue != "0s" {
			help += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		fmt.Fprintf(&b, "| %s%s` | %s |\n", name, kind, strings.ReplaceAll(help, "|", "\\|"))
	})
	return b.String()
}
