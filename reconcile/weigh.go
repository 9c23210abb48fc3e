package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// groupTally is a group at rest whose preferences a move might meet better.
type groupTally struct {
	id    model.GroupID
	row   *fsm.Group
	spec  *model.GroupSpec
	nodes []model.NodeID
	hint  int64 // upper bound of what a move could gain in preferences
}

// weigh computes the load of each node, and lists the nodes to which an instance could move.
func (b *balancer) weigh() {
	p := b.p
	views := p.candidates().views
	b.all, b.loads = make([]load, len(views)), make([]*load, 0, len(views))
	for i, v := range views {
		l := &b.all[i]
		*l = load{view: v, memory: v.held.MemoryBytes + v.promised, cpu: v.held.CPU, eligible: v.refusal == nil &&
			!v.detour && v.size.MemoryBytes > 0}
		if l.eligible {
			b.loads = append(b.loads, l)
		}
	}
	for inst := range p.state().Departing() {
		b.leave(inst)
	}
	b.average()
}

// tallies lists, in order of id, the groups whose preferences a move could meet better. For a group whose row has not
// changed it uses the cached result, unless a node has changed. Callers need at least one node that can be a target.
func (b *balancer) tallies() []*groupTally {
	seen := b.p.seen
	seen.look(b.all)
	counts, n := map[model.NodeID]int{}, 0
	var worth []*groupTally
	for id, row := range b.p.state().Groups.All() {
		t := b.tallyOf(row)
		if t == nil {
			continue
		}
		if known := seen.groups[id]; known.row == t.row {
			t.hint = known.hint
			if n++; (uint64(n)+seen.looks)%refreshed == 0 {
				b.p.instanceRows(id)
			}
		} else {
			for _, row := range b.p.instanceRows(id) {
				if row.calm || row.inst.Desired == model.DesiredRunning {
					t.nodes = append(t.nodes, row.inst.Node)
				}
			}
			t.hint = b.hint(t, counts)
			seen.groups[id] = seenGroup{t.row, t.hint}
		}
		if t.hint > 0 {
			worth = append(worth, t)
		}
	}
	return worth
}

// load returns the load of a node, or nil if the node was forgotten.
func (b *balancer) load(id model.NodeID) *load {
	if v := b.p.candidates().view(id); v != nil {
		return &b.all[v.at]
	}
	return nil
}

// leave subtracts a leaving instance from its node's load.
func (b *balancer) leave(inst *fsm.Instance) {
	if l := b.load(inst.Node); l != nil && inst.Status.Observed != model.ObservedStopped {
		l.memory -= inst.Claims.Resources.MemoryBytes
		l.cpu -= inst.Claims.Resources.CPU
	}
}

// average sets b.mean to the mean use of the possible targets, weighted by their size.
func (b *balancer) average() {
	held, room := int64(0), int64(0)
	for _, l := range b.loads {
		held += l.memory >> 20
		room += l.view.node.Allocatable().MemoryBytes >> 20
	}
	b.mean = full
	if room > 0 {
		b.mean = held * full / room
	}
}

// tallyOf starts a group's tally. It returns nil if the group's instances may not be moved, or if no move can help it.
func (b *balancer) tallyOf(row *fsm.Group) *groupTally {
	if b.busy[row.ID] || row.Role == model.RoleSystem {
		return nil
	}
	spec, known := b.p.state().Policy(row.ID)
	if !known || row.Count < 2 && len(spec.Affinities) == 0 || !movable(spec) {
		return nil
	}
	return &groupTally{id: row.ID, row: row, spec: spec}
}
