package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

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
// image_unresolved, with the words of the registry or why nobody could ask it; registry_unreachable.
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
			if image, err = q.ask(ctx, spec.Name, &expanded.Groups[i]); err != nil {
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
	old, ok := q.current(job, g)
	if !ok {
		return false
	}
	g.Container.Image = old.Image
	if len(g.Container.Platforms) == 0 {
		g.Container.Platforms = old.Platforms
	}
	return true
}

// current returns the container of a group in the current version if its image has the same name.
func (q *imageQuestion) current(job model.JobName, g *model.GroupSpec) (*model.ContainerSpec, bool) {
	old, ok := q.r.Policy(model.NewGroupID(job, g.Name))
	if !ok || old.Container == nil || old.Container.ImageName() != g.Container.Image {
		return nil, false
	}
	return old.Container, true
}

// ask asks up to agentsForAnImage agents, one after the other, until one knows the digest of a group's image. It first
// asks nodes on which the group may run.
func (q *imageQuestion) ask(ctx context.Context, job model.JobName, g *model.GroupSpec) (transport.ResolvedImage,
	error) {
	q.asked = true
	workFrom(ctx).end() // to wait for agents is no work
	name := g.Container.Image
	var last error
	const usual = "check its name, the registry and the nodes' access to it"
	hint := usual
	for _, n := range q.resolvers(g) {
		var image transport.ResolvedImage
		target := url.URL{Path: transport.PathAgentImage, RawQuery: url.Values{"name": {name}}.Encode()}
		err := q.s.askAgentFor(ctx, transport.ResolveWait+agentWait, n, target, &image)
		if err == nil && model.ValidDigest(image.Digest) {
			image.Platforms = model.KeptPlatforms(image.Platforms)
			return image, nil
		}
		code, words, advice := answerOf(err)
		if last == nil || code == model.CodeImageUnresolved {
			last = model.Refuse(code, "node %s can't find image %s: %s", n.Name, name, words)
			hint = cmp.Or(advice, usual)
		}
		if ctx.Err() != nil {
			last = model.Refuse(model.CodeRegistrySilent, "no registry answered for image %s within %s", name, resolveAll)
			break
		}
	}
	refusal := model.Refuse(model.CodeImageUnresolved,
		"nobody can ask for the digest of image %s: no node that could run it has a container runtime that answers", name)
	if known, ok := errors.AsType[*model.Error](last); ok {
		refusal = known
	}
	hint += fmt.Sprintf("; without an answer, name its digest (%s@sha256:...)", name)
	if _, ok := q.current(job, g); ok && !q.keep {
		hint += ", or keep that of the current version with --keep-images"
	}
	return transport.ResolvedImage{}, refusal.WithHint("%s", hint)
}

// answerOf returns the code, the words and the hint of an agent that named no digest.
func answerOf(err error) (code model.Code, words, hint string) {
	known, ok := errors.AsType[*model.Error](err)
	if !ok {
		return model.CodeImageUnresolved, "its agent gave no digest", ""
	}
	if code = known.Code; code != model.CodeRegistrySilent {
		code = model.CodeImageUnresolved
	}
	if known.Code != model.CodeImageUnresolved && known.Code != model.CodeRegistrySilent {
		return code, known.Message, "" // the hint is not about the image
	}
	return code, known.Message, known.Hint
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

type imageListInput struct {
	Node string `query:"node" doc:"only on this node: a name, an id or a unique prefix of one"`
}

type pruneImagesInput struct {
	ActParams
	NodePath
	DryRun bool `query:"dry_run" doc:"say which images would be deleted, change nothing"`
}

// imageOperations ask the agents. The agent of the node answers the last pruning again if its request id is repeated.
func imageOperations(s *Server) []operation {
	look := getRoute("list-images", "/v1/images", "nodes",
		"List the images of containers on the nodes; each agent is asked")
	look.allow, look.run = forCLI, runHere
	prune := route{id: "prune-images", method: http.MethodPost, path: "/v1/nodes/{id}/images/prune", tag: "nodes",
		summary: "Delete the images on a node that nothing there needs now", allow: forCLI, run: runLeader, write: true}
	all := nodesImages{s}
	return []operation{
		{route: look, register: func(a huma.API) { huma.Register(a, look.huma(), all.list) }},
		{route: prune, register: func(a huma.API) { huma.Register(a, prune.huma(), all.prune) }},
	}
}

// nodesImages answers questions about the images on nodes.
type nodesImages struct{ *Server }

// list answers for one node, or for all that the caller may read. Codes: not_found, ambiguous, forbidden, busy.
func (s nodesImages) list(ctx context.Context, in *imageListInput) (*body[api.Images], error) {
	state, c, verb := s.cfg.Store.Current(), callerFrom(ctx), verbs["list-images"]
	out := api.Images{Items: []api.Image{}, Silent: []string{}, Index: state.Index}
	var nodes []*fsm.Node
	if in.Node != "" {
		n, refusal := state.Finder(s.judge.sight(state, c, verb)).FindNode(in.Node)
		if refusal != nil {
			return nil, asAnswer(refusal)
		}
		if err := s.judge.mayDo(state, c, verb, nodeObject(state, n.ID)); err != nil {
			return nil, asAnswer(err)
		}
		nodes = []*fsm.Node{n}
	} else {
		for _, n := range state.Nodes.All() {
			if s.judge.mayDo(state, c, verb, nodeObject(state, n.ID)) != nil {
				out.Hidden++
				continue
			}
			nodes = append(nodes, n)
		}
	}
	done, err := s.asking.begin(ctx)
	if err != nil {
		return nil, asAnswer(err)
	}
	defer done()
	r := s.reading()
	askEach(ctx, s.Server, nodes, url.URL{Path: transport.PathAgentImages}, agentsAtOnce,
		func(n *fsm.Node, held []transport.HeldImage, err error) {
			if err != nil {
				out.Silent = append(out.Silent, n.Name)
			}
			if down, ok := errors.AsType[*model.Error](err); ok && down.Code == model.CodeRuntimeDown {
				out.RuntimeDown = append(out.RuntimeDown, api.NodeReason{Node: n.Name, Reason: down.Message})
			}
			out.Items = append(out.Items, imagesOn(r, n, held)...)
		})
	slices.Sort(out.Silent)
	slices.SortFunc(out.RuntimeDown, func(a, b api.NodeReason) int { return cmp.Compare(a.Node, b.Node) })
	slices.SortFunc(out.Items, func(a, b api.Image) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), slices.Compare(a.Names, b.Names), cmp.Compare(a.Digest, b.Digest))
	})
	return &body[api.Images]{Index: decimal(state.Index), Body: out}, nil
}

