package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// checkPulls checks each claim: its group, version and node exist, the node is not offline, and its ports are its own.
// It adds the memory that the claim takes to what its node must promise.
func checkPulls(c *checker) {
	type image struct {
		node   model.NodeID
		digest string
	}
	claims := map[image]int{}
	digests := map[model.NodeID]int{}
	for key, row := range c.s.Pulls.All() {
		c.want(key == slotPrefix(row.Group, row.Slot), "claim %s: its row says slot %d of %s", key, row.Slot, row.Group)
		index, _ := c.s.pullsOn.Get(pullOnNodeKey(row))
		c.want(index == row, "claim %s: the index of node %s has another row", key, row.Node)
		n, ok := c.s.Nodes.Get(row.Node)
		c.want(ok && n.Health != model.HealthOffline, "claim %s: its node %s is gone or offline", key, row.Node)
		c.want(c.s.Groups.Has(row.Group), "claim %s: its group does not exist", key)
		spec, ok := c.s.Spec(row.Group, row.Version)
		c.want(ok && spec.Container != nil && spec.Container.Image == row.Image,
			"claim %s: version %d has no image %s", key, row.Version, row.Image)
		c.want(row.Cause.Valid() && row.Since <= c.s.Now && row.MemoryBytes >= 0, "claim %s: %+v", key, row)
		here := image{row.Node, row.Digest()}
		if claims[here]++; claims[here] == 1 {
			digests[row.Node]++
		}
		c.want(claims[here] <= maxPulls && digests[row.Node] <= maxPulls, "claim %s: node %s has too many", key, row.Node)
		takes := row.MemoryBytes
		old, there := c.s.Instances.Get(row.After)
		if there && old.Node == row.Node && old.takesRoom() {
			takes = max(takes-old.Claims.Resources.MemoryBytes, 0)
		}
		c.waits[row.Node] += takes
		for _, port := range row.Ports {
			owner, _ := c.s.PortOwner(row.Node, port)
			c.holds(S1, owner == row.Owner() || there && owner == old.ID, "port %d of node %s: claim %s has it, %q owns it",
				port, row.Node, key, owner)
		}
	}
	c.sizes([]indexSize{{"claims of nodes", c.s.pullsOn.Len(), c.s.Pulls.Len()}})
}

// checkPlaced checks that a new instance of an image is on a node that has the image, if the node's agent pulls on
// order. Between states that are further apart than one entry, the image may have come and gone again.
func checkPlaced(c *checker, before *State) {
	if c.s.Index != before.Index+1 {
		return
	}
	for id, row := range differences(before.Instances, c.s.Instances) {
		if row.had || row.after.Status.Observed != model.ObservedPending {
			continue
		}
		spec, ok := c.s.Spec(row.after.Group, row.after.Version)
		n, there := c.s.Nodes.Get(row.after.Node)
		if !ok || !there || !n.Pulls(spec) {
			continue
		}
		digest := spec.Container.ImageDigest()
		had := slices.ContainsFunc([]*State{before, c.s}, func(s *State) bool {
			n, ok := s.Nodes.Get(row.after.Node)
			if !ok {
				return false
			}
			image, _ := n.Image(digest)
			return image.State == model.ImagePresent
		})
		c.holds(S21, had, "instance %s was placed on node %s, which has no image %s", id, row.after.Node, digest)
	}
}
