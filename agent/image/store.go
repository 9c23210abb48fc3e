// Package image keeps the images of a node's containers in containerd: it resolves names, pulls and unpacks, and makes
// the root file system of an instance. containerd runs nothing: no task of it ever exists, so it can be stopped,
// restarted and upgraded while containers run.
package image

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outspan/outspan/model"
)

// Codes of the errors that this package returns.
const (
	CodeRuntimeDown = model.Code("runtime_down")      // containerd does not answer
	CodeUnresolved  = model.Code("image_unresolved")  // the registry names no digest; the message has its words
	CodeUnreachable = model.CodeRegistrySilent        // no registry answered, or it can't now
	CodePullFailed  = model.Code("image_pull_failed") // the message has the registry's words
	CodeGone        = model.Code("image_gone")        // the registry does not have the digest; the message has its words
	CodeNotHere     = model.Code("image_missing")     // the image is not on this node
	CodeInvalidName = model.Code("image_invalid")     // the name or digest can't be used
	CodeNoDisk      = model.Code("images_disk")       // the disk of the images can't be looked at
)

// Config says where containerd is and how registries are reached.
type Config struct {
	Socket string // of containerd
	// Namespace separates the images, snapshots and leases of this agent from those of others on the machine.
	Namespace string
	// CertsDir has a directory for each registry, with hosts.toml (mirrors) and certificates, as containerd and nerdctl
	// read them. "" = none.
	CertsDir string
	// DockerConfig is docker's config.json, with credentials. "" = none. It is read for each request.
	DockerConfig string
}

// Store is a connection to containerd. Calls need a context with a deadline, because containerd may hang. While
// containerd does not answer, they return CodeRuntimeDown. Safe for concurrent use.
type Store struct {
	cfg    Config
	client *containerd.Client
	chosen atomic.Pointer[string] // the snapshotter; nil until containerd has answered
	pulls  pulls
	own    string // ends the names of the leases of this process's pulls
}

// Open makes a Store. It does not wait for containerd, which may start, end and return at any time.
func Open(cfg Config) (*Store, error) {
	c, err := containerd.New(cfg.Socket, containerd.WithDefaultNamespace(cfg.Namespace),
		containerd.WithTimeout(5*time.Second))
	if err != nil {
		return nil, model.Refuse(CodeRuntimeDown, "containerd at %s can't be used: %v", cfg.Socket, err)
	}
	return &Store{cfg: cfg, client: c, pulls: pulls{turns: map[string]*turn{}}, own: "-" + rand.Text()}, nil
}

// snapshotter returns overlayfs, or native where that does not work. Once containerd has answered, the answer stays.
func (s *Store) snapshotter(ctx context.Context) (string, error) {
	if name := s.chosen.Load(); name != nil {
		return *name, nil
	}
	found, err := s.client.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1")
	if err != nil {
		return "", s.down(err)
	}
	name := ""
	for _, p := range found.Plugins {
		if p.InitErr == nil && (p.ID == "overlayfs" || p.ID == "native" && name == "") {
			name = p.ID
		}
	}
	if name == "" {
		return "", model.Refuse(CodeRuntimeDown, "containerd at %s has neither of the snapshotters overlayfs and native",
			s.cfg.Socket)
	}
	s.chosen.Store(&name)
	return name, nil
}

// Close closes the connection.
func (s *Store) Close() error { return s.client.Close() }

// Check returns the version of containerd, such as 1.6.20. It returns CodeRuntimeDown if containerd does not answer
// before ctx ends, or can't make root file systems.
func (s *Store) Check(ctx context.Context) (version string, err error) {
	v, err := s.client.Version(ctx)
	if err == nil {
		_, err = s.snapshotter(ctx)
	}
	return v.Version, s.down(err)
}

