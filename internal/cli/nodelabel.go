package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func nodeLabel(a *app) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: "label NODE KEY=VALUE... KEY-...", Short: "set labels of a node, or remove them", Args: term.AtLeast(2),
		ValidArgsFunction: a.complete("nodes"),
		Example:           "outspan node label n7 rack=r2 disk=ssd\noutspan node label n7 disk-",
		Long: "Sets labels of a node, or removes them. They win over those of the agent's configuration. An agent can't " +
			"set labels that begin with \"operator.\":\nuse these in constraints that must not depend on what a machine " +
			"says of itself.",
		RunE: func(cmd *cobra.Command, args []string) error {
			labels := map[string]string{}
			for _, arg := range args[1:] {
				key, value, ok := strings.Cut(arg, "=")
				bare, remove := strings.CutSuffix(arg, "-")
				switch {
				case ok && key != "" && value != "":
					labels[key] = value
				case ok && key != "":
					return term.Usage("label %s has no value", key).WithHint("to remove it write: %s-", key)
				case remove && bare != "":
					labels[bare] = ""
				default:
					return term.Usage("%q is neither KEY=VALUE nor KEY-", arg).
						WithHint("write: outspan node label %s rack=r1; to remove a label: rack-", args[0])
				}
			}
			return a.eachNode(cmd.Context(), "label", "has new labels", args[:1],
				func(ctx context.Context, ref string, o client.WriteOptions) (client.Response[api.NodeReply], error) {
					return a.client().Nodes.Label(ctx, ref, api.LabelBody{Labels: labels}, o)
				}, &write, &waitFlags{})
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}

// parseLabels parses a selector in the form k=v,k=v. Keys and values must not be empty.
func parseLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		k, v, ok := strings.Cut(part, "=")
		if !ok || k == "" || v == "" {
			return nil, model.Refuse(model.CodeInvalid, "selector %q is not k=v", part).
				WithHint("for example: --selector rack=r1,disk=ssd")
		}
		labels[k] = v
	}
	return labels, nil
}
