package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/reach"
)

// Cluster has the operations on the cluster as a whole, and the operations that the answering server carries out alone.
type Cluster struct{ calls }

// Status returns an overview of the cluster.
func (c Cluster) Status(ctx context.Context, o ReadOptions) (Response[api.Status], error) {
	return read[api.Status](ctx, c.calls, route("status"), o.query())
}

// Why explains the state of an object. subject is an id, a name or a unique prefix. It may include the kind of the
// object: node/n1 or group/web/http. Codes: not_found, ambiguous.
func (c Cluster) Why(ctx context.Context, subject string, o ReadOptions) (Response[api.Why], error) {
	query := o.query()
	query.Set("subject", subject)
	return read[api.Why](ctx, c.calls, route("why"), query)
}

// Alive checks that at least one server answers.
func (c Cluster) Alive(ctx context.Context) (Response[api.Health], error) {
	return read[api.Health](ctx, c.calls, "/healthz", nil)
}

// Ready checks that at least one server of the client's addresses has caught up and knows a leader. If leader is true,
// that server must also be the leader. Codes: no_leader, not_caught_up.
func (c Cluster) Ready(ctx context.Context, leader bool) (Response[api.Health], error) {
	query := url.Values{}
	if leader {
		query.Set("leader", "1")
	}
	return read[api.Health](ctx, c.calls, "/readyz", query)
}

// Metrics returns the metrics of the answering server, in the text format of Prometheus.
func (c Cluster) Metrics(ctx context.Context) ([]byte, error) {
	answer, err := c.caller.Send(ctx, reach.Request{Path: "/metrics"})
	return answer.Body, err
}

// OpenAPI returns the OpenAPI document of the API, as JSON.
func (c Cluster) OpenAPI(ctx context.Context) ([]byte, error) {
	answer, err := c.caller.Send(ctx, reach.Request{Path: "/openapi.json"})
	return answer.Body, err
}

// ForecastRebalance returns what Rebalance would do now.
func (c Cluster) ForecastRebalance(ctx context.Context, o ReadOptions) (Response[api.MoveList], error) {
	return read[api.MoveList](ctx, c.calls, route("rebalance"), o.query())
}

// Rebalance starts one round of moving instances to nodes where they fit better. Code: actuation_paused.
func (c Cluster) Rebalance(ctx context.Context, o WriteOptions) (Response[api.MovesReply], error) {
	return write[api.MovesReply](ctx, c.calls, http.MethodPost, route("rebalance"), o.query(), nil)
}

// UnknownInstances lists instances that run although the servers don't know them, for example after a restore. The
// answering server asks every agent.
func (c Cluster) UnknownInstances(ctx context.Context) (Response[api.UnknownInstances], error) {
	return read[api.UnknownInstances](ctx, c.calls, route("unknown-instances"), nil)
}
