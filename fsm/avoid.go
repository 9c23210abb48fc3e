package fsm

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/model"
)

const (
	avoidLimit = 64               // entries on one node (R39)
	avoidFor   = model.Hour       // how long a group avoids a node
	pullAgain  = 5 * model.Minute // how long a version stays away from a node that could not pull its image
	avoidNodes = 3                // a version that has failed on this many nodes avoids no node

	failedLimit = 128             // failed pulls that one node remembers
	failedKept  = 24 * model.Hour // after the pause
)

// AvoidEntry is part of a node's row. It makes a group avoid the node, because an instance of the group failed there,
// or because a person requested this with an eviction. Placement then prefers every other node that fits, whatever the
// scores (R37, R40).
type AvoidEntry struct {
	Group model.GroupID `cbor:"1,keyasint"`
	// An entry is ignored from the time Until on. It is removed when the node gets its next entry.
	Until   model.Time `cbor:"2,keyasint"`
	Reason  string     `cbor:"3,keyasint,omitempty"`
	Version uint64     `cbor:"4,keyasint,omitempty"` // the version that avoids the node; 0 means all: a person asked
	// Pull says that the node could not pull the version's image. Nothing of the version is placed there until then.
	Pull bool `cbor:"5,keyasint,omitempty"`
}

// Avoids returns the entry that makes a version of a group avoid the node at cluster time now. It returns false if
// there is no such entry.
func (n *Node) Avoids(group model.GroupID, version uint64, now model.Time) (AvoidEntry, bool) {
	for _, a := range n.Avoid {
		if a.Group == group && now < a.Until && !a.Pull && (a.Version == 0 || a.Version == version) {
			return a, true
		}
	}
	return AvoidEntry{}, false
}

// FailedPull is an image that a node could not pull. Nothing that needs it is placed there before Until.
type FailedPull struct {
	Digest string         `cbor:"1,keyasint"`
	Words  string         `cbor:"2,keyasint"`           // why it could not be pulled, in the registry's words
	Pause  model.Duration `cbor:"3,keyasint"`           // from the failure to Until
	Until  model.Time     `cbor:"4,keyasint,omitempty"` // the row stays for failedKept longer
	// Missing says that the registry did not have the digest.
	Missing bool `cbor:"5,keyasint,omitempty"`
	// Group and Version are those of the claim that failed. Others may need the image too.
	Group   model.GroupID `cbor:"6,keyasint"`
	Version uint64        `cbor:"7,keyasint"`
}

// Kept reports whether the row counts at cluster time now. It stays in the state until the node gets its next one.
func (f *FailedPull) Kept(now model.Time) bool { return now < f.Until.Add(failedKept) }

// FailedPull returns what is recorded of a failed pull, also after its pause. It returns false if there is nothing: the
// node did not fail to pull the image, or has it by now.
func (n *Node) FailedPull(digest string) (FailedPull, bool) {
	at, ok := slices.BinarySearchFunc(n.FailedPulls, digest, func(f FailedPull, digest string) int {
		return cmp.Compare(f.Digest, digest)
	})
	if !ok {
		return FailedPull{}, false
	}
	return n.FailedPulls[at], true
}

// PullFailed returns the failed pull that keeps the image of a group's version away from the node. It returns false if
// there is none, or its pause is over.
func (n *Node) PullFailed(group model.GroupID, version uint64, digest string, now model.Time) (FailedPull, bool) {
	if f, ok := n.FailedPull(digest); ok && now < f.Until {
		return f, true
	}
	for _, a := range n.Avoid { // of entries of older programs
		if a.Pull && a.Group == group && a.Version == version && now < a.Until {
			return FailedPull{Digest: digest, Words: a.Reason, Until: a.Until}, true
		}
	}
	return FailedPull{}, false
}

// keepFailedPull records that a node could not pull an image, and replaces what is recorded of it. While its pause
// lasts, nothing changes: all claims to an image fail at once. If there are too many rows, the one that expires first
// is removed.
func keepFailedPull(s *State, node *Node, f FailedPull) {
	if old, ok := node.FailedPull(f.Digest); ok && s.Now < old.Until {
		return
	}
	f.Until, f.Words = s.Now.Add(f.Pause), model.ClipText(f.Words, maxAgentText)
	list := slices.DeleteFunc(slices.Clone(node.FailedPulls), func(old FailedPull) bool {
		return old.Digest == f.Digest || !old.Kept(s.Now)
	})
	if len(list) >= failedLimit {
		first := 0
		for i := range list {
			if list[i].Until < list[first].Until {
				first = i
			}
		}
		list = slices.Delete(list, first, first+1)
	}
	list = append(list, f)
	slices.SortFunc(list, func(a, b FailedPull) int { return cmp.Compare(a.Digest, b.Digest) })
	putFailedPulls(s, node, list)
}

