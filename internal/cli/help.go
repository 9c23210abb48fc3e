package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// helpCommand shows the help of any command; a word that is none is an error, as everywhere.
func helpCommand(*app) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]...", Short: "show the help of a command", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			found := cmd.Root()
			for _, word := range args {
				next := childNamed(found, word)
				if next == nil {
					return unknownCommand(found, word)
				}
				found = next
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

func childNamed(cmd *cobra.Command, word string) *cobra.Command {
	for _, child := range cmd.Commands() {
		if child.Name() == word || child.HasAlias(word) {
			return child
		}
	}
	return nil
}

// samples stand in examples for what people give. The longer word comes first where one begins with another.
var samples = strings.NewReplacer(
	"JOB|JOB/GROUP|INSTANCE", "web", "JOB/GROUP", "web/http", "FILE|DIR...", "/etc/outspan.d", "[INSTANCE...]", "", "[NODE...]", "n7", "NODE...", "n7 n8",
	"[NODE]", "n7", "NODE", "n7", "[SERVER]", "s2", "SERVER", "s2", "JOB", "web", "[VERSION]", "3", "[GROUP]", "http", "INSTANCE", "3k9fq2", "DRAIN", "01J9Z5XK3M7Q2W8R4T6Y0B1C2D",
	"bash|zsh|fish", "bash", "DEPLOYMENT", "web-3", "SERVICE", "web", "[FILE]", "web.hcl", "FILE...", "web.hcl", "FILE", "web.hcl", "[KEY]", "offline_after", "[ID]", "web", "ID", "web",
	"[actuation|hold|restore]", "hold", "[actuation]", "actuation",
)

// fillExamples gives every command an example, and indents them all.
func fillExamples(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		fillExamples(child)
	}
	if !cmd.HasParent() || len(cmd.Commands()) > 0 && cmd.Example == "" {
		return
	}
	text := cmd.Example
	if text == "" {
		text = strings.Join(strings.Fields(samples.Replace(useLine(cmd))), " ")
		if text == useLine(cmd) {
			return // it says nothing that the line of usage does not
		}
	}
	cmd.Example = "  " + strings.ReplaceAll(text, "\n", "\n  ")
}

// examplesOf are the examples of a command, one a line.
func examplesOf(cmd *cobra.Command) []string {
	var lines []string
	for line := range strings.Lines(cmd.Example) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}