// down turns an error of containerd into CodeRuntimeDown if it did not answer. Other errors stay as they are.
func (s *Store) down(err error) error {
	code := status.Code(err)
	if !ofRegistry(err) && (errdefs.IsUnavailable(err) || code == codes.Unavailable || code == codes.DeadlineExceeded ||
		errdefs.IsDeadlineExceeded(err)) {
		return model.Refuse(CodeRuntimeDown, "containerd at %s does not answer: %s", s.cfg.Socket, s.silence(err))
	}
	return err
}

// ofRegistry reports whether an error comes from a connection to a registry. Errors of the connection to containerd are
// those of gRPC, which are not of the package net.
func ofRegistry(err error) bool {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return true
	}
	failed, ok := errors.AsType[net.Error](err)
	return ok && failed != context.DeadlineExceeded //nolint:errorlint // timeouts of connections are it for errors.Is
}

// parse adds docker.io, library and latest as docker does. With a digest, the tag is dropped.
func parse(ref string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, model.Refuse(CodeInvalidName, "image %q: %v", ref, err)
	}
	return named, nil
}

// Import adds the images of an OCI or docker archive, and unpacks those of the node's platform. It returns their index
// digests.
func (s *Store) Import(ctx context.Context, archive io.Reader) ([]string, error) {
	snapshotter, err := s.snapshotter(ctx)
	if err != nil {
		return nil, err
	}
	list, err := s.client.Import(ctx, archive)
	if err != nil {
		return nil, s.down(err)
	}
	var digests []string
	for _, i := range list {
		if err := containerd.NewImage(s.client, i).Unpack(ctx, snapshotter); err != nil {
			return nil, s.down(fmt.Errorf("unpack %s: %w", i.Name, err))
		}
		digests = append(digests, i.Target.Digest.String())
	}
	slices.Sort(digests)
	return slices.Compact(digests), nil
}

// find returns the image with an index digest, or CodeNotHere.
func (s *Store) find(ctx context.Context, dgst string) (containerd.Image, error) {
	if _, err := digest.Parse(dgst); err != nil {
		return nil, model.Refuse(CodeInvalidName, "digest %q: %v", dgst, err)
	}
	list, err := s.client.ImageService().List(ctx, "target.digest=="+dgst)
	if err != nil {
		return nil, s.down(err)
	}
	if len(list) == 0 {
		return nil, model.Refuse(CodeNotHere, "image %s is not on this node", dgst)
	}
	return containerd.NewImage(s.client, list[0]), nil
}

// Have reports whether the image is here and unpacked.
func (s *Store) Have(ctx context.Context, dgst string) (bool, error) {
	i, err := s.find(ctx, dgst)
	if errors.Is(err, &model.Error{Code: CodeNotHere}) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	snapshotter, err := s.snapshotter(ctx)
	if err != nil {
		return false, err
	}
	unpacked, err := i.IsUnpacked(ctx, snapshotter)
	if errdefs.IsNotFound(err) { // part of the content is missing
		return false, nil
	}
	return unpacked, s.down(err)
}

// Defaults returns what the image says about its program. Code: CodeNotHere.
func (s *Store) Defaults(ctx context.Context, dgst string) (Defaults, error) {
	i, err := s.find(ctx, dgst)
	if err != nil {
		return Defaults{}, err
	}
	spec, err := i.Spec(ctx)
	if err != nil {
		return Defaults{}, s.down(err)
	}
	c := spec.Config
	return Defaults{Entrypoint: c.Entrypoint, Cmd: c.Cmd, Env: c.Env, User: c.User, Dir: c.WorkingDir,
		StopSignal: c.StopSignal}, nil
}

// Mount is one mount of a root file system, with options as for mount(8).
type Mount struct {
	Type, Source string
	Options      []string
}

const leasePrefix = "instance-"

// leaseOf is the lease of an instance. It keeps the snapshots of the instance.
func leaseOf(id string) string { return leasePrefix + id }

