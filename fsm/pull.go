package fsm

import (
	"cmp"
	"iter"
	"strings"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// An image is on a node before an instance that needs it is placed there (docs/model.md, "Pulls"). Until then the
// instance is a Pull: a slot's claim to the room that its next instance will take. The agent pulls the digests of its
// node's claims and reports how far it is in NodeRuntime.Images.

// maxPulls is both the number of digests that a node pulls at a time and the number of claims to one digest there.
const maxPulls = 64

// Pull is the claim of a slot to a node whose image is being pulled, or was pulled and is not used yet. A slot has at
// most one. It ends when the slot gets an instance, when the node goes offline, when a preemptor gets the room that it
// was to take over, and when the leader drops it.
type Pull struct {
	Group   model.GroupID `cbor:"1,keyasint"`
	Slot    int           `cbor:"2,keyasint"`
	Version uint64        `cbor:"3,keyasint"`
	Node    model.NodeID  `cbor:"4,keyasint"`
	Image   string        `cbor:"5,keyasint"` // name and digest
	Cause   model.Cause   `cbor:"6,keyasint"` // why the slot needs an instance
	// After is an instance of the slot on this node that is stopped before the claim is used. The claim takes over its
	// room and its ports. Empty if there is none, or if both are to run at a time.
	After       model.InstanceID `cbor:"7,keyasint,omitempty"`
	MemoryBytes int64            `cbor:"8,keyasint,omitempty"` // what the instance will take; 0 for a claim without room
	Ports       []int            `cbor:"9,keyasint,omitempty"` // static ports that the instance will take
	Since       model.Time       `cbor:"10,keyasint"`
}

// ImageWant claims a node for the next instance of a slot, and orders the image there. Bare claims no room: it is for
// an instance that makes room by preemption once the image is there.
//
// Codes: not_found; stale if the group or slot is not wanted any more; slot_taken if the slot has a claim; invalid;
// image_pulling if too much is pulled there already; node_not_eligible, no_container_runtime, runtime_down,
// no_container_network, constraint_unmatched, no_capacity_memory, no_capacity_ports.
type ImageWant struct {
	Group   model.GroupID    `cbor:"1,keyasint"`
	Slot    int              `cbor:"2,keyasint"`
	Version uint64           `cbor:"3,keyasint"`
	Node    model.NodeID     `cbor:"4,keyasint"`
	Cause   model.Cause      `cbor:"5,keyasint"`
	After   model.InstanceID `cbor:"6,keyasint,omitempty"`
	Bare    bool             `cbor:"7,keyasint,omitempty"`
}

// ImageDrop gives up a slot's claim. If Failed is not empty, the image could not be pulled for this reason, and nothing
// that needs it is placed on the node for the time of Pause, unless the image is there by now. Without a Pause, as in
// entries of older programs, the version stays away from the node for 5 minutes. Code: not_found.
type ImageDrop struct {
	Group  model.GroupID  `cbor:"1,keyasint"`
	Slot   int            `cbor:"2,keyasint"`
	Failed string         `cbor:"3,keyasint,omitempty"`
	Pause  model.Duration `cbor:"4,keyasint,omitempty"`
	// Missing says that the registry does not have the image's digest.
	Missing bool `cbor:"5,keyasint,omitempty"`
}

// Digest returns the digest of the claim's image.
func (c *Pull) Digest() string {
	_, digest, _ := strings.Cut(c.Image, "@")
	return digest
}

// Name returns the name of the claim's image, without its digest.
func (c *Pull) Name() string {
	name, _, _ := strings.Cut(c.Image, "@")
	return name
}

// Bare reports whether the claim holds no room.
func (c *Pull) Bare() bool { return c.MemoryBytes == 0 }

// Owner returns the name under which a claim owns static ports, as in PortOwner: GROUP/SLOT.
func (c *Pull) Owner() model.InstanceID {
	return model.InstanceID(strings.TrimSuffix(slotPrefix(c.Group, c.Slot), "/"))
}

func pullOnNodeKey(c *Pull) string { return string(c.Node) + "/" + slotPrefix(c.Group, c.Slot) }

// PullOf returns the claim of a slot, or false if it has none.
func (s *instances) PullOf(group model.GroupID, slot int) (*Pull, bool) {
	if s.Pulls.Len() == 0 {
		return nil, false
	}
	return s.Pulls.Get(slotPrefix(group, slot))
}

// PullsOf iterates over the claims of a group, in order of slot.
func (s *instances) PullsOf(group model.GroupID) iter.Seq[*Pull] {
	return pullsFrom(s.Pulls, string(group)+"/")
}

// PullsOn iterates over the claims to a node, in order of group and slot.
func (s *instances) PullsOn(node model.NodeID) iter.Seq[*Pull] {
	return pullsFrom(s.pullsOn, string(node)+"/")
}

func pullsFrom(rows Table[string, *Pull], prefix string) iter.Seq[*Pull] {
	return func(yield func(*Pull) bool) {
		for key, row := range rows.From(prefix) {
			if !strings.HasPrefix(key, prefix) || !yield(row) {
				return
			}
		}
	}
}

// setPull replaces a slot's claim in the tables. before is nil for a new claim, after is nil for one that ends.
func (s *instances) setPull(before, after *Pull) {
	if after != nil {
		s.Pulls.put(slotPrefix(after.Group, after.Slot), after)
	} else {
		s.Pulls.del(slotPrefix(before.Group, before.Slot))
	}
	s.indexPull(before, after)
}

// indexPull updates the index of claims by node. before or after is nil.
func (s *instances) indexPull(before, after *Pull) {
	if before != nil {
		s.pullsOn.del(pullOnNodeKey(before))
	}
	if after != nil {
		s.pullsOn.put(pullOnNodeKey(after), after)
	}
}

// takes returns how much memory of the node a claim takes beside what is placed there.
func (c *Pull) takes(s *instances) int64 {
	if c == nil {
		return 0
	}
	if old, ok := s.Instances.Get(c.After); ok && old.takesRoom() && old.Node == c.Node {
		return max(c.MemoryBytes-old.Claims.Resources.MemoryBytes, 0)
	}
	return c.MemoryBytes
}

// setPull replaces a slot's claim, and updates what its node promises. before is nil for a new claim, after is nil for
// one that ends. The node's agent gets the new list of images.
func (s *State) setPull(before, after *Pull) {
	row := cmp.Or(after, before)
	s.instances.setPull(before, after)
	s.touchObject("job/", string(jobOf(row.Group)))
	if n, ok := s.Nodes.Get(row.Node); ok {
		next := *n
		next.Promised, next.Assigned = s.promisedOn(n.ID), s.Index
		s.putNode(&next)
		s.touchObject("assigned/", string(n.ID))
	}
}

// dropPulls ends the claims for which drop returns true.
func (s *State) dropPulls(rows iter.Seq[*Pull], drop func(*Pull) bool) {
	var ended []*Pull
	for c := range rows {
		if drop(c) {
			ended = append(ended, c)
		}
	}
	for _, c := range ended {
		s.setPull(c, nil)
	}
}

// dropPullsOn ends all claims to a node.
func (s *State) dropPullsOn(node model.NodeID) {
	s.dropPulls(s.PullsOn(node), func(*Pull) bool { return true })
}

// dropPullsAfter ends the claims that were to take over the room of instances, because a preemptor gets it.
func dropPullsAfter(s *State, awaits []model.InstanceID) {
	for _, id := range awaits {
		if victim, ok := s.Instances.Get(id); ok && s.stopsForPull(victim) {
			s.dropPulls(s.PullsOf(victim.Group), func(c *Pull) bool { return c.After == id })
		}
	}
}

// Pulled reports whether the image of a claim is on its node.
func (s *State) Pulled(c *Pull) bool {
	n, ok := s.Nodes.Get(c.Node)
	if !ok {
		return false
	}
	image, _ := n.Image(c.Digest())
	return image.State == model.ImagePresent
}

func (c *ImageWant) apply(s *State) error {
	g, spec, node, refusal := wantedOn(s, c.Group, c.Version, c.Node)
	if refusal != nil {
		return refusal
	}
	switch {
	case !node.Pulls(spec) || !c.Cause.Valid():
		return model.Refuse(model.CodeInvalid, "%s needs no image on node %s, or %q is no cause", c.Group, node.Name, c.Cause)
	case c.Slot < 0 || g.Role != model.RoleSystem && c.Slot >= g.Count && !s.runsInSlot(c.Group, c.Slot):
		return model.Refuse(model.CodeStale, "group %s has no slot %d", c.Group, c.Slot)
	}
	if held, taken := s.PullOf(c.Group, c.Slot); taken {
		return model.Refuse(model.CodeSlotTaken, "slot %d of %s waits for its image on node %s", c.Slot, c.Group, held.Node)
	}
	cause, _ := c.Cause.Known()
	row := &Pull{Group: g.ID, Slot: c.Slot, Version: c.Version, Node: node.ID, Image: spec.Container.Image, Cause: cause,
		After: c.After, Since: s.Now}
	if plant.Is(plant.ResolvedTwice) {
		row.Image = spec.Container.ImageName()
	}
	if !c.Bare {
		row.MemoryBytes, row.Ports = s.ClaimsOf(spec, nil).Resources.MemoryBytes, staticPorts(spec)
	}
	if old, ok := s.Instances.Get(c.After); c.After != "" &&
		(!ok || old.Group != c.Group || old.Slot != c.Slot || old.Node != c.Node) {
		return model.Refuse(model.CodeStale, "instance %s is not in slot %d of %s on node %s", c.After, c.Slot, c.Group,
			node.Name)
	}
	if refusal := cmp.Or(s.TakesProgram(node, spec), s.pullsMore(node, row), s.roomFor(node, row)); refusal != nil {
		return refusal
	}
	s.setPull(nil, row)
	return nil
}

// runsInSlot reports whether an instance of the slot should run. A slot above the group's count may have one for a
// while, which can be replaced.
func (s *instances) runsInSlot(group model.GroupID, slot int) bool {
	for inst := range s.InstancesInSlot(group, slot) {
		if inst.Desired == model.DesiredRunning {
			return true
		}
	}
	return false
}

// staticPorts returns the static ports of a group, in the order of the spec.
func staticPorts(spec *model.GroupSpec) []int {
	var ports []int
	for _, p := range spec.Ports {
		if p.Static != 0 {
			ports = append(ports, p.Static)
		}
	}
	return ports
}

// pullsMore refuses a claim to a node that has too many. Code: image_pulling.
func (s *State) pullsMore(n *Node, row *Pull) *model.Error {
	digests, same := map[string]bool{row.Digest(): true}, 1
	for c := range s.PullsOn(n.ID) {
		digests[c.Digest()] = true
		same += count(c.Digest() == row.Digest())
	}
	if len(digests) > maxPulls || same > maxPulls {
		return model.Refuse(model.CodeImagePulling, "node %s pulls images for %d other instances already", n.Name, maxPulls)
	}
	return nil
}

// roomFor refuses a claim that does not fit on its node. Codes: no_capacity_memory, no_capacity_ports.
func (s *State) roomFor(n *Node, row *Pull) *model.Error {
	if need := row.takes(&s.instances); need > max(n.FreeBytes(), 0) {
		return model.Refuse(model.CodeNoMemory, "node %s has %d MiB left, %d MiB are needed", n.Name, n.FreeBytes()>>20,
			need>>20)
	}
	for _, port := range row.Ports {
		if owner, taken := s.PortOwner(n.ID, port); taken && (owner != row.After || row.After == "") {
			return model.Refuse(model.CodeNoPorts, "port %d of node %s belongs to instance %s", port, n.Name, owner)
		}
	}
	return nil
}

func (c *ImageDrop) apply(s *State) error {
	row, ok := s.PullOf(c.Group, c.Slot)
	if !ok {
		return model.Refuse(model.CodeNotFound, "slot %d of %s waits for no image", c.Slot, c.Group)
	}
	s.setPull(row, nil)
	n, ok := s.Nodes.Get(row.Node)
	switch {
	case !ok || c.Failed == "":
	case c.Pause > 0 && s.Pulled(row): // a later try of the agent has succeeded
	case c.Pause > 0:
		keepFailedPull(s, n, FailedPull{Digest: row.Digest(), Words: c.Failed, Pause: c.Pause, Missing: c.Missing,
			Group: row.Group, Version: row.Version})
	default:
		s.avoidPull(n, row.Group, row.Version, c.Failed)
	}
	return nil
}

// claimOf returns the claim that an instance.place uses: that of its slot, if it is to the same node. The claim ends
// with the placement, so its room is the instance's.
func (c *InstancePlace) claimOf(s *State) *Pull {
	if row, ok := s.PullOf(c.Group, c.Slot); ok && row.Node == c.Node {
		return row
	}
	return nil
}

// hasImage refuses a placement on a node that does not have the image yet. Code: image_pulling.
func (s *State) hasImage(n *Node, spec *model.GroupSpec) *model.Error {
	if n.LacksImage(spec) {
		return model.Refuse(model.CodeImagePulling, "node %s does not have the image %s yet", n.Name,
			spec.Container.ImageName())
	}
	return nil
}

// heldForPulls returns the memory that the claims to a node take beside what is placed there.
func (s *instances) heldForPulls(node model.NodeID) int64 {
	if plant.Is(plant.RoomNotHeld) {
		return 0
	}
	sum := int64(0)
	for c := range s.PullsOn(node) {
		sum += c.takes(s)
	}
	return sum
}

// stopsForPull reports whether a claim takes over the room of an instance.
func (s *instances) stopsForPull(inst *Instance) bool {
	c, ok := s.PullOf(inst.Group, inst.Slot)
	return ok && c.After == inst.ID
}

// pullOwner returns the claim that owns a port of a node, or false if none does.
func (s *instances) pullOwner(node model.NodeID, port int) (model.InstanceID, bool) {
	if s.pullsOn.Len() == 0 {
		return "", false
	}
	for c := range s.PullsOn(node) {
		for _, p := range c.Ports {
			if p == port {
				return c.Owner(), true
			}
		}
	}
	return "", false
}
