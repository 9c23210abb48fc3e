package httpapi_test

import (
	"context"
	"testing"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// The number of open streams is limited. When a reader closes its stream, another stream can be opened.
func TestStreamLimit(t *testing.T) {
	r := newRig(t)
	r.world()
	r.start("s2", httpapi.Limits{Streams: 1, RequestsPerSecond: 100_000})
	c := r.cli("s2")
	ctx, leave := context.WithCancel(t.Context())
	resp := must(c.Open(ctx, reach.Request{Path: "/v1/events"}))(t)
	_, err := c.Open(t.Context(), reach.Request{Path: "/v1/events"})
	wantCode(t, err, model.CodeBusy)
	leave()
	resp.Body.Close()
	eventually(t, "the place is free again", func() bool {
		next, err := c.Open(t.Context(), reach.Request{Path: "/v1/events", Query: values("follow=false")})
		if err == nil {
			next.Body.Close()
		}
		return err == nil
	})
}

// One caller may open only a quarter of the streams that a server allows.
func TestStreamsOfOneCaller(t *testing.T) {
	r := newRig(t)
	r.world()
	r.start("s2", httpapi.Limits{Streams: 8, RequestsPerSecond: 100_000})
	greedy, other := r.client(pki.RoleCLI, "greedy", "s2"), r.client(pki.RoleCLI, "other", "s2")
	open := func(c *transport.Client) error {
		resp, err := c.Open(t.Context(), reach.Request{Path: "/v1/events"})
		if err == nil {
			t.Cleanup(func() { resp.Body.Close() })
		}
		return err
	}
	for range 2 {
		must(0, open(greedy))(t)
	}
	wantCode(t, open(greedy), model.CodeBusy)
	must(0, open(other))(t)
}
