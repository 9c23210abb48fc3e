package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/outspan/outspan/model"
)

const (
	pullPrefix   = "pull-"         // of the names of the leases of pulls
	pullLease    = 24 * time.Hour  // how long containerd keeps what a pull fetched that failed or was killed
	leaseTimeout = 5 * time.Second // of the deletion of the lease
)

// Pull fetches the image ref, which must have a digest, for the node's platform, and unpacks it. If the node has it, it
// returns at once. It calls progress about every second with the number of bytes fetched so far; nil is allowed. What a
// failed pull has fetched is kept for the next one of this Store until Abandon, for at most a day, unless ctx was
// canceled. Codes:
// CodeInvalidName, CodePullFailed, CodeGone, CodeRuntimeDown.
func (s *Store) Pull(ctx context.Context, ref string, progress func(bytes int64)) error {
	named, err := parse(ref)
	if err != nil {
		return err
	}
	canonical, ok := named.(reference.Canonical)
	if !ok {
		return model.Refuse(CodeInvalidName, "image %q has no digest", ref)
	}
	dgst := canonical.Digest().String()
	registry := &registry{Resolver: s.resolver(ctx)}
	failed := func(err error) error { // short, because messages are cut, and the cause stands at the end
		code := CodePullFailed
		if registry.lacks.Load() && errdefs.IsNotFound(err) {
			code = CodeGone
		}
		return model.Refuse(code, "%s", shortDigest("pull "+canonical.String()+": "+words(err), dgst)).
			WithHint("%s", s.cfg.adviseOn(named, err))
	}
	if err := s.pulls.begin(ctx, dgst); err != nil {
		return failed(fmt.Errorf("another pull of it did not end: %w", err))
	}
	defer s.pulls.end(dgst)
	if have, err := s.Have(ctx, dgst); have || err != nil {
		s.noteTag(ctx, ref, have)
		return err
	}
	snapshotter, err := s.snapshotter(ctx)
	if err != nil {
		return err
	}
	lease := leases.Lease{ID: pullPrefix + dgst + s.own}
	_, err = s.client.LeasesService().Create(ctx, leases.WithID(lease.ID), leases.WithExpiration(pullLease))
	if err != nil && !errdefs.IsAlreadyExists(err) { // an earlier Pull of this Store may have failed
		return s.down(err)
	}
	ctx = leases.WithLease(ctx, lease.ID)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	var downloads downloads
	go func() {
		defer close(ended)
		s.report(ctx, &downloads, progress)
	}()
	_, err = s.client.Pull(ctx, named.String(), containerd.WithPullUnpack, containerd.WithPullSnapshotter(snapshotter),
		containerd.WithResolver(registry), containerd.WithImageHandler(&downloads))
	s.noteTag(ctx, ref, err == nil)
	late := ctx.Err()
	stop()
	<-ended
	if err == nil || errors.Is(late, context.Canceled) {
		s.endLease(ctx, lease)
	}
	switch {
	case err == nil:
		return nil
	case late != nil: // the registry was slow, or the pull is not wanted any more
		return failed(fmt.Errorf("it was given up: %w", late))
	}
	if refusal := (*model.Error)(nil); errors.As(s.down(err), &refusal) {
		return refusal
	}
	return failed(err)
}

// ownLease reports whether a lease is that of a pull of this process.
func (s *Store) ownLease(id string) bool {
	return strings.HasPrefix(id, pullPrefix) && strings.HasSuffix(id, s.own)
}

// registry is a Resolver that remembers whether the registry said that it does not have something. containerd itself
// may miss something too, such as a lease.
type registry struct {
	remotes.Resolver
	lacks atomic.Bool
}

// Resolve implements remotes.Resolver.
func (r *registry) Resolve(ctx context.Context, ref string) (string, ocispec.Descriptor, error) {
	name, found, err := r.Resolver.Resolve(ctx, ref)
	r.note(err)
	return name, found, err
}

// Fetcher implements remotes.Resolver.
func (r *registry) Fetcher(ctx context.Context, ref string) (remotes.Fetcher, error) {
	f, err := r.Resolver.Fetcher(ctx, ref)
	if err != nil {
		return nil, err
	}
	return remotes.FetcherFunc(func(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
		body, err := f.Fetch(ctx, d)
		r.note(err)
		return body, err
	}), nil
}

func (r *registry) note(err error) {
	if errdefs.IsNotFound(err) {
		r.lacks.Store(true)
	}
}

// endLease deletes the lease of a pull, so that containerd deletes what no image needs. ctx may have ended. After an
// error the lease expires.
func (s *Store) endLease(ctx context.Context, lease leases.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	_ = s.client.LeasesService().Delete(ctx, lease)
}

// pulls lets one pull of a digest run at a time, so that the instances that wait for it share its work.
type pulls struct {
	mu    sync.Mutex
	turns map[string]*turn
}

type turn struct {
	free  chan struct{} // capacity 1; full while a pull runs
	users int           // that pull or wait
}

// begin waits for the end of another pull of the digest. It returns an error if ctx ends first. After nil, call end.
func (p *pulls) begin(ctx context.Context, dgst string) error {
	p.mu.Lock()
	t := p.turns[dgst]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		p.turns[dgst] = t
	}
	t.users++
	p.mu.Unlock()
	select {
	case t.free <- struct{}{}:
		return nil
	case <-ctx.Done():
		p.leave(dgst)
		return ctx.Err()
	}
}

// tryBegin is begin, but returns false at once if another pull of the digest runs.
func (p *pulls) tryBegin(dgst string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turns[dgst] != nil {
		return false
	}
	t := &turn{free: make(chan struct{}, 1), users: 1}
	t.free <- struct{}{}
	p.turns[dgst] = t
	return true
}

func (p *pulls) end(dgst string) {
	<-p.leave(dgst).free
}

func (p *pulls) leave(dgst string) *turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.turns[dgst]
	if t.users--; t.users == 0 {
		delete(p.turns, dgst)
	}
	return t
}

// downloads are the downloads of one pull, by their names in containerd. It is an images.Handler that sees what is
// about to be fetched. Safe for concurrent use.
type downloads struct {
	mu   sync.Mutex
	refs map[string]bool
}

// Handle implements images.Handler.
func (d *downloads) Handle(ctx context.Context, what ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refs == nil {
		d.refs = map[string]bool{}
	}
	d.refs[remotes.MakeRefKey(ctx, what)] = true
	return nil, nil
}

func (d *downloads) has(ref string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refs[ref]
}

// report calls progress with how much of the downloads is here, until ctx ends. Images that are pulled at the same time
// may share some.
func (s *Store) report(ctx context.Context, of *downloads, progress func(int64)) {
	if progress == nil {
		return
	}
	most := map[string]int64{}
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		list, err := s.client.ContentStore().ListStatuses(ctx)
		if err != nil {
			continue
		}
		for _, st := range list {
			if of.has(st.Ref) {
				most[st.Ref] = max(most[st.Ref], st.Offset)
			}
		}
		sum := int64(0)
		for _, n := range most {
			sum += n
		}
		progress(sum)
	}
}