// imagesOn adds to what an agent told of its images what the state knows: claims and failed pulls.
func imagesOn(r *reading, n *fsm.Node, held []transport.HeldImage) []api.Image {
	var all []api.Image
	for _, h := range held {
		all = append(all, imageView(n, h))
	}
	for _, f := range n.FailedPulls {
		i := slices.IndexFunc(all, func(i api.Image) bool { return i.Digest == f.Digest })
		if i < 0 {
			i = len(all)
			all = append(all, imageView(n, transport.HeldImage{Digest: f.Digest, State: model.ImageFailed}))
			if spec, ok := r.Spec(f.Group, f.Version); ok && spec.Container != nil {
				all[i].Names = []string{spec.Container.ImageName()}
			}
		}
		if all[i].State != model.ImagePresent {
			all[i].Reason = cmp.Or(all[i].Reason, f.Words)
			if r.now < f.Until {
				all[i].RetryAt = new(r.wallAt(f.Until))
			}
		}
	}
	for c := range r.PullsOn(n.ID) {
		for i := range all {
			if all[i].Digest == c.Digest() {
				all[i].Claims++
			}
		}
	}
	return all
}

func imageView(n *fsm.Node, h transport.HeldImage) api.Image {
	v := api.Image{Node: n.Name, NodeID: n.ID, Digest: h.Digest, Names: notNil(h.Names), State: h.State, Bytes: h.Bytes,
		Instances: h.Instances, Reason: h.Words}
	if !h.Used.IsZero() {
		v.UsedAt = new(h.Used.UTC().Truncate(time.Second))
	}
	return v
}

// prune makes the agent of a node delete what nothing there needs. Codes: not_found, forbidden, agent_unreachable, and
// those of the agent.
func (s nodesImages) prune(ctx context.Context, in *pruneImagesInput) (*body[api.PrunedImages], error) {
	state, c, verb := s.cfg.Store.Current(), callerFrom(ctx), verbs["prune-images"]
	if err := decodeBody(ctx, nil); err != nil {
		return nil, asAnswer(err)
	}
	n, refusal := state.Finder(s.judge.sight(state, c, verb)).NamedNode(in.ID)
	if refusal != nil {
		return nil, asAnswer(refusal)
	}
	if err := s.judge.mayDo(state, c, verb, nodeObject(state, n.ID)); err != nil {
		return nil, asAnswer(err)
	}
	noteFrom(ctx).about(nodeObject(state, n.ID))
	workFrom(ctx).end() // waiting for the agent must not keep the caller's turn
	target := url.URL{Path: transport.PathAgentPrune}
	query := url.Values{}
	if in.DryRun {
		query.Set("dry_run", "true")
	}
	if in.RequestID != "" {
		query.Set("request_id", in.RequestID)
	}
	target.RawQuery = query.Encode()
	var done transport.PrunedImages
	if err := callAgent(ctx, s.Server, transport.PruneWait+agentWait, n, http.MethodPost, target, &done); err != nil {
		if known, ok := errors.AsType[*model.Error](err); ok && known.Code == model.CodeAgentUnreachable {
			err = known.WithHint("see: outspan node status %s", n.Name)
		}
		return nil, asAnswer(err)
	}
	out := api.PrunedImages{Node: n.Name, Items: []api.Image{}, Bytes: done.Bytes, More: done.More, DryRun: in.DryRun,
		Index: state.Index}
	for _, h := range done.Images {
		out.Items = append(out.Items, imageView(n, h))
	}
	return &body[api.PrunedImages]{Index: decimal(state.Index), Body: out}, nil
}
