package httpapi

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	resolveAll       = 25 * time.Second // for all images of a job
	agentsForAnImage = 3                // agents asked for one image, one after the other
)

// imageQuestion finds the digests of a job's images by asking agents, for one request. Each name is asked for once, so
// that all groups with the same name run the same image.
type imageQuestion struct {
	s     *Server
	r     *reading
	keep  bool // a group whose image has the same name as in the current version keeps its digest
	asked bool // agents were asked
	known map[string]transport.ResolvedImage
}

// resolve returns spec with the digests and platforms of its images. An image with a digest is not asked for. Code:
// image_unresolved, with the words of the registry or why nobody could ask it.
func (q *imageQuestion) resolve(ctx context.Context, spec model.JobSpec) (model.JobSpec, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveAll)
	defer cancel()
	q.known = map[string]transport.ResolvedImage{}
	expanded := spec.Expand()
	if expanded.Check() != nil {
		return spec, nil // the command refuses it
	}
	spec = asGiven(spec)
	for i := range spec.Groups {
		c := spec.Groups[i].Container
		if c == nil || c.ImageDigest() != "" {
			continue
		}
		if q.keep && q.keeps(spec.Name, &spec.Groups[i]) {
			continue
		}
		image, ok := q.known[c.Image]
		if !ok {
			var err error
			if image, err = q.ask(ctx, &expanded.Groups[i]); err != nil {
				return spec, err
			}
			q.known[c.Image] = image
		}
		c.Image += "@" + image.Digest
		if len(c.Platforms) == 0 {
			c.Platforms = image.Platforms
		}
	}
	return spec, nil
}

// asGiven returns a copy of spec whose containers can be changed.
func asGiven(spec model.JobSpec) model.JobSpec {
	spec.Groups = append([]model.GroupSpec(nil), spec.Groups...)
	for i := range spec.Groups {
		if c := spec.Groups[i].Container; c != nil {
			own := *c
			spec.Groups[i].Container = &own
		}
	}
	return spec
}

// asIfResolved returns spec with a digest for each image, to check the rest of the spec.
func asIfResolved(spec model.JobSpec) model.JobSpec {
	spec = asGiven(spec)
	for i := range spec.Groups {
		if c := spec.Groups[i].Container; c != nil && c.Image != "" && c.ImageDigest() == "" {
			c.Image += "@sha256:" + strings.Repeat("0", 64)
		}
	}
	return spec
}

// keeps gives a group the image of the current version, if that has the same name, and reports whether it did.
func (q *imageQuestion) keeps(job model.JobName, g *model.GroupSpec) bool {
	old, ok := q.r.Policy(model.NewGroupID(job, g.Name))
	if !ok || old.Container == nil || old.Container.ImageName() != g.Container.Image {
		return false
	}
	g.Container.Image = old.Container.Image
	if len(g.Container.Platforms) == 0 {
		g.Container.Platforms = old.Container.Platforms
	}
	return true
}

// ask asks up to agentsForAnImage agents, one after the other, until one knows the digest of a group's image. It first
// asks nodes on which the group may run.
func (q *imageQuestion) ask(ctx context.Context, g *model.GroupSpec) (transport.ResolvedImage, error) {
	q.asked = true
	workFrom(ctx).end() // to wait for agents is no work
	name := g.Container.Image
	var last error
	for _, n := range q.resolvers(g) {
		var image transport.ResolvedImage
		target := url.URL{Path: transport.PathAgentImage, RawQuery: url.Values{"name": {name}}.Encode()}
		err := q.s.askAgentFor(ctx, transport.ResolveWait+agentWait, n, target, &image)
		if err == nil && model.ValidDigest(image.Digest) {
			image.Platforms = model.KeptPlatforms(image.Platforms)
			return image, nil
		}
		last = model.Refuse(model.CodeImageUnresolved, "node %s can't find image %s: %s", n.Name, name, wordsOf(err))
		if ctx.Err() != nil {
			last = model.Refuse(model.CodeImageUnresolved, "no registry answered for image %s within %s", name, resolveAll)
			break
		}
	}
	refusal := model.Refuse(model.CodeImageUnresolved,
		"nobody can ask for the digest of image %s: no node that could run it has a container runtime that answers", name)
	if known, ok := errors.AsType[*model.Error](last); ok {
		refusal = known
	}
	return transport.ResolvedImage{}, refusal.
		WithHint("check its name, the registry and the nodes' access to it; without an answer, name its digest "+
			"(%s@sha256:...), or keep that of the current version with --keep-images", name)
}

func wordsOf(err error) string {
	if known, ok := errors.AsType[*model.Error](err); ok {
		return known.Message
	}
	return "its agent gave no digest"
}

// resolvers lists nodes whose agents can be asked for a group's image: eligible ones that the group may run on first.
func (q *imageQuestion) resolvers(g *model.GroupSpec) []*fsm.Node {
	var best, others []*fsm.Node
	for _, n := range q.r.Nodes.All() {
		switch {
		case n.Health == model.HealthOffline || n.Starts(g) != nil || q.r.AgentRevoked(n.Name):
		case q.r.Eligible(n) == nil && n.MeetsAll(g.Constraints):
			best = append(best, n)
		default:
			others = append(others, n)
		}
	}
	all := slices.Concat(best, others)
	return all[:min(len(all), agentsForAnImage)]
}

// imagesOf lists the images of a job's containers. It returns nil if there are none.
func imagesOf(spec model.JobSpec) (images []api.GroupImage) {
	for i := range spec.Groups {
		if c := spec.Groups[i].Container; c != nil {
			images = append(images, api.GroupImage{Group: model.NewGroupID(spec.Name, spec.Groups[i].Name),
				Image: c.ImageName(), Digest: c.ImageDigest(), Platforms: notNil(c.Platforms)})
		}
	}
	return images
}
