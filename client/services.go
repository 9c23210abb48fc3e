package client

import (
	"context"
	"iter"

	"github.com/outspan/outspan/api"
)

// Services are the operations on services. A service is a name under which the instances of a group can be reached.
type Services struct{ calls }

// List returns the services. It reads all pages.
func (s Services) List(ctx context.Context, o ListOptions) (List[api.Service], error) {
	return list[api.Service](ctx, s.calls, route("services"), o.query())
}

// All yields the services and reads each page when it is needed. If a read fails, All yields the error and stops.
func (s Services) All(ctx context.Context, o ListOptions) iter.Seq2[api.Service, error] {
	return each[api.Service](ctx, s.calls, route("services"), o.query())
}

// Get returns one service with its backends. ref is the whole name of the service. Code: not_found.
func (s Services) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.Service], error) {
	return read[api.Service](ctx, s.calls, route("services", ref), o.query())
}

// PrometheusTargets lists every port of every ready instance, in the format of Prometheus' http_sd_configs.
func (s Services) PrometheusTargets(ctx context.Context) (Response[[]api.ScrapeTarget], error) {
	return read[[]api.ScrapeTarget](ctx, s.calls, route("sd", "prometheus"), nil)
}
