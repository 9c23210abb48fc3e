package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// upCommand is the command up of package local, with the calls to the new server.
func upCommand(a *app) *cobra.Command { return local.Up(&a.Console, a.setupCalls()) }

// joinCommand is the command join of package local, with the calls to this machine's server.
func joinCommand(a *app) *cobra.Command { return local.Join(&a.Console, a.program, a.setupCalls()) }

func (a *app) setupCalls() local.SetupCalls {
	return local.SetupCalls{Ready: serverReady, JoinSteps: a.joinSteps}
}

// setupRetry is longer than any wait of package local, so that only its context ends the calls.
const setupRetry = 10 * time.Minute

func atSocket(socket string) (*client.Client, error) {
	return client.New(client.Config{Addresses: []string{"unix://" + socket}, RetryFor: setupRetry})
}

// serverReady waits until the server at a unix socket knows a leader. Its calls are repeated until ctx ends.
func serverReady(ctx context.Context, socket string) error {
	c, err := atSocket(socket)
	if err != nil {
		return err
	}
	_, err = c.Cluster.Status(ctx, client.ReadOptions{})
	return err
}

// firstTokens are the tokens that up makes. The server's are enough to go from one server to three.
var firstTokens = []struct {
	role pki.Role
	ttl  model.Duration
	uses int
}{
	{pki.RoleServer, model.Hour, 2},
	{pki.RoleAgent, 24 * model.Hour, 20},
}

// tokenWait limits how long joinSteps waits for tokens.
const tokenWait = 30 * time.Second

// joinSteps is local.SetupCalls.JoinSteps. If the tokens can't be made, it returns the commands that make them, and
// says why.
func (a *app) joinSteps(ctx context.Context, socket, address string) (steps []string) {
	if socket != "" {
		ctx, cancel := context.WithTimeout(ctx, tokenWait)
		defer cancel()
		for _, one := range firstTokens {
			text, err := newToken(ctx, socket, api.TokenBody{Role: string(one.role), TTL: &one.ttl, Uses: &one.uses})
			if err != nil {
				a.Note("warning: no join token was made: %s", model.Reason(err))
				break
			}
			// echo is a part of the shell, so ps does not show the token.
			steps = append(steps, fmt.Sprintf("echo %s | %s", text, joinLine(string(one.role), []string{address})))
		}
	}
	for _, one := range firstTokens[len(steps):] {
		steps = append(steps, "outspan token create --role "+string(one.role))
	}
	return steps
}

// newToken makes a token, and returns its text. A new cluster makes none before its CA is in the state, so newToken
// tries again until ctx ends.
func newToken(ctx context.Context, socket string, body api.TokenBody) (string, error) {
	c, err := atSocket(socket)
	if err != nil {
		return "", err
	}
	for {
		got, err := c.Tokens.Create(ctx, body, client.WriteOptions{})
		var refusal *model.Error
		switch {
		case err == nil:
			return got.Value.Text, nil
		case !errors.As(err, &refusal) || refusal.Code != model.CodeNotSupported:
			return "", err
		case !wait(ctx, 200*time.Millisecond):
			return "", err
		}
	}
}
