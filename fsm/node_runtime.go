package fsm

import (
	"cmp"
	"slices"
	"strings"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// NodeRuntime is the container runtime of a node, as its agent last reported it. A runtime that does not answer closes
// the node to new containers. It makes the node neither degraded nor not ready, and counts toward no hold, because the
// containers that run there go on without it.
type NodeRuntime struct {
	Version   string     `cbor:"1,keyasint,omitempty"`
	Down      string     `cbor:"2,keyasint,omitempty"` // why it does not answer; "" while it answers
	DownSince model.Time `cbor:"3,keyasint,omitempty"` // when it last stopped answering; 0 while it answers
	// Pulls says that the agent pulls what image.want asks for. Agents of older builds pull when they start an instance.
	Pulls  bool        `cbor:"4,keyasint,omitempty"`
	Images []NodeImage `cbor:"5,keyasint,omitempty"` // in order of digest, each digest once
	// Bridge is the subnet of containers with a network of their own. "" means that there is none; NoBridge says why, and
	// is "" too if the agent is of an older build.
	Bridge   string `cbor:"6,keyasint,omitempty"`
	NoBridge string `cbor:"7,keyasint,omitempty"`
}

// NodeImage is an image on a node, as its agent last reported it.
type NodeImage struct {
	Digest string           `cbor:"1,keyasint"`
	State  model.ImageState `cbor:"2,keyasint"`
	Bytes  int64            `cbor:"3,keyasint,omitempty"`
	Total  int64            `cbor:"4,keyasint,omitempty"`
	Words  string           `cbor:"5,keyasint,omitempty"`
	Moved  model.Time       `cbor:"6,keyasint"` // time of the last progress
	// Missing says that the pull failed because the registry does not have the digest.
	Missing bool `cbor:"7,keyasint,omitempty"`
}

const maxRuntimeVersion = 64 // bytes

// takeRuntime returns what the state keeps of a report about the container runtime, or nil for a node without one.
func (s *State) takeRuntime(old *NodeRuntime, r *model.SelfReport) *NodeRuntime {
	told := keptRuntime(r.Runtime)
	if told == nil {
		return nil
	}
	now := &NodeRuntime{Version: told.Version, Down: told.Down, Pulls: told.Pulls, Bridge: told.Bridge,
		NoBridge: told.NoBridge}
	for _, image := range told.Images {
		now.Images = append(now.Images, s.nodeImage(old, image))
	}
	if now.Down != "" {
		now.DownSince = s.Now
		if old != nil && old.DownSince != 0 {
			now.DownSince = old.DownSince
		}
	}
	return now
}

// keptRuntime returns what the state keeps of a report's words about a container runtime, which may be nil.
func keptRuntime(r *model.ContainerRuntime) *model.ContainerRuntime {
	if r == nil {
		return nil
	}
	kept := &model.ContainerRuntime{Version: model.ClipText(r.Version, maxRuntimeVersion),
		Down: model.ClipText(r.Down, maxAgentText), Pulls: r.Pulls, Bridge: model.ClipText(r.Bridge, maxRuntimeVersion),
		NoBridge: model.ClipText(r.NoBridge, maxAgentText)}
	if r.Pulls {
		kept.Images = keptImages(r.Images)
	}
	return kept
}

// keptImages returns those images of a report that the state keeps: valid ones, each digest once, in order, at most
// MaxImages.
func keptImages(images []model.NodeImage) []model.NodeImage {
	kept := slices.DeleteFunc(slices.Clone(images), func(image model.NodeImage) bool {
		_, known := image.State.Known()
		return !known || !model.ValidDigest(image.Digest)
	})
	slices.SortStableFunc(kept, func(a, b model.NodeImage) int { return cmp.Compare(a.Digest, b.Digest) })
	kept = slices.CompactFunc(kept, func(a, b model.NodeImage) bool { return a.Digest == b.Digest })
	kept = kept[:min(len(kept), model.MaxImages)]
	for i := range kept {
		image := &kept[i]
		image.Bytes, image.Total = max(image.Bytes, 0), max(image.Total, 0)
		image.Words = model.ClipText(image.Words, maxAgentText)
	}
	return slices.Clip(kept)
}

// nodeImage returns the row of an image that keptImages has returned. old is what the node's agent reported before.
func (s *State) nodeImage(old *NodeRuntime, image model.NodeImage) NodeImage {
	state, _ := image.State.Known()
	next := NodeImage{Digest: image.Digest, State: state, Bytes: image.Bytes, Total: image.Total, Words: image.Words,
		Moved: s.Now, Missing: image.Missing}
	if was, known := old.image(image.Digest); known && was.State == next.State && was.Bytes == next.Bytes {
		next.Digest, next.Moved = was.Digest, was.Moved
	}
	return next
}

func compareImages(a, b NodeImage) int { return cmp.Compare(a.Digest, b.Digest) }

func soundImages(r *NodeRuntime) bool {
	return r == nil || len(r.Images) <= model.MaxImages && (r.Pulls || len(r.Images) == 0) &&
		slices.IsSortedFunc(r.Images, func(a, b NodeImage) int { return cmp.Or(compareImages(a, b), -1) })
}

// image returns what the agent last reported about an image. It returns false if the agent did not report it.
func (r *NodeRuntime) image(digest string) (NodeImage, bool) {
	if r == nil {
		return NodeImage{}, false
	}
	at, ok := slices.BinarySearchFunc(r.Images, digest, func(a NodeImage, digest string) int {
		return cmp.Compare(a.Digest, digest)
	})
	if !ok {
		return NodeImage{}, false
	}
	return r.Images[at], true
}

// Image returns what the node's agent last reported about an image, or false if it reported nothing.
func (n *Node) Image(digest string) (NodeImage, bool) { return n.Self.Runtime.image(digest) }

// LacksImage reports whether the group's program is an image that the node's agent pulls on order and does not have
// yet. Nothing that needs the image is placed there meanwhile.
func (n *Node) LacksImage(spec *model.GroupSpec) bool {
	if !n.Pulls(spec) || plant.Is(plant.PlacedBeforePulled) {
		return false
	}
	image, _ := n.Image(spec.Container.ImageDigest())
	return image.State != model.ImagePresent
}

// Pulls reports whether the group's program is an image, and the node's agent pulls images on order.
func (n *Node) Pulls(spec *model.GroupSpec) bool {
	return spec.Container != nil && n.Self.Runtime != nil && n.Self.Runtime.Pulls
}

// tellRuntime touches what depends on whether the node can run containers, and emits an event, if that has changed.
// next is the row that is about to be written.
func (s *State) tellRuntime(n, next *Node) {
	before := n.Self.Runtime.words()
	if before == next.Self.Runtime.words() {
		return
	}
	s.touch("nodes")
	s.noteLeftOut(&next.Self.Events, lastRuntime, before)
	s.emit(next.runtimeEvent(before))
}

// runtimeEvent returns the event for a change of the container runtime. before is the result of NodeRuntime.words
// before the change.
func (n *Node) runtimeEvent(before string) Event {
	data := map[string]string{"name": n.Name}
	if r := n.Self.Runtime; r != nil && r.Down != "" {
		data["reason"] = r.Down
	}
	return Event{Type: model.EventNodeRuntime, Subject: "node/" + string(n.ID), Before: before,
		After: n.Self.Runtime.words(), Data: data}
}

// words says in one phrase whether the node can run containers.
func (r *NodeRuntime) words() string {
	switch {
	case r == nil:
		return "none"
	case r.Down != "":
		return "down"
	}
	text := strings.TrimSpace("up " + r.Version)
	if r.Bridge != "" {
		text += ", bridge " + r.Bridge
	}
	return text
}

// WhyNoBridge returns why the node can't give containers a network of their own, or "" if it can.
func (r *NodeRuntime) WhyNoBridge() string {
	if r.Bridge == "" && r.NoBridge == "" {
		return "its agent is of an older release"
	}
	return r.NoBridge
}

// CanRun returns nil if a node has what the group's program needs, or the reason why not. It ignores for how long a
// runtime does not answer. Codes: no_container_runtime, no_container_network, constraint_unmatched if the image is for
// other platforms.
func (n *Node) CanRun(spec *model.GroupSpec) *model.Error {
	c := spec.Container
	switch {
	case c == nil:
		return nil
	case n.Self.Runtime == nil:
		return model.Refuse(model.CodeNoRuntime, "node %s has no container runtime", n.Name)
	case c.Network == model.NetworkBridge && n.Self.Runtime.Bridge == "":
		return model.Refuse(model.CodeNoNetwork, "node %s can't give a container a network of its own: %s", n.Name,
			n.Self.Runtime.WhyNoBridge())
	case !n.isFor(spec):
		return model.Refuse(model.CodeConstraint, "node %s is %s/%s, and the image is for %s", n.Name,
			n.Shape.Attributes["os"], n.Shape.Attributes["arch"], strings.Join(c.Platforms, ", "))
	}
	return nil
}

// Starts returns nil if a node can start the group's program now, or the reason why not. Codes: those of CanRun, and
// runtime_down.
func (n *Node) Starts(spec *model.GroupSpec) *model.Error {
	refusal := n.CanRun(spec)
	if refusal == nil && spec.Container != nil && n.Self.Runtime.Down != "" {
		refusal = model.Refuse(model.CodeRuntimeDown, "the container runtime of node %s does not answer: %s", n.Name,
			n.Self.Runtime.Down)
	}
	return refusal
}

// isFor reports whether the group's program is for the node's platform.
func (n *Node) isFor(spec *model.GroupSpec) bool {
	return spec.Container == nil || spec.Container.RunsOn(n.Shape.Attributes["os"], n.Shape.Attributes["arch"])
}

// Suits reports whether new instances of the group may run on a node as far as the job file decides: the node meets the
// constraints, and has what the program needs.
func (n *Node) Suits(spec *model.GroupSpec) bool {
	return n.CanRun(spec) == nil && n.MeetsAll(spec.Constraints)
}

// Keeps reports whether instances of the group that run on a node may go on as far as the job file decides. Other than
// Suits, it ignores what only a start needs: a container runtime and its networks.
func (n *Node) Keeps(spec *model.GroupSpec) bool {
	return n.isFor(spec) && n.MeetsAll(spec.Constraints)
}

// TakesProgram is Takes with what the group's program needs. Codes: node_not_eligible, and those of Node.Starts.
func (s *State) TakesProgram(n *Node, spec *model.GroupSpec) *model.Error {
	return cmp.Or(s.Takes(n, spec), n.Starts(spec))
}
