package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/outspan/outspan/api"
)

// Deployments are the operations on deployments, which bring jobs from one version to the next. A deployment is named
// by its id or, in reads, a unique prefix.
type Deployments struct{ calls }

// DeploymentListOptions select deployments.
type DeploymentListOptions struct {
	ListOptions
	Job string // only deployments of this job; "" means all
}

func (o DeploymentListOptions) query() url.Values {
	q := o.ListOptions.query()
	set(q, "job", o.Job)
	return q
}

// List returns the deployments. It reads all pages.
func (d Deployments) List(ctx context.Context, o DeploymentListOptions) (List[api.Deployment], error) {
	return list[api.Deployment](ctx, d.calls, route("deployments"), o.query())
}

// All yields the deployments and reads each page when it is needed. If a read fails, All yields the error and stops.
func (d Deployments) All(ctx context.Context, o DeploymentListOptions) iter.Seq2[api.Deployment, error] {
	return each[api.Deployment](ctx, d.calls, route("deployments"), o.query())
}

// Get returns one deployment. Codes: not_found, ambiguous.
func (d Deployments) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.Deployment], error) {
	return read[api.Deployment](ctx, d.calls, route("deployments", ref), o.query())
}

// Promote accepts the canaries of a deployment, so that the rollout continues. Code: conflict if the deployment has
// ended or has no canaries that wait to be promoted.
func (d Deployments) Promote(ctx context.Context, ref string, o WriteOptions) (Response[api.DeploymentReply], error) {
	return write[api.DeploymentReply](ctx, d.calls, http.MethodPost, route("deployments", ref, "promote"), o.query(), nil)
}

// Fail sets a deployment to failed. If a group of the job has auto_revert, the job returns to the last version that
// completed its rollout. Code: conflict if the deployment has ended.
func (d Deployments) Fail(
	ctx context.Context, ref string, body api.FailBody, o WriteOptions,
) (Response[api.DeploymentReply], error) {
	return write[api.DeploymentReply](ctx, d.calls, http.MethodPost, route("deployments", ref, "fail"), o.query(), body)
}
