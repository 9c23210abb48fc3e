package agent

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Images is the container runtime of this machine, as far as the agent asks it about images and root file systems. Its
// methods may be called from any goroutine, and block until ctx ends at the latest. While the runtime does not answer,
// they return runtime_down.
type Images interface {
	// Resolve asks the image's registry for the digest of the image's index, and for its platforms ("linux/amd64"). It
	// uses the mirrors and credentials of this machine. An error has the registry's words and no credentials.
	Resolve(ctx context.Context, image string) (digest string, platforms []string, err error)
	// Runtime returns the state of the runtime.
	Runtime(ctx context.Context) model.ContainerRuntime
	// Pull fetches an image by its digest, unless this machine has it; see image.Store.Pull.
	Pull(ctx context.Context, image string, progress func(bytes int64)) error
	// Defaults returns what an image that was pulled says about its program.
	Defaults(ctx context.Context, digest string) (image.Defaults, error)
	// Mounts returns the root file system of an instance, with a layer that it may write to. The layer stays until
	// Release. Layers lists the instances that have one.
	Mounts(ctx context.Context, id, digest string) ([]image.Mount, error)
	Layers(ctx context.Context) (ids []string, err error)
	Release(ctx context.Context, id string) error
	Close() error
}

// ContainerConfig says how an agent runs containers.
type ContainerConfig struct {
	Socket  string // of containerd
	Runtime string // the OCI runtime, a path or a name in this process's PATH; default runc
	// CertsDir and DockerConfig say how registries are reached; see image.Config.
	CertsDir, DockerConfig string
	PullTimeout            time.Duration // how long one pull may take; default 15 min
}

func (c *ContainerConfig) pullTimeout() time.Duration {
	if c == nil || c.PullTimeout == 0 {
		return 15 * time.Minute
	}
	return c.PullTimeout
}

// containerd is Images by an image.Store.
type containerd struct{ *image.Store }

// openContainerd returns the images of a node in containerd. The namespace has the id of the node, so that nothing of
// another agent, or of another user of this containerd, is touched.
func (c ContainerConfig) openContainerd(node model.NodeID) (Images, error) {
	s, err := image.Open(image.Config{Socket: c.Socket, Namespace: "outspan-" + string(node), CertsDir: c.CertsDir,
		DockerConfig: c.DockerConfig})
	if err != nil {
		return nil, err
	}
	return containerd{s}, nil
}

func (c containerd) Resolve(ctx context.Context, name string) (digest string, platforms []string, err error) {
	found, err := c.Store.Resolve(ctx, name)
	return found.Digest, found.Platforms, err
}

func (c containerd) Runtime(ctx context.Context) model.ContainerRuntime {
	version, err := c.Check(ctx)
	if err != nil {
		return model.ContainerRuntime{Down: message(err)}
	}
	return model.ContainerRuntime{Version: "containerd " + version}
}

// nodeImages are the images of this node and the layers of its instances.
type nodeImages struct {
	Images
	patience time.Duration // how long one pull may take
	// layers is held while a layer is made or released. So no instance gets a layer that is just being released.
	layers sync.Mutex
	litter atomic.Bool // an instance that may have a layer was forgotten
}

const (
	runtimeCheckEvery = 5 * time.Second
	runtimeFirst      = 2 * time.Second // of the first look, for which the agent's start waits
	runtimeAgain      = 2 * time.Second // pause of a start that needs a runtime that does not answer
	layerTimeout      = time.Minute     // of making or releasing one layer
	pullNews          = 5 * time.Second // pause between two reports of how much of an image was fetched
	maxRegistryWords  = 512             // bytes of a registry's words in an error
)

// forgot records that an instance was forgotten, so that its layer is released. It works on nil.
func (n *nodeImages) forgot() {
	if n != nil {
		n.litter.Store(true)
	}
}

// root returns the image's defaults and the mounts of an instance's root file system.
func (n *nodeImages) root(ctx context.Context, id model.InstanceID, digest string) (image.Defaults, []image.Mount,
	error) {
	ctx, cancel := context.WithTimeout(ctx, layerTimeout)
	defer cancel()
	defaults, err := n.Defaults(ctx, digest)
	if err != nil {
		return defaults, nil, err
	}
	n.layers.Lock()
	defer n.layers.Unlock()
	mounts, err := n.Mounts(ctx, string(id), digest)
	return defaults, mounts, err
}

// release releases the layers of all instances for which known returns false. After an error it is tried again.
func (n *nodeImages) release(ctx context.Context, known func(model.InstanceID) bool) error {
	if !n.litter.Swap(false) {
		return nil
	}
	ids, err := n.Layers(ctx)
	for _, id := range ids {
		err = errors.Join(err, n.releaseOne(ctx, model.InstanceID(id), known))
	}
	if err != nil {
		n.litter.Store(true)
	}
	return err
}

func (n *nodeImages) releaseOne(ctx context.Context, id model.InstanceID, known func(model.InstanceID) bool) error {
	n.layers.Lock()
	defer n.layers.Unlock()
	if known(id) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, layerTimeout)
	defer cancel()
	return n.Release(ctx, string(id))
}

