package main

import (
	"os"

	"github.com/spf13/cobra"
)

func agentRun(a *app) *cobra.Command {
	return runVerb("agent", "run an agent",
		"Runs the agent of a node until SIGTERM or SIGINT. Then it leaves the work running, and takes it up again at its next start, or drains the node first (on_shutdown = \"drain\"). SIGHUP reloads log level, TLS, limits and labels.",
		runAgent)
}

func agentStatus(a *app) *cobra.Command {
	cmd := nodeStatus(a)
	cmd.Use, cmd.Short, cmd.Args = "status [NODE]", "show the node of this machine's agent, or of another", between(0, 1)
	cmd.Long = "Without NODE: the node that has the name of this machine."
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return a.showNode(cmd.Context(), args[0])
		}
		name, err := os.Hostname() // what an agent is called unless its file says otherwise
		if err != nil {
			return usage("this machine has no name: %v", err).WithHint("name the node: outspan agent status NODE")
		}
		return a.showNode(cmd.Context(), name)
	}
	return cmd
}