func putFailedPulls(s *State, node *Node, list []FailedPull) {
	next := *node
	next.FailedPulls = list
	s.putNode(&next)
	s.touch("nodes", Topic("node/"+next.ID))
}

// pullAtOnce ends the pauses of the images of a job's groups on all nodes, because a person asks for a new try. group
// is one group, or "*".
func pullAtOnce(s *State, spec *model.JobSpec, group string) {
	var digests []string
	for i := range spec.Groups {
		if c := spec.Groups[i].Container; c != nil && (group == "*" || group == spec.Groups[i].Name) {
			digests = append(digests, c.ImageDigest())
		}
	}
	wanted := func(f FailedPull) bool { return slices.Contains(digests, f.Digest) }
	var listed []*Node
	for _, node := range s.Nodes.All() {
		if slices.ContainsFunc(node.FailedPulls, wanted) {
			listed = append(listed, node)
		}
	}
	for _, node := range listed {
		putFailedPulls(s, node, slices.DeleteFunc(slices.Clone(node.FailedPulls), wanted))
	}
}

func soundFailedPulls(n *Node) bool {
	return len(n.FailedPulls) <= failedLimit && slices.IsSortedFunc(n.FailedPulls, func(a, b FailedPull) int {
		return cmp.Or(cmp.Compare(a.Digest, b.Digest), -1)
	})
}

// Avoiding lists the entries that have not expired at cluster time now, in order of group.
func (n *Node) Avoiding(now model.Time) []AvoidEntry {
	var live []AvoidEntry
	for _, a := range n.Avoid {
		if now < a.Until {
			live = append(live, a)
		}
	}
	return live
}

// PullsPaused lists the failed pulls whose pause lasts at cluster time now, in order of digest.
func (n *Node) PullsPaused(now model.Time) (paused []FailedPull) {
	for _, f := range n.FailedPulls {
		if now < f.Until {
			paused = append(paused, f)
		}
	}
	return paused
}

// avoid adds an entry for the instance's group to the avoid list of the instance's node. If version is 0, the entry is
// for all versions, and replaces an older entry for all versions. Otherwise it replaces an older entry for a single
// version. A group of role system never avoids a node, because each of its instances belongs to one node.
func (s *State) avoid(inst *Instance, version uint64, reason string) {
	node, ok := s.Nodes.Get(inst.Node)
	group, known := s.Groups.Get(inst.Group)
	if !ok || !known || group.Role == model.RoleSystem {
		return
	}
	s.addAvoid(node, AvoidEntry{Group: inst.Group, Until: s.Now.Add(avoidFor), Reason: clipReason(reason),
		Version: version}, func(a AvoidEntry) bool {
		return !a.Pull && a.Group == inst.Group && (a.Version == 0) == (version == 0)
	})
}

// avoidPull keeps a version of a group away from a node for pullAgain, because the node could not pull its image. Only
// entries of older programs have it; keepFailedPull has replaced it.
func (s *State) avoidPull(node *Node, group model.GroupID, version uint64, words string) {
	s.addAvoid(node, AvoidEntry{Group: group, Until: s.Now.Add(pullAgain), Reason: model.ClipText(words, maxAgentText),
		Version: version, Pull: true}, func(a AvoidEntry) bool { return a.Pull && a.Group == group })
}

// addAvoid adds an entry to a node's list, in place of the expired entries and of those for which replaced returns
// true. If the list is full, the entry that expires first is removed.
func (s *State) addAvoid(node *Node, next AvoidEntry, replaced func(AvoidEntry) bool) {
	list := slices.DeleteFunc(slices.Clone(node.Avoid), func(a AvoidEntry) bool {
		return a.Until <= s.Now || replaced(a)
	})
	if len(list) >= avoidLimit {
		first := 0
		for i := range list {
			if list[i].Until < list[first].Until {
				first = i
			}
		}
		list = slices.Delete(list, first, first+1)
	}
	list = append(list, next)
	slices.SortFunc(list, compareAvoid)
	s.putAvoid(node, list)
}

