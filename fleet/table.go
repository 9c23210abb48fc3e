package fleet

import (
	"math"
	"slices"

	"github.com/outspan/outspan/api/frame"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// table has what the stream shows of one state, and the handles of its rows. Only the Publisher uses it.
type table struct {
	nodes, groups, instances grid

	nodeOf     map[model.NodeID]uint32
	groupOf    map[model.GroupID]uint32
	instanceOf map[model.InstanceID]uint32

	nodeIDs []model.NodeID // by handle

	jobs     map[model.JobName]*job // of groups that have rows
	ofGroup  []*job                 // by handle
	onGroup  []int                  // number of instances, by handle
	regraded bool                   // a job's class or a node's name changed, so rights may give other answers

	states   [8]int // nodes by state; 0 is not used
	observed [9]int // instances by observed state; 0 is not used
}

// job is what rights need to know of a job.
type job struct {
	name   model.JobName
	class  model.ClassName
	groups int // that have rows
}

// grid is a table of columns with its free handles.
type grid struct {
	frame.Table
	rows    int
	present set // handles that have a row
	free    []uint32
	freed   []uint32 // in this tick; they are free from the next one on
}

// reserve allocates memory for n rows.
func (g *grid) reserve(n int) {
	for i := range g.Columns {
		g.Columns[i] = make([]uint32, 0, n)
	}
}

// take returns a free handle for a row. The row is empty until the caller writes a State.
func (g *grid) take() (h uint32) {
	g.rows++
	if n := len(g.free); n > 0 {
		h = g.free[n-1]
		g.free = g.free[:n-1]
	} else {
		h = uint32(g.Len())
		g.Grow(int(h) + 1)
	}
	g.present.set(h, true)
	return h
}

// drop removes the row at a handle.
func (g *grid) drop(h uint32) {
	g.Columns[frame.State][h] = 0
	if g.Names != nil {
		g.Names[h] = ""
	}
	g.freed = append(g.freed, h)
	g.present.set(h, false)
	g.rows--
}

func (g *grid) reuse() { g.free, g.freed = append(g.free, g.freed...), g.freed[:0] }

// of returns the table of a kind.
func (t *table) of(kind frame.Kind) *grid {
	switch kind {
	case frame.KindNodes:
		return &t.nodes
	case frame.KindGroups:
		return &t.groups
	default:
		return &t.instances
	}
}

// change is an instance whose row changed, and its State, node and group before. State is 0 if it had no row. Then node
// and group are those of the new row.
type change struct {
	at                 uint32
	state, node, group uint32
	fresh              bool // it had no row, or another node or group
}

// changes are the rows that changed in a tick.
type changes struct {
	nodes, groups []uint32
	nodeStates    []uint32 // of nodes, before; 0: no row
	instances     []change
}

func newTable(state *fsm.State) *table {
	t := &table{
		nodes: grid{Table: frame.NewTable(frame.KindNodes)}, groups: grid{Table: frame.NewTable(frame.KindGroups)},
		instances: grid{Table: frame.NewTable(frame.KindInstances)},
		nodeOf:    map[model.NodeID]uint32{}, groupOf: map[model.GroupID]uint32{}, jobs: map[model.JobName]*job{},
		instanceOf: make(map[model.InstanceID]uint32, state.Instances.Len()),
	}
	t.nodes.reserve(state.Nodes.Len())
	t.instances.reserve(state.Instances.Len())
	var all changes
	for _, n := range state.Nodes.All() {
		t.putNode(n, &all)
	}
	for id := range state.Instances.All() {
		t.setInstance(state, id, &all)
	}
	t.regraded = false
	return t
}

// update takes over the rows that may have changed.
func (t *table) update(state *fsm.State, touched fsm.Touched) (all changes) {
	t.nodes.reuse()
	t.groups.reuse()
	t.instances.reuse()
	t.regraded = false
	nodes := make(map[model.NodeID]bool, len(touched.Nodes))
	for _, id := range touched.Nodes {
		nodes[id] = true
	}
	for _, id := range touched.Instances { // with them changes what is allocated on their nodes
		if i, ok := state.Instances.Get(id); ok {
			nodes[i.Node] = true
		}
		if h, ok := t.instanceOf[id]; ok && t.instances.Columns[frame.InstanceNode][h] != frame.None {
			nodes[t.nodeIDs[t.instances.Columns[frame.InstanceNode][h]]] = true
		}
	}
	for id := range nodes {
		if n, ok := state.Nodes.Get(id); ok {
			t.putNode(n, &all)
		}
	}
	for _, id := range touched.Instances {
		t.setInstance(state, id, &all)
	}
	for id := range nodes { // after the instances that were there
		if !state.Nodes.Has(id) {
			t.dropNode(id, &all)
		}
	}
	for _, name := range touched.Jobs {
		if j, ok := t.jobs[name]; ok {
			t.grade(state, j)
		}
	}
	return all
}

// putNode writes the row of a node.
func (t *table) putNode(n *fsm.Node, all *changes) {
	h, known := t.nodeOf[n.ID]
	if !known {
		h = t.nodes.take()
		t.nodeOf[n.ID] = h
		if grown := t.nodes.Len(); grown > len(t.nodeIDs) {
			t.nodeIDs = append(t.nodeIDs, make([]model.NodeID, grown-len(t.nodeIDs))...)
		}
		t.nodeIDs[h] = n.ID
	}
	can := n.Allocatable()
	row := [...]uint32{
		frame.State: nodeState(n.State()), frame.NodeCPU: small(can.CPU), frame.NodeMemory: small(can.MemoryBytes >> 20),
		frame.NodeCPUPlaced: small(n.Placed.CPU), frame.NodeMemoryPlaced: small(n.Placed.MemoryBytes >> 20),
		frame.NodeInstances: small(int64(n.Placed.Instances)),
	}
	before := t.nodes.Columns[frame.State][h]
	count(t.states[:], before, row[frame.State])
	same := known && t.nodes.Names[h] == n.Name
	t.regraded = t.regraded || known && !same
	for i, v := range row {
		same = same && t.nodes.Columns[i][h] == v
		t.nodes.Columns[i][h] = v
	}
	t.nodes.Names[h] = n.Name
	if !same {
		all.nodes, all.nodeStates = append(all.nodes, h), append(all.nodeStates, before)
	}
}

func (t *table) dropNode(id model.NodeID, all *changes) {
	h, ok := t.nodeOf[id]
	if !ok {
		return
	}
	all.nodes, all.nodeStates = append(all.nodes, h), append(all.nodeStates, t.nodes.Columns[frame.State][h])
	count(t.states[:], t.nodes.Columns[frame.State][h], 0)
	delete(t.nodeOf, id)
	t.nodes.drop(h)
}

// setInstance writes or removes the row of an instance. An instance that ended has no row.
func (t *table) setInstance(state *fsm.State, id model.InstanceID, all *changes) {
	i, ok := state.Instances.Get(id)
	h, known := t.instanceOf[id]
	if !ok || i.Terminal() {
		if known {
			t.dropInstance(id, h, all)
		}
		return
	}
	node, on := t.nodeOf[i.Node]
	if !on {
		node = frame.None
	}
	if !known {
		h = t.instances.take()
		t.instanceOf[id] = h
	}
	columns := t.instances.Columns
	one := change{at: h, state: columns[frame.State][h], node: columns[frame.InstanceNode][h],
		group: columns[frame.InstanceGroup][h]}
	var group uint32
	if one.fresh = !known; known { // its group never changes
		group = one.group
	} else {
		group = t.holdGroup(state, i.Group, all)
		one.node, one.group = node, group
	}
	one.fresh = one.fresh || one.node != node
	row := [...]uint32{frame.State: instanceState(i), frame.InstanceNode: node, frame.InstanceGroup: group,
		frame.InstanceSlot: small(int64(i.Slot))}
	count(t.observed[:], one.state&frame.InstanceObserved, row[frame.State]&frame.InstanceObserved)
	same := known
	for c, v := range row {
		same = same && columns[c][h] == v
		columns[c][h] = v
	}
	if !same {
		all.instances = append(all.instances, one)
	}
}

func (t *table) dropInstance(id model.InstanceID, h uint32, all *changes) {
	columns := t.instances.Columns
	one := change{at: h, state: columns[frame.State][h], node: columns[frame.InstanceNode][h],
		group: columns[frame.InstanceGroup][h]}
	all.instances = append(all.instances, one)
	count(t.observed[:], one.state&frame.InstanceObserved, 0)
	delete(t.instanceOf, id)
	t.instances.drop(h)
	t.releaseGroup(one.group, all)
}

// holdGroup counts one more instance of a group, and returns the handle of the group.
func (t *table) holdGroup(state *fsm.State, id model.GroupID, all *changes) uint32 {
	h, ok := t.groupOf[id]
	if !ok {
		h = t.groups.take()
		t.groupOf[id] = h
		t.groups.Columns[frame.State][h], t.groups.Names[h] = 1, string(id)
		if grown := t.groups.Len(); grown > len(t.ofGroup) {
			t.ofGroup = append(t.ofGroup, make([]*job, grown-len(t.ofGroup))...)
			t.onGroup = append(t.onGroup, make([]int, grown-len(t.onGroup))...)
		}
		name, _ := id.Split()
		j := t.jobs[name]
		if j == nil {
			j = &job{name: name}
			t.grade(state, j)
			t.jobs[name] = j
		}
		j.groups++
		t.ofGroup[h] = j
		all.groups = append(all.groups, h)
	}
	t.onGroup[h]++
	return h
}

// releaseGroup counts one instance of a group less, and removes the row of the group with its last instance.
func (t *table) releaseGroup(h uint32, all *changes) {
	if t.onGroup[h]--; t.onGroup[h] > 0 {
		return
	}
	j := t.ofGroup[h]
	if j.groups--; j.groups == 0 {
		delete(t.jobs, j.name)
	}
	delete(t.groupOf, model.GroupID(t.groups.Names[h]))
	t.ofGroup[h] = nil
	t.groups.drop(h)
	all.groups = append(all.groups, h)
}

// grade notes the class of a job. A job that the state does not have counts as one of the default class, as it does for
// the rest of the API.
func (t *table) grade(state *fsm.State, j *job) {
	class := model.ClassProduction
	if row, ok := state.Jobs.Get(j.name); ok {
		class = row.Class
	}
	t.regraded = t.regraded || j.class != "" && j.class != class
	j.class = class
}

func nodeState(s model.NodeState) uint32 { return uint32(slices.Index(frame.NodeStates(), s) + 1) }

func instanceState(i *fsm.Instance) uint32 {
	s := uint32(slices.Index(frame.ObservedStates(), i.Status.Observed) + 1)
	switch i.Desired {
	case model.DesiredDraining:
		s |= frame.DesiredDraining
	case model.DesiredStopped:
		s |= frame.DesiredStopped
	case model.DesiredRunning:
	}
	if i.Eviction.Requested {
		s |= frame.InstanceRequested
	}
	if i.Links.HasVolumes {
		s |= frame.InstanceVolumes
	}
	return s
}

// count moves one row from a state to another; 0 is none.
func count(numbers []int, before, after uint32) {
	if before != 0 {
		numbers[before]--
	}
	if after != 0 {
		numbers[after]++
	}
}

// small returns a value that fits into 32 bits.
func small(v int64) uint32 { return uint32(min(max(v, 0), math.MaxUint32-1)) }