// Layers returns the instances for which Mounts has made a layer, or begun to, and that were not released. A layer
// without its lease is garbage that containerd deletes itself.
func (s *Store) Layers(ctx context.Context) ([]string, error) {
	list, err := s.client.LeasesService().List(ctx)
	if err != nil {
		return nil, s.down(err)
	}
	var ids []string
	for _, l := range list {
		if id, ours := strings.CutPrefix(l.ID, leasePrefix); ours {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Abandon ends the leases of pulls that earlier processes of this agent did not end, and those of failed pulls of this
// process whose digest is not wanted. They would keep parts of images for a day.
func (s *Store) Abandon(ctx context.Context, wanted func(digest string) bool) error {
	list, err := s.client.LeasesService().List(ctx)
	if err != nil {
		return s.down(err)
	}
	for _, l := range list {
		if !strings.HasPrefix(l.ID, pullPrefix) {
			continue
		}
		if err := s.abandon(ctx, l, wanted); err != nil && !errdefs.IsNotFound(err) {
			return s.down(err)
		}
	}
	return nil
}

func (s *Store) abandon(ctx context.Context, l leases.Lease, wanted func(digest string) bool) error {
	if s.ownLease(l.ID) {
		dgst := strings.TrimSuffix(strings.TrimPrefix(l.ID, pullPrefix), s.own)
		if !s.pulls.tryBegin(dgst) {
			return nil
		}
		defer s.pulls.end(dgst)
		if wanted(dgst) {
			return nil
		}
	}
	return s.client.LeasesService().Delete(ctx, l)
}

// Mounts makes the writable layer of an instance on top of an image, unless it exists, and returns how to mount it. The
// layer stays until Release. Codes: CodeNotHere, CodeRuntimeDown.
func (s *Store) Mounts(ctx context.Context, id, dgst string) ([]Mount, error) {
	i, err := s.find(ctx, dgst)
	if err != nil {
		return nil, err
	}
	layers, err := i.RootFS(ctx)
	if err != nil {
		return nil, s.down(err)
	}
	snapshotter, err := s.snapshotter(ctx)
	if err != nil {
		return nil, err
	}
	_, err = s.client.LeasesService().Create(ctx, leases.WithID(leaseOf(id)))
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return nil, s.down(err)
	}
	ctx = leases.WithLease(ctx, leaseOf(id))
	snapshots := s.client.SnapshotService(snapshotter)
	mounts, err := snapshots.Prepare(ctx, leaseOf(id), identity.ChainID(layers).String())
	if errdefs.IsAlreadyExists(err) {
		mounts, err = snapshots.Mounts(ctx, leaseOf(id))
	}
	if err != nil {
		return nil, s.down(err)
	}
	var list []Mount
	for _, m := range mounts {
		list = append(list, Mount{Type: m.Type, Source: m.Source, Options: m.Options})
	}
	return list, nil
}

// Release deletes the writable layer of an instance. No process of the instance may run. If there is none, it does
// nothing.
func (s *Store) Release(ctx context.Context, id string) error {
	snapshotter, err := s.snapshotter(ctx)
	if err != nil {
		return err
	}
	err = s.client.SnapshotService(snapshotter).Remove(ctx, leaseOf(id))
	if err == nil || errdefs.IsNotFound(err) {
		err = s.client.LeasesService().Delete(ctx, leases.Lease{ID: leaseOf(id)})
	}
	if errdefs.IsNotFound(err) {
		return nil
	}
	return s.down(err)
}

// List returns the index digests of the images on this node, sorted.
func (s *Store) List(ctx context.Context) ([]string, error) {
	list, err := s.client.ImageService().List(ctx)
	if err != nil {
		return nil, s.down(err)
	}
	var digests []string
	for _, i := range list {
		digests = append(digests, i.Target.Digest.String())
	}
	slices.Sort(digests)
	return slices.Compact(digests), nil
}

// platformsOf returns the platforms of an index or manifest, sorted, such as linux/amd64.
func platformsOf(ctx context.Context, provider content.Provider, d ocispec.Descriptor) ([]string, error) {
	found, err := images.Platforms(ctx, provider, d)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, p := range found {
		if p.OS != "" && p.OS != "unknown" { // attestations are unknown/unknown
			list = append(list, platforms.Format(platforms.Normalize(p)))
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}
