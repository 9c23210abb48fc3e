package fleet

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/outspan/outspan/api/frame"
)

// view is what readers of the same rights and scope see of the table. Only the Publisher uses it.
type view struct {
	key   string
	sight Sight
	scope Scope
	conns []*conn

	// whole says that every row is shown. Then the sets below are not used.
	whole     bool
	shown     set      // instances
	hidden    set      // instances of the scope that the readers may not see
	onNode    []uint32 // number of shown instances, by the handle of their node
	ofGroup   []uint32 // the same by group
	mayNode   set      // nodes that the scope includes and the readers may see
	noMayNode set      // nodes that the scope includes and the readers may not see

	observed    [9]int // shown instances by observed state; 0 is not used
	states      [8]int // nodes in mayNode, or all, by state; 0 is not used
	hiddenNodes int
	hiddenOnes  int // number of hidden

	banner, counts []byte // as they were last sent
	version        uint64 // grows when one of the two changes

	dirty dirty  // of this tick, as the readers see it
	frame []byte // of this tick, nil if nothing changed
}

// dirty lists handles whose rows changed, by table.
type dirty struct{ nodes, groups, instances []uint32 }

func (d *dirty) empty() bool { return len(d.nodes)+len(d.groups)+len(d.instances) == 0 }

func (d *dirty) len() int { return len(d.nodes) + len(d.groups) + len(d.instances) }

func (d *dirty) of(kind frame.Kind) []uint32 {
	switch kind {
	case frame.KindNodes:
		return d.nodes
	case frame.KindGroups:
		return d.groups
	default:
		return d.instances
	}
}

// newView makes a view of the whole table. If it hides nothing, that takes no time; otherwise it judges every row.
func newView(key string, sight Sight, scope Scope, t *table) *view {
	v := &view{key: key, sight: sight, scope: scope}
	v.whole = sight.Node == nil && sight.Instance == nil && scope.Job == "" && scope.Node == ""
	if v.whole {
		v.states, v.observed = t.states, t.observed
		return v
	}
	for h := range uint32(t.nodes.Len()) {
		if t.nodes.Has(h) {
			v.updateNode(t, h, 0)
		}
	}
	columns := t.instances.Columns
	for h := range uint32(t.instances.Len()) {
		one := change{at: h, node: columns[frame.InstanceNode][h], group: columns[frame.InstanceGroup][h], fresh: true}
		if t.instances.Has(h) && v.inScope(t, &one) {
			v.updateInstance(t, &one)
		}
	}
	if scope.Bare {
		v.dirty = dirty{}
	}
	return v
}

// inScope reports whether the scope includes an instance.
func (v *view) inScope(t *table, c *change) bool {
	name := ""
	if c.node != frame.None && v.scope.Node != "" {
		name = t.nodes.Names[c.node]
	}
	return v.scope.instance(t.ofGroup[c.group].name, name)
}

// update takes over the changes of a tick, and notes in v.dirty what the readers must get.
func (v *view) update(t *table, all *changes) {
	v.dirty = dirty{}
	if v.whole {
		v.dirty.groups = slices.Clone(all.groups)
	}
	for i, h := range all.nodes {
		v.updateNode(t, h, all.nodeStates[i])
	}
	for i := range all.instances {
		v.updateInstance(t, &all.instances[i])
	}
	if v.scope.Bare {
		v.dirty = dirty{}
	}
}

func (v *view) updateNode(t *table, h, before uint32) {
	after, name := t.nodes.Columns[frame.State][h], t.nodes.Names[h]
	counted := before != 0 && (v.whole || v.mayNode.has(h))
	counts := after != 0
	if !v.whole {
		in := after != 0 && v.scope.node(name)
		may := in && (v.sight.Node == nil || v.sight.Node(name))
		if v.noMayNode.has(h) {
			v.hiddenNodes--
		}
		if in && !may {
			v.hiddenNodes++
		}
		v.noMayNode.set(h, in && !may)
		v.mayNode.set(h, may)
		counts = may
	}
	if counted {
		v.states[before]--
	}
	if counts {
		v.states[after]++
	}
	if counted || counts || v.refs(h) > 0 {
		v.dirty.nodes = append(v.dirty.nodes, h)
	}
}

func (v *view) refs(node uint32) uint32 {
	if int64(node) < int64(len(v.onNode)) {
		return v.onNode[node]
	}
	return 0
}

func (v *view) updateInstance(t *table, c *change) {
	after := t.instances.Columns[frame.State][c.at]
	was := c.state != 0 && (v.whole || v.shown.has(c.at))
	is := after != 0
	if !v.whole {
		is = v.judge(t, c, after, was)
	}
	if was {
		v.observed[c.state&frame.InstanceObserved]--
	}
	if is {
		v.observed[after&frame.InstanceObserved]++
	}
	if was || is {
		v.dirty.instances = append(v.dirty.instances, c.at)
	}
}

