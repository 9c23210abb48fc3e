package client_test

import (
	"context"
	"time"

	"github.com/outspan/outspan/client"
)

// callSeries reads series with all parameters.
func callSeries(ctx context.Context, c *client.Client) (any, error) {
	return c.Series.Read(ctx, client.SeriesOptions{Names: []string{"x", "y"}, Job: "x", Node: "x", From: "6h", To: "1h",
		Step: time.Minute, Server: "x"})
}
