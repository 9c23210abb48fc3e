package client_test

import (
	"context"

	"github.com/outspan/outspan/client"
)

// callPage opens the page's stream, and ends when it breaks.
func callPage(ctx context.Context, c *client.Client) (any, error) {
	ended, end := context.WithCancel(ctx)
	o := client.PageOptions{Job: "x", Node: "x", Bare: true, Broken: func(error) { end() }}
	for range c.Page.Follow(ended, o) {
	}
	return nil, nil
}