// judge notes whether an instance is shown, and with it, which nodes and groups are.
func (v *view) judge(t *table, c *change, after uint32, was bool) (is bool) {
	node, group := t.instances.Columns[frame.InstanceNode][c.at], t.instances.Columns[frame.InstanceGroup][c.at]
	hid := v.hidden.has(c.at)
	hides := false
	switch {
	case after == 0:
	case c.fresh:
		name, j := "", t.ofGroup[group]
		if node != frame.None {
			name = t.nodes.Names[node]
		}
		in := v.scope.instance(j.name, name)
		is = in && (v.sight.Instance == nil || v.sight.Instance(j.name, j.class, name))
		hides = in && !is
	default:
		is, hides = was, hid
	}
	if hid != hides {
		v.hidden.set(c.at, hides)
		if v.hiddenOnes++; hid {
			v.hiddenOnes -= 2
		}
	}
	if was == is && (!is || node == c.node) {
		return is
	}
	v.shown.set(c.at, is)
	if was {
		v.count(&v.onNode, c.node, -1, &v.dirty.nodes)
		v.count(&v.ofGroup, c.group, -1, &v.dirty.groups)
	}
	if is {
		v.count(&v.onNode, node, 1, &v.dirty.nodes)
		v.count(&v.ofGroup, group, 1, &v.dirty.groups)
	}
	return is
}

// count adds n to the number of shown instances at a handle, and notes the handle in changed if its row appears or
// disappears with that.
func (v *view) count(numbers *[]uint32, h uint32, n int, changed *[]uint32) {
	if h == frame.None {
		return
	}
	if more := int(h) + 1 - len(*numbers); more > 0 {
		*numbers = append(*numbers, make([]uint32, more)...)
	}
	before := (*numbers)[h]
	(*numbers)[h] = uint32(int(before) + n)
	if before == 0 || (*numbers)[h] == 0 {
		*changed = append(*changed, h)
	}
}

// rows returns the handles of the rows that the readers see.
func (v *view) rows(t *table, kind frame.Kind) (rows set) {
	switch {
	case v.whole:
		return slices.Clone(t.of(kind).present)
	case kind == frame.KindInstances:
		return slices.Clone(v.shown)
	}
	for h := range uint32(t.of(kind).Len()) {
		if v.state(t, kind, h) != 0 {
			rows.set(h, true)
		}
	}
	return rows
}

// state returns the State of a row as the readers see it.
func (v *view) state(t *table, kind frame.Kind, h uint32) uint32 {
	switch kind {
	case frame.KindNodes:
		state := t.nodes.Columns[frame.State][h]
		switch {
		case state == 0 || v.whole:
			return state
		case v.refs(h) > 0 && !v.seesNode(t, h):
			return frame.NodeNamed
		case v.mayNode.has(h) || v.refs(h) > 0:
			return state
		}
		return 0
	case frame.KindGroups:
		if !v.whole && (int(h) >= len(v.ofGroup) || v.ofGroup[h] == 0) {
			return 0
		}
		return t.groups.Columns[frame.State][h]
	default:
		if !v.whole && !v.shown.has(h) {
			return 0
		}
		return t.instances.Columns[frame.State][h]
	}
}

// seesNode reports whether the readers may see more of a node than its name.
func (v *view) seesNode(t *table, h uint32) bool {
	return v.mayNode.has(h) || v.sight.Node == nil || v.sight.Node(t.nodes.Names[h])
}

// tell makes the texts of the view anew. It reports whether one of them changed.
func (v *view) tell(b frame.Banner) (changed bool) {
	if b.Status = v.sight.Status; !b.Status {
		b.Hold, b.Paused, b.Restored, b.Problems = false, false, false, nil
	}
	c := frame.Counts{Nodes: map[string]int{}, Instances: map[string]int{}}
	if v.scope.Job == "" && v.scope.Node == "" { // else they would say whether a job or node exists that is hidden
		c.HiddenNodes, c.HiddenInstances = v.hiddenNodes, v.hiddenOnes
	}
	for i, state := range frame.NodeStates() {
		c.Nodes[string(state)] = v.states[i+1]
		c.Nodes["total"] += v.states[i+1]
	}
	for i, state := range frame.ObservedStates() {
		c.Instances[string(state)] = v.observed[i+1]
		c.Instances["total"] += v.observed[i+1]
	}
	banner, counts := encoded(b), encoded(c)
	if bytes.Equal(banner, v.banner) && bytes.Equal(counts, v.counts) {
		return false
	}
	v.banner, v.counts = banner, counts
	v.version++
	return true
}

func encoded(value any) []byte {
	text, _ := json.Marshal(value) // strings, numbers and maps always marshal
	return text
}
