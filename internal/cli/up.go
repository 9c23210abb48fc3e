package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/local"
)

// upCommand is the command up of package local, with the calls to the new server.
func upCommand(a *app) *cobra.Command {
	return local.Up(&a.Console, local.UpCalls{Ready: serverReady, JoinSteps: joinSteps})
}

// serverReady waits until the server at a unix socket knows a leader. Its calls are repeated until ctx ends.
func serverReady(ctx context.Context, socket string) error {
	c, err := client.New(client.Config{Addresses: []string{"unix://" + socket}, RetryFor: readyRetry})
	if err != nil {
		return err
	}
	_, err = c.Cluster.Status(ctx, client.ReadOptions{})
	return err
}

// readyRetry is longer than any wait of local.Up, so that only its context ends the calls.
const readyRetry = 10 * time.Minute

// joinSteps returns the commands with which further machines join the cluster of this machine.
func joinSteps() []string {
	return []string{"outspan token create --role server", "outspan token create --role agent"}
}
