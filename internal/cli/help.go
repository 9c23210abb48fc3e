package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// helpCommand makes the command help, which shows the help of any command. It refuses an unknown word.
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

// samples replaces the placeholders of a usage line by examples. If one placeholder is a prefix of another, the longer
// one must be earlier in the list.
var samples = strings.NewReplacer(
	"JOB|JOB/GROUP|INSTANCE", "web", "JOB/GROUP", "web/http", "FILE|DIR...", "/etc/outspan.d", "[INSTANCE...]", "",
	"[NODE...]", "n7", "NODE...", "n7 n8",
	"[NODE]", "n7", "NODE", "n7", "[SERVER]", "s2", "SERVER", "s2", "JOB", "web", "[VERSION]", "3", "[GROUP]", "http",
	"TOKEN", "2fbzq3k7ay5d", "INSTANCE", "3k9fq2", "DRAIN", "01J9Z5XK3M7Q2W8R4T6Y0B1C2D",
	"bash|zsh|fish", "bash", "DEPLOYMENT", "web-3", "SERVICE", "web", "[FILE]", "web.hcl", "FILE...", "web.hcl", "FILE",
	"web.hcl", "[KEY]", "offline_after", "[ID]", "web", "ID", "web",
	"[actuation|hold|restore]", "hold", "[actuation]", "actuation",
)

// fillExamples indents the examples of cmd and of all commands below it. If a command without subcommands has no
// example, fillExamples makes one from the usage line.
func fillExamples(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		fillExamples(child)
	}
	if !cmd.HasParent() || len(cmd.Commands()) > 0 && cmd.Example == "" {
		return
	}
	text := cmd.Example
	if text == "" {
		text = strings.Join(strings.Fields(samples.Replace(term.UseLine(cmd))), " ")
		if text == term.UseLine(cmd) {
			return // an example would only repeat the usage line
		}
	}
	cmd.Example = "  " + strings.ReplaceAll(text, "\n", "\n  ")
}

func examplesOf(cmd *cobra.Command) []string {
	var lines []string
	for line := range strings.Lines(cmd.Example) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// completionTime is how long completion in a shell waits for names. If the cluster does not answer in that time, the
// shell completes nothing and prints nothing.
const completionTime = time.Second

func completionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "print a script that completes commands, flags and names in your shell",
		Args:              term.Exactly("SHELL"),
		ValidArgsFunction: completeWords("bash", "zsh", "fish"),
		Long: `Prints a completion script. Names of nodes, jobs, instances and drains are asked of the cluster as you type.

  bash:  source <(outspan completion bash)
  zsh:   outspan completion zsh > "${fpath[1]}/_outspan"
  fish:  outspan completion fish | source`,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Out, true)
			case "zsh":
				return root.GenZshCompletion(a.Out)
			case "fish":
				return root.GenFishCompletion(a.Out, true)
			}
			return term.Usage("there is no completion for %q", args[0]).WithHint("use bash, zsh or fish")
		},
	}
}

type completer = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

func completeWords(words ...string) completer {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return beginning(words, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// complete returns a completer for names of objects in the cluster. The first argument has the kind kinds[0], the
// second kinds[1], and so on; the last kind is for all further arguments.
func (a *app) complete(kinds ...string) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		kind := kinds[min(len(args), len(kinds)-1)]
		names := slices.DeleteFunc(a.namesOf(ctx, kind), func(name string) bool { return slices.Contains(args, name) })
		return beginning(names, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

func beginning(words []string, typed string) []cobra.Completion {
	var found []cobra.Completion
	for _, w := range words {
		if strings.HasPrefix(w, typed) {
			found = append(found, w)
		}
	}
	return found
}

// namesOf returns the names of all objects of a kind, for completion. It omits names that can't be read.
func (a *app) namesOf(ctx context.Context, kind string) []string {
	switch kind {
	case "nodes":
		return namesIn(ctx, a.client().Nodes.List, nodeName)
	case "jobs":
		return namesIn(ctx, a.client().Jobs.List, jobName)
	case "instances":
		return namesIn(ctx, a.client().Instances.List, instanceID)
	case "drains":
		return namesIn(ctx, a.client().Drains.List, drainID)
	case "deployments":
		return namesIn(ctx, a.client().Deployments.List, deploymentID)
	case "services":
		return namesIn(ctx, a.client().Services.List, serviceName)
	case "budgets":
		return namesIn(ctx, a.client().Budgets.List, budgetName)
	case "classes":
		return namesIn(ctx, a.client().Classes.List, className)
	case "volumes":
		return namesIn(ctx, a.client().Volumes.List, volumeID)
	case "backups":
		return namesIn(ctx, a.client().Backups.List, backupID)
	case "transfers":
		return transferNames(ctx, a)
	case "members":
		return namesIn(ctx, a.client().Members.List, func(m api.Member) string { return m.Name })
	case "certificates":
		return namesIn(ctx, a.client().Certificates.List, certificateName)
	case "roles":
		return namesIn(ctx, a.client().Auth.Roles, roleName)
	case "access tokens":
		return namesIn(ctx, a.client().Auth.AccessTokens, accessName)
	case "tokens":
		return namesIn(ctx, a.client().Tokens.List, tokenID)
	case "newcomer agents":
		return a.newcomerNames(ctx, model.SubjectAgent)
	case "newcomer servers":
		return a.newcomerNames(ctx, model.SubjectServer)
	case "trusted agents":
		return a.trustedNames(ctx, model.SubjectAgent)
	case "trusted servers":
		return a.trustedNames(ctx, model.SubjectServer)
	case "logs": // everything that has logs: jobs, their groups and instances
		jobs, err := a.client().Jobs.List(ctx, client.ListOptions{})
		if err != nil {
			return nil
		}
		var all []string
		for _, j := range jobs.Items {
			all = append(all, jobName(j))
			for _, g := range j.Groups {
				all = append(all, jobName(j)+"/"+g.Name)
			}
		}
		return append(all, a.namesOf(ctx, "instances")...)
	case "any":
		var all []string
		for _, one := range [...]string{"jobs", "nodes", "instances", "drains", "deployments"} {
			all = append(all, a.namesOf(ctx, one)...)
		}
		return all
	}
	return nil
}

func namesIn[T, O any](ctx context.Context, list func(context.Context, O) (client.List[T], error),
	name func(T) string) []string {
	var all O
	got, err := list(ctx, all)
	if err != nil {
		return nil
	}
	return namesOf(got.Items, name)
}