// keepRuntime reports the state of the container runtime, and releases the layers of forgotten instances, until ctx
// ends. It does nothing without a runtime.
func (a *Agent) keepRuntime(ctx context.Context) {
	if a.shared.images == nil {
		return
	}
	for sleep(ctx, runtimeCheckEvery, nil) {
		if !a.lookAtRuntime(ctx, runtimeCheckEvery) {
			continue
		}
		known := func(id model.InstanceID) bool { return a.supervisors.member(id) != nil }
		if err := a.shared.images.release(ctx, known); err != nil && ctx.Err() == nil {
			a.log.Warn("file systems of containers that are gone remain for now", "error", err)
		}
	}
}

// lookAtRuntime asks the container runtime for its state, for the reports, and returns whether it answers. It takes at
// most about limit. It must be called once before the first report, because a report without a runtime says that the
// node has none.
func (a *Agent) lookAtRuntime(ctx context.Context, limit time.Duration) (up bool) {
	if a.shared.images == nil {
		return false
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	now := a.shared.images.Runtime(timed)
	if ctx.Err() != nil {
		return false // the agent stops, so the answer says nothing about the runtime
	}
	if why := a.cfg.Runtime.Capabilities().NoContainers; why != "" && now.Down == "" {
		now.Down = "the node can't run containers: " + why
	}
	a.setProblem("container runtime", now.Down)
	turned := a.shared.reports.setRuntime(&now)
	switch {
	case turned && now.Down != "":
		a.log.Warn("the container runtime does not answer; containers that run go on", "error", now.Down)
	case turned:
		a.log.Info("the container runtime answers again", "version", now.Version)
	}
	return now.Down == ""
}

// holdImage pulls the image of a container, and returns true once this node has it. It returns false if something else
// is wanted by then, if ctx ends, or if the pull fails, which counts as a failed start. While it pulls, the reason of
// the instance says how much was fetched.
func (i *instance) holdImage(ctx context.Context, want transport.Assignment) bool {
	n := i.shared.images
	if want.Spec.Container == nil || n == nil {
		return true // launch refuses a container without a runtime
	}
	name := want.Spec.Container.Image
	timed, cancel := context.WithTimeout(ctx, n.patience)
	defer cancel()
	var fetched atomic.Int64
	pulled := make(chan error, 1)
	go func() { pulled <- n.Pull(timed, name, fetched.Store) }()
	news := time.NewTicker(pullNews)
	defer news.Stop()
	for changed := false; ; {
		select {
		case err := <-pulled:
			return i.pulled(ctx, err) && !changed
		case <-news.C:
			i.observe(i.down(), "pulling "+want.Spec.Container.ImageName()+": "+model.SizeText(fetched.Load())+" so far",
				i.entry.Status.ExitCode)
		case <-i.changed:
			changed = true
			now := i.wanted()
			if now.Desired != model.DesiredRunning || now.Spec.Container == nil || now.Spec.Container.Image != name {
				cancel()
				<-pulled //nolint:errcheck // it was canceled
				return false
			}
		}
	}
}

// pulled handles the end of a pull, and returns whether the node has the image.
func (i *instance) pulled(ctx context.Context, err error) bool {
	switch {
	case err == nil || ctx.Err() != nil:
	case runtimeDown(err):
		i.awaitRuntime(ctx, err)
	default:
		i.failed(failure{code: string(model.CodeImagePull), detail: message(err), final: hopeless(err)})
	}
	return err == nil
}

// awaitRuntime waits a moment for a runtime that does not answer. That is no failure of the instance, so it is not
// counted.
func (i *instance) awaitRuntime(ctx context.Context, why error) {
	i.observe(i.down(), string(model.CodeRuntimeDown)+": "+message(why), i.entry.Status.ExitCode)
	i.wait(ctx, runtimeAgain)
}

func runtimeDown(err error) bool { return errors.Is(err, &model.Error{Code: model.CodeRuntimeDown}) }

// serveImage resolves the image that the query names. Codes: invalid, no_container_runtime, image_unresolved.
func (a *Agent) serveImage(w http.ResponseWriter, r *http.Request) {
	spec := model.ContainerSpec{Image: r.URL.Query().Get("name")}
	if refusal := spec.CheckImage(); refusal != nil {
		writeProblem(w, refusal)
		return
	}
	if a.shared.images == nil {
		writeProblem(w, model.Refuse(model.CodeNoRuntime, "node %s has no container runtime", a.cfg.Name))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), transport.ResolveWait)
	defer cancel()
	digest, platforms, err := a.shared.images.Resolve(ctx, spec.Image)
	if err == nil && !model.ValidDigest(digest) {
		err = errors.New("the registry named no digest")
	}
	if err != nil {
		writeProblem(w, model.Refuse(model.CodeImageUnresolved, "%s", model.ClipText(bare(err), maxRegistryWords)))
		return
	}
	writeJSON(w, transport.ResolvedImage{Digest: digest, Platforms: model.KeptPlatforms(platforms)})
}
