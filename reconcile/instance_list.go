package reconcile

import (
	"cmp"
	"iter"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// instanceList caches the instances of a group in order of slot and id.
type instanceList struct {
	rows []instanceRow
	look uint64 // number of the decision that last read the list

	follow  uint64          // while Cache.follows has this value, written is complete
	written []*fsm.Instance // instances written since the list was read; any row of each
}

// instanceRow is what passes need of nearly every instance. It is valid as long as the state has the same row of the
// instance and no node is added or removed.
type instanceRow struct {
	inst *fsm.Instance
	slot int
	at   int32 // position of the instance's node; -1 if that node does not exist
	calm bool  // the instance is ready, and its eviction is not requested
}

// nodeIndex maps node ids to their positions in order of id.
type nodeIndex struct {
	ids []model.NodeID
	at  map[model.NodeID]int
}

// placesOf returns the positions of a state's nodes. If nodes were added or removed since the last call, it drops all
// cached lists.
func (s *Cache) placesOf(nodes fsm.Table[model.NodeID, *fsm.Node]) *nodeIndex {
	same, i := s.places != nil && len(s.places.ids) == nodes.Len(), 0
	for id := range nodes.All() {
		if same = same && s.places.ids[i] == id; !same {
			break
		}
		i++
	}
	if same {
		return s.places
	}
	s.places = &nodeIndex{ids: make([]model.NodeID, 0, nodes.Len()), at: make(map[model.NodeID]int, nodes.Len())}
	for id := range nodes.All() {
		s.places.at[id] = len(s.places.ids)
		s.places.ids = append(s.places.ids, id)
	}
	s.instances = map[model.GroupID]*instanceList{}
	return s.places
}

// nodePlaces returns the positions of the nodes. It computes them once in a decision, because commands of a decision
// never add or remove a node.
func (p *pass) nodePlaces() *nodeIndex {
	if p.places == nil {
		p.places = p.seen.placesOf(p.state().Nodes)
	}
	return p.places
}

// instanceRows returns a group's instances in order of slot and id. It does not read rows again that are known to be
// unchanged. If one instance in a group of 10,000 has changed, this takes a twentieth of the time of reading all.
func (p *pass) instanceRows(id model.GroupID) []instanceRow {
	p.nodePlaces()
	r := p.seen.instances[id]
	if r == nil {
		r = &instanceList{}
		p.seen.instances[id] = r
	}
	if written, ok := p.writtenSince(r, id); ok {
		if r.look == p.seen.looks && len(written) > 0 {
			r.rows = slices.Clone(r.rows) // a view made earlier in this decision may use the slice
		}
		r.rows = p.patchRows(r.rows, written)
	} else {
		r.rows = p.readRows(id, r.rows)
	}
	r.look, r.follow, r.written = p.seen.looks, p.seen.follows, nil
	return r.rows
}

// writtenSince returns the instances of the group that were written since the list r was read: those passed to
// Cache.note and those that this decision wrote. ok is false if the whole list must be read again.
func (p *pass) writtenSince(r *instanceList, id model.GroupID) (written []*fsm.Instance, ok bool) {
	if !p.seen.followed || r.follow != p.seen.follows {
		return nil, false
	}
	written = r.written
	for _, inst := range p.plan.draft.Written() {
		if inst.Group == id {
			written = append(written, inst)
		}
	}
	return written, len(written) <= max(patchedRows, len(r.rows)/patchShare)
}

// A list is patched if at most patchedRows of its rows, or at most one in patchShare, were written. Otherwise it is
// faster to read the whole list.
const (
	patchedRows = 16
	patchShare  = 4
)

// patchRows updates the rows of the written instances in a list and returns the list. It changes the slice rows in
// place.
func (p *pass) patchRows(rows []instanceRow, written []*fsm.Instance) []instanceRow {
	for _, old := range written {
		i, there := slices.BinarySearchFunc(rows, old, func(row instanceRow, inst *fsm.Instance) int {
			return inSlotOrder(row.inst, inst)
		})
		inst, is := p.state().Instances.Get(old.ID)
		switch {
		case is && there:
			rows[i] = p.places.instanceRow(inst)
		case is:
			rows = slices.Insert(rows, i, p.places.instanceRow(inst))
		case there:
			rows = slices.Delete(rows, i, i+1)
		}
	}
	return rows
}

// readRows reads a group's rows. It takes unchanged rows from the slice known and never writes to that slice, which may
// be in use.
func (p *pass) readRows(id model.GroupID, known []instanceRow) []instanceRow {
	var rows []instanceRow // nil until the first row that has changed
	i := 0
	for inst := range p.state().InstancesFrom(id) {
		if i < len(known) && known[i].inst == inst {
			if rows != nil {
				rows = append(rows, known[i])
			}
			i++
			continue
		}
		if inst.Group != id {
			break
		}
		if rows == nil {
			rows = append(make([]instanceRow, 0, len(known)+slotsMore), known[:i]...)
		}
		for i < len(known) && inSlotOrder(known[i].inst, inst) <= 0 {
			i++
		}
		rows = append(rows, p.places.instanceRow(inst))
	}
	if rows == nil {
		rows = known[:i:i]
	}
	return rows
}

func inSlotOrder(a, b *fsm.Instance) int {
	return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.ID, b.ID))
}

