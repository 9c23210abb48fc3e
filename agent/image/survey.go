package image

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

const (
	usedLabel = "outspan.used" // of an image: when it was last marked as used, as RFC 3339
	usedEvery = 10 * time.Minute
	tagLabel  = "outspan.tag." // of an image, followed by a tag by which it was asked for
	maxLabels = 32             // of an image; no tag is added beyond
)

// Held is an image on this node.
type Held struct {
	Digest string    // of the index
	Names  []string  // sorted, without digests
	Used   time.Time // when it was last used, or pulled; exact to about 10 minutes
	// Parts has the bytes of each part of the image: compressed content and unpacked layers. Images share parts.
	Parts map[string]int64
}

// Bytes returns the size of the image with what it shares with others.
func (h *Held) Bytes() (sum int64) {
	for _, n := range h.Parts {
		sum += n
	}
	return sum
}

// Survey is what a node has of images at one moment.
type Survey struct {
	Images []Held          // in order of digest
	Below  map[string]bool // parts that the layers of instances need
}

// Frees returns how many bytes the deletion of these images frees.
func (s *Survey) Frees(digests []string) (sum int64) {
	stays, goes := map[string]bool{}, map[string]int64{}
	for _, h := range s.Images {
		leaves := slices.Contains(digests, h.Digest)
		for part, n := range h.Parts {
			if leaves {
				goes[part] = n
			} else {
				stays[part] = true
			}
		}
	}
	for part, n := range goes {
		if !stays[part] && !s.Below[part] {
			sum += n
		}
	}
	return sum
}

// Survey looks at all images and their sizes. It takes a few calls of containerd for each layer. Code:
// CodeRuntimeDown.
func (s *Store) Survey(ctx context.Context) (Survey, error) {
	snapshotter, err := s.snapshotter(ctx)
	if err != nil {
		return Survey{}, err
	}
	list, err := s.client.ImageService().List(ctx)
	if err != nil {
		return Survey{}, s.down(err)
	}
	layers := layerSizes{service: s.client.SnapshotService(snapshotter), sizes: map[string]int64{}}
	found := Survey{}
	if found.Below, err = layers.read(ctx); err != nil {
		return Survey{}, s.down(err)
	}
	byDigest := map[string]*Held{}
	for _, i := range list {
		d := i.Target.Digest.String()
		h := byDigest[d]
		if h == nil {
			h = &Held{Digest: d, Parts: map[string]int64{}}
			if err := s.parts(ctx, i.Target, "containerd.io/gc.ref.snapshot."+snapshotter, layers, h.Parts); err != nil {
				return Survey{}, s.down(err)
			}
			byDigest[d] = h
		}
		h.Names = append(h.Names, namesOf(i)...)
		if used := usedAt(i); used.After(h.Used) {
			h.Used = used
		}
	}
	for _, h := range byDigest {
		slices.Sort(h.Names)
		h.Names = slices.Compact(h.Names)
		found.Images = append(found.Images, *h)
	}
	slices.SortFunc(found.Images, func(a, b Held) int { return strings.Compare(a.Digest, b.Digest) })
	return found, nil
}

// noteTag records the tag in the name of an image that was pulled by its digest, for Held.Names. have is false if the
// image is not here. An error is ignored, because people alone use the tag.
func (s *Store) noteTag(ctx context.Context, ref string, have bool) {
	named, err := reference.ParseNormalizedNamed(ref)
	tagged, hasTag := named.(reference.Tagged)
	if !have || err != nil || !hasTag {
		return
	}
	canonical, err := parse(ref)
	if err != nil {
		return
	}
	i, err := s.client.ImageService().Get(ctx, canonical.String())
	label := tagLabel + tagged.Tag()
	if _, noted := i.Labels[label]; err != nil || noted || len(i.Labels) >= maxLabels {
		return
	}
	i.Labels = map[string]string{label: "yes", usedLabel: time.Now().UTC().Format(time.RFC3339)}
	_, _ = s.client.ImageService().Update(ctx, i, "labels."+label, "labels."+usedLabel)
}

// namesOf returns the name of an image without its digest, once with each of its tags.
func namesOf(i images.Image) (names []string) {
	name, _, _ := strings.Cut(i.Name, "@")
	for label := range i.Labels {
		if tag, ok := strings.CutPrefix(label, tagLabel); ok {
			names = append(names, name+":"+tag)
		}
	}
	if len(names) == 0 {
		return []string{name}
	}
	return names
}

func usedAt(i images.Image) time.Time {
	if marked, err := time.Parse(time.RFC3339, i.Labels[usedLabel]); err == nil {
		return marked
	}
	return i.UpdatedAt
}

