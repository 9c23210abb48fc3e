package agent

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
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
	// Survey, Disk, Remove, List, MarkUsed and Abandon are for the deletion of images; see image.Store.
	image.Images
	List(ctx context.Context) (digests []string, err error)
	MarkUsed(ctx context.Context, used func(digest string) bool) error
	Abandon(ctx context.Context, wanted func(digest string) bool) error
	Close() error
}

// ContainerConfig says how an agent runs containers.
type ContainerConfig struct {
	Socket  string // of containerd
	Runtime string // the OCI runtime, a path or a name in this process's PATH; default runc
	// CertsDir and DockerConfig say how registries are reached; see image.Config.
	CertsDir, DockerConfig string
	PullTimeout            time.Duration // how long one pull may take; default 15 min
	// While the disk of the images is fuller than DiskHigh percent, images that nothing needs are deleted until it is not
	// fuller than DiskLow. A DiskHigh of 0 means that none is.
	DiskHigh, DiskLow int
	// Plugins and Subnet are those of bridge.Config.
	Plugins string
	Subnet  netip.Prefix
}

func (c *ContainerConfig) pullTimeout() time.Duration {
	if c == nil || c.PullTimeout == 0 {
		return 15 * time.Minute
	}
	return c.PullTimeout
}

func (c *ContainerConfig) marks() image.Marks {
	if c == nil {
		return image.Marks{}
	}
	return image.Marks{High: c.DiskHigh, Low: c.DiskLow}
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
	// cleaning has a token while images are deleted.
	cleaning chan struct{}
	pruned   lastPruning // of whoever has the token
}

// lastPruning is the answer to the last request to prune, for the same request if that answer was lost.
type lastPruning struct {
	request string // its name; "" if it has none
	done    image.Cleaned
}

func newNodeImages(images Images, c *ContainerConfig) *nodeImages {
	n := &nodeImages{Images: images, patience: c.pullTimeout(), cleaning: make(chan struct{}, 1)}
	n.forgot() // what an earlier agent has not released
	return n
}

const (
	cleanEvery        = time.Minute
	cleanLimit        = time.Minute // of one look at the disk of the images, with what is deleted then
	listLimit         = 4 * time.Second
	runtimeCheckEvery = 5 * time.Second
	runtimeFirst      = 2 * time.Second // of the first look, for which the agent's start waits
	networkEvery      = 5 * time.Second // pause between two looks at the rules of the firewall
	endingPatience    = 2 * time.Minute // how long a start waits for the removal of a network that has its ports
	runtimeAgain      = 2 * time.Second // pause of a start that needs a runtime that does not answer
	layerTimeout      = time.Minute     // of making or releasing one layer
	pullNews          = 5 * time.Second // pause between two reports of how much of an image was fetched
	unreportWait      = 2 * time.Second // for the servers to know that an image is not reported any more
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

// keepClean deletes images that nothing on the node needs while their disk is too full, and records which are in use,
// until ctx ends. It does nothing without a runtime.
func (a *Agent) keepClean(ctx context.Context) {
	n := a.shared.images
	if n == nil {
		return
	}
	const part = "images"
	told := ""
	for sleep(ctx, cleanEvery, nil) {
		timed, cancel := context.WithTimeout(ctx, cleanLimit)
		err := a.clean(timed)
		cancel()
		if ctx.Err() != nil {
			return
		}
		text := ""
		if err != nil && !runtimeDown(err) { // which is a problem of its own
			text = message(err)
		}
		if text != "" && told == "" {
			a.log.Warn("the images of this node are not as they should be; they are looked at again", "error", err)
		}
		a.setProblem(part, text)
		told = text
	}
}

// clean records which images are in use, takes those that are gone out of the reports, ends what is left of pulls that
// failed, and deletes some images if their disk is too full.
func (a *Agent) clean(ctx context.Context) error {
	n := a.shared.images
	if err := n.MarkUsed(ctx, func(digest string) bool { return a.imageUsers(digest) > 0 }); err != nil {
		return err
	}
	reported := a.puller.unneeded()
	here, err := n.List(ctx)
	if err != nil {
		return err
	}
	for _, digest := range reported {
		if !slices.Contains(here, digest) { // somebody has deleted it
			a.puller.free(digest, true)
		}
	}
	if err := n.Abandon(ctx, a.wantsImage); err != nil {
		return err
	}
	marks := a.cfg.Containers.marks()
	if marks.High == 0 {
		return nil
	}
	done, err := a.deleteImages(ctx, true, func() (image.Cleaned, error) {
		return image.Clean(ctx, n, marks, a.imageFreer(ctx))
	})
	if err == nil && len(done.Deleted) == 0 && done.Disk.Percent() > marks.High {
		err = model.Refuse(image.CodeNoDisk, "the disk of %s is %d%% full, and all images there are needed", done.Disk.Path,
			done.Disk.Percent()).WithHint("free space there")
	}
	return err
}

// deleteImages calls del once no other deletion runs, and logs what it deleted, if tell is set. Code: busy.
func (a *Agent) deleteImages(ctx context.Context, tell bool, del func() (image.Cleaned, error)) (image.Cleaned, error) {
	select {
	case a.shared.images.cleaning <- struct{}{}:
		defer func() { <-a.shared.images.cleaning }()
	case <-ctx.Done():
		return image.Cleaned{}, model.Refuse(model.CodeBusy, "node %s deletes images already", a.cfg.Name).
			WithHint("try again in a moment")
	}
	done, err := del()
	for _, h := range done.Deleted {
		if !tell {
			break
		}
		a.log.Info("deleted an image that nothing on this node needs", "image", h.Names, "digest", h.Digest,
			"last_used", h.Used)
	}
	return done, err
}

// imageUsers returns how many instances on this node run an image, or may be started with it. While an instance is here
// whose image is not known, every image has a user.
func (a *Agent) imageUsers(digest string) (users int) {
	for _, m := range a.supervisors.list() {
		spec := m.wanted().Spec
		if spec == nil || spec.Container != nil && spec.Container.ImageDigest() == digest {
			users++
		}
	}
	return users
}

// wantsImage reports whether something on this node needs an image or waits for it.
func (a *Agent) wantsImage(digest string) bool {
	return a.imageUsers(digest) > 0 || !a.puller.free(digest, false)
}

// imageFreer returns a function for one look at the images. It reports whether nothing on this node needs an image, and
// takes it out of the reports. The image can then be deleted. It first waits until the servers know that, so that they
// place nothing here for it. If they don't within 2 s, the image stays and is reported again, and in this look no other
// one is asked about that they know.
func (a *Agent) imageFreer(ctx context.Context) func(digest string) bool {
	silent := false
	return func(digest string) bool {
		free := func() bool { return a.imageUsers(digest) == 0 && a.puller.free(digest, true) }
		reported := slices.Contains(a.puller.unneeded(), digest)
		if reported && silent || !free() {
			return false
		}
		if reported && !a.shared.reports.awaitSelf(ctx, unreportWait) {
			silent = true
			a.puller.restore(digest)
			return false
		}
		return free() // they may have placed something meanwhile
	}
}

// serveImage resolves the image that the query names. Codes: invalid, no_container_runtime, image_unresolved,
// registry_unreachable.
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
		refusal := model.Refuse(model.CodeImageUnresolved, "%s", model.ClipText(bare(err), maxRegistryWords))
		if known, ok := errors.AsType[*model.Error](err); ok {
			refusal = refusal.WithHint("%s", known.Hint)
			if known.Code == image.CodeUnreachable {
				refusal.Code = known.Code
			}
		}
		writeProblem(w, refusal)
		return
	}
	writeJSON(w, transport.ResolvedImage{Digest: digest, Platforms: model.KeptPlatforms(platforms)})
}