func (x *nodeIndex) instanceRow(inst *fsm.Instance) instanceRow {
	row := instanceRow{inst: inst, slot: inst.Slot, at: -1, calm: inst.Ready() && !inst.Eviction.Requested}
	if at, ok := x.at[inst.Node]; ok {
		row.at = int32(at)
	}
	return row
}

// inService returns, by position of the node, whether the node is neither cordoned, draining nor disabled.
func (p *pass) inService() []bool {
	if p.nodesInService == nil {
		places := p.nodePlaces()
		p.nodesInService = make([]bool, len(places.ids))
		for i := range p.nodesInService {
			p.nodesInService[i] = true
		}
		for n := range p.state().OutOfService() {
			p.nodesInService[places.at[n.ID]] = false
		}
	}
	return p.nodesInService
}

// viewSlots reads a group's row and slots again.
func (p *pass) viewSlots(g *groupView) {
	g.row, _ = p.state().Groups.Get(g.id)
	g.retries, g.open, g.every, g.quiet = nil, nil, nil, 0
	g.rows = p.instanceRows(g.id)
	duty, renewing := p.inService(), g.renewing()
	var room []slotView // slot views are allocated slotsMore at a time
	for i, next := 0, 0; i < len(g.rows); i = next {
		row := &g.rows[i]
		next = i + 1
		for next < len(g.rows) && g.rows[next].slot == row.slot {
			next++
		}
		if next == i+1 && row.calm && row.at >= 0 && duty[row.at] && !(renewing && row.inst.Version != g.row.Version) {
			g.quiet++
			continue
		}
		if len(room) == cap(room) {
			room = make([]slotView, 0, slotsMore)
		}
		room = append(room, slotView{n: row.slot})
		slot := &room[len(room)-1]
		for _, row := range g.rows[i:next] {
			slot.take(row.inst)
		}
		slot.order()
		g.open = append(g.open, slot)
	}
}

const slotsMore = 16 // number of slot views, or of extra rows, allocated at a time

// quietRows iterates over the instances of the slots that are not in g.open.
func (g *groupView) quietRows() iter.Seq[*instanceRow] {
	return func(yield func(*instanceRow) bool) {
		open := g.open
		for i := range g.rows {
			row := &g.rows[i]
			for len(open) > 0 && open[0].n < row.slot {
				open = open[1:]
			}
			if (len(open) == 0 || open[0].n != row.slot) && !yield(row) {
				return
			}
		}
	}
}

// slots lists all slots that have or had an instance, in order. It makes the list at the first call, because few passes
// need the quiet slots.
func (g *groupView) slots() []*slotView {
	if g.every != nil {
		return g.every
	}
	g.every = make([]*slotView, 0, g.quiet+len(g.open))
	room, open := make([]slotView, 0, g.quiet), g.open
	for row := range g.quietRows() {
		for len(open) > 0 && open[0].n < row.slot {
			g.every, open = append(g.every, open[0]), open[1:]
		}
		room = append(room, slotView{n: row.slot, holder: row.inst})
		g.every = append(g.every, &room[len(room)-1])
	}
	g.every = append(g.every, open...)
	return g.every
}

// slot returns the view of a slot, which is empty if the slot never had an instance.
func (g *groupView) slot(n int) *slotView {
	if v := g.known(n); v != nil {
		return v
	}
	return &slotView{n: n}
}

// known returns the view of a slot that has or had an instance, or nil for any other slot.
func (g *groupView) known(n int) *slotView {
	slots := g.slots()
	i, ok := slices.BinarySearchFunc(slots, n, func(v *slotView, n int) int { return cmp.Compare(v.n, n) })
	if !ok {
		return nil
	}
	return slots[i]
}

// held returns the number of slots with a holder that scale-down does not stop.
func (g *groupView) held() int {
	n, slots := g.quiet, g.open
	if g.every != nil { // a slot counted in quiet may have been dropped since
		n, slots = 0, g.every
	}
	for _, v := range slots {
		if v.holder != nil && !v.dropped {
			n++
		}
	}
	return n
}