// avoidOnRequest makes all versions of an instance's group avoid the instance's node, because a person requested this
// with an eviction. If message is empty, the reason names the log entry's actor.
func (s *State) avoidOnRequest(inst *Instance, message string) {
	s.avoid(inst, 0, "evicted: "+cmp.Or(message, string(s.entry.actor)))
}

func compareAvoid(a, b AvoidEntry) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), count(a.Pull)-count(b.Pull))
}

func (s *State) putAvoid(node *Node, list []AvoidEntry) {
	next := *node
	next.Avoid = list
	s.putNode(&next)
	s.touch("nodes", Topic("node/"+next.ID))
}

// stopAvoiding removes the entries of a node's list for which drop returns true.
func (s *State) stopAvoiding(node *Node, drop func(AvoidEntry) bool) {
	if slices.ContainsFunc(node.Avoid, drop) {
		s.putAvoid(node, slices.DeleteFunc(slices.Clone(node.Avoid), drop))
	}
}

// AvoidedOnRequest returns the time until which an instance's group avoids the instance's node because a person
// requested this with an eviction. It returns false if nobody did, or if that time is over.
func (s *fleet) AvoidedOnRequest(inst *Instance, now model.Time) (model.Time, bool) {
	node, ok := s.Nodes.Get(inst.Node)
	if !ok {
		return 0, false
	}
	for _, a := range node.Avoid {
		if a.Group == inst.Group && a.Version == 0 && now < a.Until {
			return a.Until, true
		}
	}
	return 0, false
}

// undoEviction undoes an eviction that a person requested. The instance's group no longer avoids the instance's node.
// If the stop has not begun, the eviction itself is withdrawn. Code: conflict (nobody requested that the group avoids
// the node).
func (s *State) undoEviction(inst *Instance) *model.Error {
	if _, avoids := s.AvoidedOnRequest(inst, s.Now); !avoids {
		return model.Refuse(model.CodeConflict, "nobody asked that %s avoids the node of instance %s", inst.Group, inst.ID)
	}
	node, _ := s.Nodes.Get(inst.Node)
	s.stopAvoiding(node, func(a AvoidEntry) bool { return a.Group == inst.Group && a.Version == 0 })
	if inst.Desired == model.DesiredRunning && inst.Eviction.Requested && inst.Eviction.Cause == model.CauseUser {
		s.mark(inst, false, "", "")
	}
	return nil
}

// avoidFailed makes the version of a failed instance avoid its node. But if the version has failed on avoidNodes nodes,
// the version is at fault, and no longer avoids these nodes.
func (s *State) avoidFailed(inst *Instance, failures []Failure, reason string) {
	var nodes []model.NodeID
	for _, f := range failures {
		if f.Version == inst.Version && servesBadly(f.Reason) && !slices.Contains(nodes, f.Node) {
			nodes = append(nodes, f.Node)
		}
	}
	if len(nodes) < avoidNodes {
		s.avoid(inst, inst.Version, reason)
		return
	}
	for _, id := range nodes {
		if node, ok := s.Nodes.Get(id); ok {
			s.stopAvoiding(node, func(a AvoidEntry) bool {
				return !a.Pull && a.Group == inst.Group && a.Version == inst.Version
			})
		}
	}
}

// forgetAvoided removes a purged job from the lists of all nodes, because a new job of that name numbers its versions
// from 1 again.
func (s *State) forgetAvoided(job model.JobName) {
	var listed []*Node
	for _, node := range s.Nodes.All() {
		if len(node.Avoid) > 0 {
			listed = append(listed, node)
		}
	}
	for _, node := range listed {
		s.stopAvoiding(node, func(a AvoidEntry) bool { return jobOf(a.Group) == job })
	}
}

// clipReason cuts a reason to about 128 bytes, to bound the size of a full avoid list.
func clipReason(reason string) string {
	const longest = 128
	for i := range reason {
		if i > longest {
			return reason[:i]
		}
	}
	return reason
}

// servesBadly reports whether a failure for this reason counts against the node. A restart of the machine or a lost
// connection does not.
func servesBadly(reason string) bool {
	return reason != "gone_from_node" && reason != string(model.CauseFenced)
}