// serveImages lists the images on this node, and those that are to be pulled. Code: runtime_down.
func (a *Agent) serveImages(w http.ResponseWriter, r *http.Request) {
	all := []transport.HeldImage{}
	if a.shared.images == nil {
		writeJSON(w, all)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), listLimit)
	defer cancel()
	found, err := a.shared.images.Survey(ctx)
	if err != nil {
		writeProblem(w, err)
		return
	}
	for _, h := range found.Images {
		all = append(all, a.held(h))
	}
	for _, k := range a.puller.awaited() {
		k.Instances = a.imageUsers(k.Digest)
		all = append(all, k)
	}
	writeJSON(w, all)
}

func (a *Agent) held(h image.Held) transport.HeldImage {
	return transport.HeldImage{Digest: h.Digest, Names: h.Names, State: model.ImagePresent, Bytes: h.Bytes(),
		Instances: a.imageUsers(h.Digest), Used: h.Used}
}

// servePrune deletes the images that nothing on this node needs, and parts of such images, or with dry_run=true says
// which images. It goes on if the caller is gone, and answers the same request again as before: whoever lost the answer
// asks again. If an error ends it early, the answer says what is deleted by then. Codes: no_container_runtime,
// runtime_down, busy.
func (a *Agent) servePrune(w http.ResponseWriter, r *http.Request) {
	n := a.shared.images
	if n == nil {
		writeProblem(w, model.Refuse(model.CodeNoRuntime, "node %s has no container runtime", a.cfg.Name))
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), transport.PruneWait)
	defer cancel()
	request, dry := r.URL.Query().Get("request_id"), r.URL.Query().Get("dry_run") == "true"
	free := a.imageFreer(ctx)
	if dry {
		free = func(digest string) bool { return !a.wantsImage(digest) }
	}
	done, err := a.deleteImages(ctx, !dry, func() (image.Cleaned, error) {
		if dry {
			return image.Prune(ctx, n, dry, free)
		}
		if request != "" && n.pruned.request == request {
			return n.pruned.done, nil
		}
		if err := n.Abandon(ctx, a.wantsImage); err != nil {
			return image.Cleaned{}, err
		}
		done, err := image.Prune(ctx, n, dry, free)
		if len(done.Deleted) > 0 {
			n.pruned = lastPruning{request, done}
		}
		return done, err
	})
	if err != nil && len(done.Deleted) == 0 {
		writeProblem(w, err)
		return
	}
	if err != nil {
		a.log.Warn("not all images that nothing needs could be deleted", "error", err)
	}
	answer := transport.PrunedImages{Images: []transport.HeldImage{}, Bytes: done.Bytes, More: done.More}
	for _, h := range done.Deleted {
		answer.Images = append(answer.Images, a.held(h))
	}
	writeJSON(w, answer)
}
