package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/bridge"
	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	pullsAtOnce = 2                // pulls that run at a time; the others wait
	pullAgain   = 30 * time.Second // pause before a failed pull is tried again
)

// puller pulls the images that the servers ask for with the assignments, and reports how far each is. It gives up pulls
// that are not asked for any more. Its methods may be called from any goroutine, and on nil.
type puller struct {
	images *nodeImages
	tell   func([]model.NodeImage)
	log    hclog.Logger
	turns  chan struct{} // has an element for each pull that runs

	mu     sync.Mutex
	known  []*knownImage // the oldest first
	asked  bool          // the servers have said which images they want
	ctx    context.Context
	active sync.WaitGroup
}

// knownImage is an image that was asked for. cancel ends its pull.
type knownImage struct {
	model.NodeImage
	name   string // without the digest
	wanted bool
	cancel context.CancelFunc
}

// newPuller returns a puller that does nothing before begin. images may be nil, for a node without a container runtime.
func newPuller(images *nodeImages, tell func([]model.NodeImage), log hclog.Logger) *puller {
	if images == nil {
		return nil
	}
	return &puller{images: images, tell: tell, log: log, turns: make(chan struct{}, pullsAtOnce)}
}

// begin lets pulls run until ctx ends.
func (p *puller) begin(ctx context.Context) {
	if p != nil {
		p.mu.Lock()
		p.ctx = ctx
		p.mu.Unlock()
	}
}

// run blocks until ctx, which begin has got too, ends and all pulls have ended.
func (p *puller) run(ctx context.Context) {
	if p == nil {
		return
	}
	<-ctx.Done()
	p.mu.Lock()
	p.ctx = nil // no pull begins from now on
	p.mu.Unlock()
	p.active.Wait()
}

// want begins the pulls of images that are new in the list, each as NAME@DIGEST, and ends those of images that are not
// in it. It does not block.
func (p *puller) want(names []string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil {
		return
	}
	p.asked = true
	for _, k := range p.known {
		k.wanted = false
	}
	news := false
	for _, name := range names {
		short, digest, _ := strings.Cut(name, "@")
		i := slices.IndexFunc(p.known, func(k *knownImage) bool { return k.Digest == digest })
		if i >= 0 {
			p.known[i].wanted = true
			continue
		}
		ctx, cancel := context.WithCancel(p.ctx)
		k := &knownImage{NodeImage: model.NodeImage{Digest: digest, State: model.ImageQueued}, name: short,
			wanted: true, cancel: cancel}
		p.known, news = append(p.known, k), true
		turn := p.tryTurn(k)
		p.active.Go(func() {
			defer cancel()
			p.pull(ctx, name, k, turn)
		})
	}
	before := len(p.known)
	for i, k := range slices.Backward(p.known) {
		if !k.wanted && (k.State != model.ImagePresent || before-i > model.MaxImages) {
			k.cancel()
			p.known = slices.Delete(p.known, i, i+1)
		}
	}
	if news || len(p.known) != before {
		p.tell(p.list())
	}
}

// free reports whether the servers want an image no more, and no pull of it runs. With forget, it is not reported any
// more. Before the servers have said what they want, nothing is free.
func (p *puller) free(digest string, forget bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked {
		return false
	}
	i := slices.IndexFunc(p.known, func(k *knownImage) bool { return k.Digest == digest })
	switch {
	case i < 0:
		return true
	case p.known[i].wanted || p.known[i].State != model.ImagePresent:
		return false
	}
	if forget {
		p.known = slices.Delete(p.known, i, i+1)
		p.tell(p.list())
	}
	return true
}

// restore reports an image again that free took out of the reports and that stays.
func (p *puller) restore(digest string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.ContainsFunc(p.known, func(k *knownImage) bool { return k.Digest == digest }) {
		return // the servers want it again
	}
	p.known = append(p.known, &knownImage{NodeImage: model.NodeImage{Digest: digest, State: model.ImagePresent},
		cancel: func() {}})
	p.tell(p.list())
}

// awaited lists the images that the servers want and that are not here yet.
func (p *puller) awaited() (list []transport.HeldImage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.known {
		if k.State != model.ImagePresent {
			list = append(list, transport.HeldImage{Digest: k.Digest, Names: []string{k.name}, State: k.State, Bytes: k.Bytes,
				Words: k.Words})
		}
	}
	return list
}

// unneeded returns the images that are reported as present and that the servers don't want now.
func (p *puller) unneeded() (digests []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.known {
		if !k.wanted && k.State == model.ImagePresent {
			digests = append(digests, k.Digest)
		}
	}
	return digests
}

