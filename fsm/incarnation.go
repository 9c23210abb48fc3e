package fsm

import (
	"fmt"

	"github.com/outspan/outspan/model"
)

// mintBits is how many low bits of a minted number are the log index. The bits above are the incarnation: indexes
// repeat after a restore, but a minted number must never be used twice.
const mintBits = 44

// MaxIncarnation is the highest incarnation that a minted number has room for.
const MaxIncarnation = 1<<(64-mintBits) - 1

// MomentNumber returns Moment as one number. Each entry has a higher number than all earlier entries, also than those
// that a restore lost. So Apply mints numbers with it, such as the epoch of a registration.
func (s *State) MomentNumber() uint64 { return momentNumber(s.Moment()) }

// Outlived reports whether a number was minted in an earlier incarnation. If so, the state already contains what the
// number was minted for, such as a node's registration, or a restore has lost it.
func (s *State) Outlived(number uint64) bool {
	return number < momentNumber(model.Seen{Incarnation: s.Incarnation})
}

// riseLimit bounds how far agents may raise the incarnation after one restore, so that a lying agent can't exhaust the
// numbers. The limit is far above the number of restores that happen between saving a snapshot and restoring it.
const riseLimit = 1024

func momentNumber(s model.Seen) uint64 { return s.Incarnation<<mintBits + s.Index }

// IndexOf returns the index of the state that made a number with MomentNumber.
func IndexOf(number uint64) uint64 { return number & (1<<mintBits - 1) }

// Moment returns the incarnation and the index of the state.
func (s *State) Moment() model.Seen { return model.Seen{Incarnation: s.Incarnation, Index: s.Index} }

// above returns the incarnation that the state needs so that a node's agent obeys it. seen is the newest state that the
// agent knows. If the agent knows entries that a restore lost, above returns a higher incarnation than the agent's. It
// refuses to do so after the restore is confirmed, beyond riseLimit, or if raised is true because the node has raised
// the incarnation before. Code: conflict.
func (s *State) above(node string, seen model.Seen, raised bool) (uint64, *model.Error) {
	switch {
	case seen.Index >= 1<<mintBits:
		return 0, model.Refuse(model.CodeConflict, "node %s has seen index %d, which no state reaches", node, seen.Index).
			WithHint("its journal is damaged: stop the agent, move its journal away and start it again")
	case seen.Before(s.Moment()): // the agent knows no entry that a restore lost
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
	next := max(s.Incarnation+1, c.Incarnation)
	if !c.Confirm && next > MaxIncarnation {
		return model.Refuse(model.CodeInvalid, "the incarnation %d is above %d", next, uint64(MaxIncarnation))
	}
	data := map[string]string{"restore_confirmed": fmt.Sprint(c.Confirm)}
	if c.Confirm {
		s.Unconfirmed, s.Confirmed = false, max(s.Now, 1)
	} else {
		s.Cluster.Lineages = c.Lineages
		s.Incarnation = next
		s.Restored, s.Unconfirmed = s.Incarnation, true
		s.beginRestore()
		if c.Recovered {
			data["tokens_revoked"] = fmt.Sprint(c.recoverTrust(s))
			s.voidAccessTokens()
		}
		if c.VoidPeople {
			voidPeople(s)
		}
	}
	s.callAgents()
	s.touch("services") // agents drop services that the state lacks once the restore is confirmed
	s.emit(Event{Type: model.EventSettings, Subject: "cluster", After: fmt.Sprint(s.Incarnation),
		Data: data})
	return nil
}

// callAgents makes every agent read its assignments again, even an agent whose long poll is already waiting.
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
