package cli

import (
	"context"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func agentRun(a *app) *cobra.Command {
	return runVerb("agent", "run an agent",
		"Runs the agent of a node until SIGTERM or SIGINT. Then it leaves the work running, and takes it up again at its "+
			"next start, or drains the node first (on_shutdown = \"drain\"). SIGHUP reloads log level, TLS, limits and labels.",
		a.program.RunAgent)
}

func agentStatus(a *app) *cobra.Command {
	cmd := nodeStatus(a)
	cmd.Use, cmd.Short, cmd.Args = "status [NODE]", "show the node of this machine's agent, or of another",
		term.Between(0, 1)
	cmd.Long, cmd.Example = "Without NODE: the node of this machine.",
		"outspan agent status\noutspan agent status n7 --wait --timeout 60s"
	show := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return show(cmd, args)
		}
		name, err := a.nodeHere(cmd.Context())
		if err != nil {
			return err
		}
		return show(cmd, []string{name})
	}
	return cmd
}

// nodeHere returns the name of the node on this machine: the node that has the host name as its name, or else the only
// node whose agent reports this host name. It returns an error if there is no such node, or if there are several.
func (a *app) nodeHere(ctx context.Context) (string, error) {
	host, err := os.Hostname() // a node has its host's name by default
	if err != nil {
		return "", term.Usage("this machine has no name: %v", err).WithHint("name the node: outspan agent status NODE")
	}
	got, err := a.client().Nodes.List(ctx, client.ListOptions{})
	if err != nil {
		return "", err
	}
	var here []string
	for _, n := range got.Items {
		if n.Name == host {
			return host, nil
		}
		if n.Attributes["hostname"] == host {
			here = append(here, n.Name)
		}
	}
	slices.Sort(here)
	switch len(here) {
	case 0:
		return "", model.Refuse(model.CodeNotFound, "no node runs on this machine, %s", host).
			WithHint("name the node: outspan agent status NODE; list them with: outspan node ls")
	case 1:
		return here[0], nil
	}
	return "", model.Refuse(model.CodeAmbiguous, "%d nodes run on this machine: %s", len(here), term.Joined(here)).
		WithHint("name one: outspan agent status %s", here[0])
}
