package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/outspan/outspan/api"
)

// Images are the operations on images of containers on nodes.
type Images struct{ calls }

// ImageListOptions are the options of a list of images.
type ImageListOptions struct {
	Node string // if set, only images on this node
}

// List returns the images of all nodes, or of one. Any server answers, by asking the agents. It takes some seconds if
// an agent does not answer. Codes: not_found, ambiguous, busy.
func (i Images) List(ctx context.Context, o ImageListOptions) (Response[api.Images], error) {
	q := url.Values{}
	set(q, "node", o.Node)
	return read[api.Images](ctx, i.calls, route("images"), q)
}

// Prune deletes the images on a node that nothing there needs now. With o.DryRun it only says which. It takes up to
// half a minute. Codes: not_found, agent_unreachable, no_container_runtime, runtime_down, busy.
func (i Images) Prune(ctx context.Context, node string, o WriteOptions) (Response[api.PrunedImages], error) {
	return write[api.PrunedImages](ctx, i.calls, http.MethodPost, route("nodes", node, "images", "prune"), o.query(), nil)
}