// list returns what to report. The images that are asked for come first, because the servers keep a limited number.
func (p *puller) list() []model.NodeImage {
	sorted := slices.Clone(p.known)
	slices.SortStableFunc(sorted, func(a, b *knownImage) int {
		rank := map[bool]int{true: -1}
		return cmp.Compare(rank[a.wanted], rank[b.wanted])
	})
	var list []model.NodeImage
	for _, k := range sorted[:min(len(sorted), model.MaxImages)] {
		list = append(list, k.NodeImage)
	}
	return list
}

// set records and reports how far an image is, unless it is not asked for any more.
func (p *puller) set(k *knownImage, change func(*model.NodeImage)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := k.NodeImage
	if change(&k.NodeImage); k.NodeImage != before && slices.Contains(p.known, k) {
		p.tell(p.list())
	}
}

// tryTurn begins a pull if fewer than pullsAtOnce run. Otherwise the image is queued.
func (p *puller) tryTurn(k *knownImage) bool {
	select {
	case p.turns <- struct{}{}:
		k.State, k.Words, k.Missing = model.ImagePulling, "", false
		return true
	default:
		k.State, k.Words, k.Missing = model.ImageQueued, "", false
		return false
	}
}

// awaitTurn waits until fewer than pullsAtOnce pulls run. It returns false if ctx ends first.
func (p *puller) awaitTurn(ctx context.Context, k *knownImage) bool {
	turn := false
	if p.set(k, func(*model.NodeImage) { turn = p.tryTurn(k) }); turn {
		return true
	}
	select {
	case p.turns <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	p.set(k, func(image *model.NodeImage) { image.State = model.ImagePulling })
	return true
}

// pull tries to pull an image until the node has it or ctx ends. turn says that it may begin at once.
func (p *puller) pull(ctx context.Context, name string, k *knownImage, turn bool) {
	for {
		if !turn && !p.awaitTurn(ctx, k) {
			return
		}
		turn = false
		bytes, err := p.try(ctx, name, k)
		<-p.turns
		gone := errors.Is(err, &model.Error{Code: image.CodeGone})
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			p.log.Info("an image is on this node", "image", name, "fetched", bytes)
			p.set(k, func(image *model.NodeImage) {
				image.State, image.Words, image.Bytes, image.Total = model.ImagePresent, "", bytes, bytes
			})
			return
		case !runtimeDown(err): // while the runtime is down, the servers know that the pull gets no further
			p.log.Warn("an image can't be pulled for now", "image", name, "error", bare(err))
			p.set(k, func(image *model.NodeImage) {
				image.State, image.Words = model.ImageFailed, model.ClipText(message(err), maxRegistryWords/2)
				image.Missing = gone
			})
		}
		if !sleep(ctx, pullAgain, nil) {
			return
		}
	}
}

// try pulls an image once, and reports every pullNews how much there is. It returns how many bytes were fetched.
func (p *puller) try(ctx context.Context, name string, k *knownImage) (bytes int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.images.patience)
	defer cancel()
	var fetched atomic.Int64
	pulled := make(chan error, 1)
	go func() { pulled <- p.images.Pull(ctx, name, fetched.Store) }()
	news := time.NewTicker(pullNews)
	defer news.Stop()
	for {
		select {
		case err := <-pulled:
			return fetched.Load(), err
		case <-news.C:
			p.set(k, func(image *model.NodeImage) {
				image.State, image.Words, image.Bytes = model.ImagePulling, "", fetched.Load()
			})
		}
	}
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

// awaitRuntime waits a moment for a runtime that does not answer, or for the networks of containers. That is no failure
// of the instance, so it is not counted.
func (i *instance) awaitRuntime(ctx context.Context, why error) {
	code, pause := model.CodeRuntimeDown, runtimeAgain
	if refused, ok := errors.AsType[*model.Error](why); ok && networkDown(why) {
		code, pause = refused.Code, networkEvery
	}
	i.observe(i.down(), string(code)+": "+message(why), i.entry.Status.ExitCode)
	i.wait(ctx, pause)
}

func runtimeDown(err error) bool { return errors.Is(err, &model.Error{Code: model.CodeRuntimeDown}) }

// networkDown reports whether this node could not give a container a network of its own.
func networkDown(err error) bool {
	return errors.Is(err, &model.Error{Code: model.CodeNoNetwork}) || errors.Is(err, &model.Error{Code: bridge.CodeFailed})
}
