package agent

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
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
	ctx    context.Context
	active sync.WaitGroup
}

// knownImage is an image that was asked for. cancel ends its pull.
type knownImage struct {
	model.NodeImage
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
	for _, k := range p.known {
		k.wanted = false
	}
	news := false
	for _, name := range names {
		_, digest, _ := strings.Cut(name, "@")
		i := slices.IndexFunc(p.known, func(k *knownImage) bool { return k.Digest == digest })
		if i >= 0 {
			p.known[i].wanted = true
			continue
		}
		ctx, cancel := context.WithCancel(p.ctx)
		k := &knownImage{NodeImage: model.NodeImage{Digest: digest, State: model.ImagePulling}, wanted: true, cancel: cancel}
		p.known, news = append(p.known, k), true
		p.active.Go(func() {
			defer cancel()
			p.pull(ctx, name, k)
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

// pull tries to pull an image until the node has it or ctx ends.
func (p *puller) pull(ctx context.Context, name string, k *knownImage) {
	for {
		select {
		case p.turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
		bytes, err := p.try(ctx, name, k)
		<-p.turns
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
