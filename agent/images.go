package agent

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Images is the container runtime of this machine, as far as the agent asks it about images. Its methods may be called
// from any goroutine.
type Images interface {
	// Resolve asks the image's registry for the digest of the image's index, and for its platforms ("linux/amd64"). It
	// uses the mirrors and credentials of this machine, and blocks until ctx ends at the latest. An error has the
	// registry's words and no credentials.
	Resolve(ctx context.Context, image string) (digest string, platforms []string, err error)
	// Runtime returns the state of the runtime. It blocks until ctx ends at the latest.
	Runtime(ctx context.Context) model.ContainerRuntime
}

const (
	runtimeCheckEvery = 5 * time.Second
	runtimeFirst      = 2 * time.Second // of the first look, for which the agent's start waits
	maxRegistryWords  = 512             // bytes of a registry's words in an error
)

// keepRuntime reports the state of the container runtime until ctx ends. It does nothing without a runtime.
func (a *Agent) keepRuntime(ctx context.Context) {
	if a.cfg.Images == nil {
		return
	}
	for sleep(ctx, runtimeCheckEvery, nil) {
		a.lookAtRuntime(ctx, runtimeCheckEvery)
	}
}

// lookAtRuntime asks the container runtime for its state, for the reports. It takes at most about limit. It must be
// called once before the first report, because a report without a runtime says that the node has none.
func (a *Agent) lookAtRuntime(ctx context.Context, limit time.Duration) {
	if a.cfg.Images == nil {
		return
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	now := a.cfg.Images.Runtime(timed)
	if ctx.Err() != nil {
		return // the agent stops, so the answer says nothing about the runtime
	}
	a.setProblem("container runtime", now.Down)
	a.shared.reports.setRuntime(&now)
}

// serveImage resolves the image that the query names. Codes: invalid, no_container_runtime, image_unresolved.
func (a *Agent) serveImage(w http.ResponseWriter, r *http.Request) {
	spec := model.ContainerSpec{Image: r.URL.Query().Get("name")}
	if refusal := spec.CheckImage(); refusal != nil {
		writeProblem(w, refusal)
		return
	}
	if a.cfg.Images == nil {
		writeProblem(w, model.Refuse(model.CodeNoRuntime, "node %s has no container runtime", a.cfg.Name))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), transport.ResolveWait)
	defer cancel()
	digest, platforms, err := a.cfg.Images.Resolve(ctx, spec.Image)
	if err == nil && !model.ValidDigest(digest) {
		err = errors.New("the registry named no digest")
	}
	if err != nil {
		writeProblem(w, model.Refuse(model.CodeImageUnresolved, "%s", model.ClipText(err.Error(), maxRegistryWords)))
		return
	}
	writeJSON(w, transport.ResolvedImage{Digest: digest, Platforms: model.KeptPlatforms(platforms)})
}