// parts adds the content of an image that is here, and its unpacked layers. ref is the label of its configuration that
// names the topmost layer.
func (s *Store) parts(ctx context.Context, target ocispec.Descriptor, ref string, layers layerSizes,
	to map[string]int64) error {
	store := s.client.ContentStore()
	return images.Walk(ctx, images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor,
		error) {
		info, err := store.Info(ctx, d.Digest)
		if errdefs.IsNotFound(err) {
			return nil, nil // of another platform
		}
		if err != nil {
			return nil, err
		}
		to["content "+d.Digest.String()] = info.Size
		if err := layers.add(ctx, info.Labels[ref], to); err != nil {
			return nil, err
		}
		return images.Children(ctx, store, d)
	}), target)
}

// layerSizes knows the layers of a snapshotter, and remembers their sizes.
type layerSizes struct {
	service snapshots.Snapshotter
	parents map[string]string
	sizes   map[string]int64
}

func layerPart(name string) string { return "layer " + name }

// read finds all layers, and returns those that layers of instances need.
func (l *layerSizes) read(ctx context.Context) (below map[string]bool, err error) {
	l.parents = map[string]string{}
	err = l.service.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		l.parents[info.Name] = info.Parent
		return nil
	})
	below = map[string]bool{}
	for name := range l.parents {
		if strings.HasPrefix(name, leasePrefix) {
			for at := l.parents[name]; at != ""; at = l.parents[at] {
				below[layerPart(at)] = true
			}
		}
	}
	return below, err
}

// add adds a layer and those below it. A layer that is not there has no size.
func (l *layerSizes) add(ctx context.Context, name string, to map[string]int64) error {
	for ; name != ""; name = l.parents[name] {
		size, known := l.sizes[name]
		if !known {
			use, err := l.service.Usage(ctx, name)
			if err != nil && !errdefs.IsNotFound(err) {
				return err
			}
			size = use.Size
			l.sizes[name] = size
		}
		to[layerPart(name)] = size
	}
	return nil
}

// MarkUsed records that images are in use, for Held.Used. It writes at most every 10 minutes for an image. Code:
// CodeRuntimeDown.
func (s *Store) MarkUsed(ctx context.Context, used func(digest string) bool) error {
	list, err := s.client.ImageService().List(ctx)
	if err != nil {
		return s.down(err)
	}
	for _, i := range list {
		if time.Since(usedAt(i)) < usedEvery || !used(i.Target.Digest.String()) {
			continue
		}
		i.Labels = map[string]string{usedLabel: time.Now().UTC().Format(time.RFC3339)}
		_, err := s.client.ImageService().Update(ctx, i, "labels."+usedLabel)
		if err != nil && !errdefs.IsNotFound(err) {
			return s.down(err)
		}
	}
	return nil
}

// Remove deletes an image with all its names and what only it needs, unless leave returns false. leave is called while
// no pull of the image runs and none can begin. The layers below those of instances stay. gone is false if leave did
// not agree, or if a pull of the image runs, for whose end Remove does not wait. An image that is not here is gone.
// Code: CodeRuntimeDown.
func (s *Store) Remove(ctx context.Context, dgst string, leave func() bool) (gone bool, err error) {
	if !s.pulls.tryBegin(dgst) {
		return false, nil
	}
	defer s.pulls.end(dgst)
	if !leave() {
		return false, nil
	}
	list, err := s.client.ImageService().List(ctx, "target.digest=="+dgst)
	if err != nil {
		return false, s.down(err)
	}
	for n, i := range list {
		var options []images.DeleteOpt
		if n == len(list)-1 {
			options = append(options, images.SynchronousDelete())
		}
		err := s.client.ImageService().Delete(ctx, i.Name, options...)
		if err != nil && !errdefs.IsNotFound(err) {
			return false, s.down(err)
		}
	}
	return true, nil
}

// Disk is how full the disk of the images is.
type Disk struct {
	Path        string
	Used, Total int64 // bytes, as df(1) counts them
}

// Percent returns how full the disk is, rounded up, as df(1) does.
func (d Disk) Percent() int {
	if d.Total <= 0 {
		return 0
	}
	return int((d.Used*100 + d.Total - 1) / d.Total)
}

// Disk returns the fuller one of the disks that hold containerd's content and its unpacked layers. Codes:
// CodeRuntimeDown, CodeNoDisk.
func (s *Store) Disk(ctx context.Context) (fullest Disk, err error) {
	snapshotter, err := s.snapshotter(ctx)
	if err != nil {
		return Disk{}, err
	}
	found, err := s.client.IntrospectionService().Plugins(ctx, "type==io.containerd.content.v1",
		"type==io.containerd.snapshotter.v1,id=="+snapshotter)
	if err != nil {
		return Disk{}, s.down(err)
	}
	for _, p := range found.Plugins {
		dir := p.Exports["root"]
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			return Disk{}, model.Refuse(CodeNoDisk, "the disk of containerd's %s at %q can't be looked at: %v", p.ID, dir, err)
		}
		block := st.Bsize
		d := Disk{Path: dir, Used: int64(st.Blocks-st.Bfree) * block, Total: int64(st.Blocks-st.Bfree+st.Bavail) * block}
		if fullest.Path == "" || d.Percent() > fullest.Percent() {
			fullest = d
		}
	}
	return fullest, nil
}
