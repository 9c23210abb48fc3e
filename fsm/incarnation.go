package fsm

import (
	"fmt"

	"github.com/outspan/outspan/model"
)

// mintBits is the number of low bits that hold the log index in a number that must never be used twice. The bits above
// hold the incarnation, because indexes repeat after a restore.
const mintBits = 44

// mint returns a number that is higher than all that earlier entries minted, in this state and in those from before a
// restore.
func (s *State) mint() uint64 { return momentNumber(s.Moment()) }

// Outlived reports whether a number was minted in an earlier incarnation. Then what it names is in the state already,
// or a restore has lost it.
func (s *State) Outlived(number uint64) bool {
	return number < momentNumber(model.Seen{Incarnation: s.Incarnation})
}

// riseLimit bounds how far agents may raise the incarnation after one restore. More restores than that hardly fit
// between a snapshot and the present, and a lying agent can't use up the numbers.
const riseLimit = 1024

func momentNumber(s model.Seen) uint64 { return s.Incarnation<<mintBits + s.Index }

// Moment is the state's own place in its history.
func (s *State) Moment() model.Seen { return model.Seen{Incarnation: s.Incarnation, Index: s.Index} }

// above returns an incarnation in which an agent obeys this state. Normally that is the current one. An agent that has
// seen a newer state got it from entries that a restore lost. Until the restore is confirmed, the incarnation then
// rises above what the agent saw. It rises once for each node, so that a lying agent can't use up the numbers. Code:
// conflict.
func (s *State) above(node string, seen model.Seen, raised bool) (uint64, *model.Error) {
	switch {
	case seen.Index >= 1<<mintBits:
		return 0, model.Refuse(model.CodeConflict, "node %s has seen index %d, which no state reaches", node, seen.Index).
			WithHint("its journal is damaged: stop the agent, move its journal away and start it again")
	case seen.Before(s.Moment()): // the usual case: the state is newer than all that the node saw
		return s.Incarnation, nil
	case s.Unconfirmed && !raised && seen.Incarnation < s.Restored+riseLimit:
		return seen.Incarnation + 1, nil
	}
	return 0,
		model.Refuse(model.CodeConflict,
			"node %s has seen incarnation %d at index %d; this state is older: incarnation %d at index %d", node,
			seen.Incarnation, seen.Index, s.Incarnation, s.Index).
			WithHint("the servers were restored without what this node was told; to take it over, save a snapshot and restore " +
				"it: outspan server snapshot save FILE, then restore FILE")
}

func (c *RestoreMark) apply(s *State) error {
	if len(c.Lineages) > model.MaxHistory {
		return model.Refuse(model.CodeInvalid, "the lineages take %d bytes; at most %d are allowed",
			len(c.Lineages), model.MaxHistory)
	}
	if c.Confirm {
		s.Unconfirmed, s.Confirmed = false, max(s.Now, 1)
	} else {
		s.Cluster.Lineages = c.Lineages
		s.Incarnation++
		s.Restored, s.Unconfirmed = s.Incarnation, true
		s.beginRestore()
	}
	s.callAgents()
	s.touch("services") // until the confirmation agents keep services that the state lacks
	s.emit(Event{Type: model.EventSettings, Subject: "cluster", After: fmt.Sprint(s.Incarnation),
		Data: map[string]string{"restore_confirmed": fmt.Sprint(c.Confirm)}})
	return nil
}

// callAgents makes every agent ask again what it must run, even if its request is already on its way.
func (s *State) callAgents() {
	var nodes []*Node
	for _, n := range s.Nodes.All() {
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		next := *n
		next.Assigned = s.Index
		s.putNode(&next)
		s.touch(Topic("assigned/" + n.ID))
	}
}
