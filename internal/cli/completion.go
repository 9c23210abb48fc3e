package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
)

// completionTime bounds how long the shell waits for names. A cluster that does not answer completes nothing, and says
// nothing.
const completionTime = time.Second

func completionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "print a script that completes commands, flags and names in your shell", Args: exactly("SHELL"),
		ValidArgsFunction: completeWords("bash", "zsh", "fish"),
		Long: `Prints a completion script. Names of nodes, jobs, instances and drains are asked of the cluster as you type.

  bash:  source <(outspan completion bash)
  zsh:   outspan completion zsh > "${fpath[1]}/_outspan"
  fish:  outspan completion fish | source`,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			}
			return usage("there is no completion for %q", args[0]).WithHint("use bash, zsh or fish")
		},
	}
}

type completer = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// completeWords completes fixed words.
func completeWords(words ...string) completer {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return beginning(words, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// complete completes names of the cluster: the first kind for the first argument, the last for all that follow.
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

// namesOf lists what people call the objects of a kind. An error gives no names.
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
	case "logs": // what has logs: jobs, their groups, instances
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

func namesIn[T, O any](ctx context.Context, list func(context.Context, O) (client.List[T], error), name func(T) string) []string {
	var all O
	got, err := list(ctx, all)
	if err != nil {
		return nil
	}
	return namesOf(got.Items, name)
}
