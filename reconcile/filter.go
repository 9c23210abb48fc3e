package reconcile

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// nodeTable is what placement knows about the nodes during one pass. Results that groups share are computed once. This
// halves the cost of placing each of a hundred groups on 5,000 nodes.
type nodeTable struct {
	views   []*nodeView // in order of id
	places  *nodeIndex
	layouts map[string]*layout          // by the joined names of the spread attributes
	meets   map[model.Constraint][]bool // by position of the node: whether the node meets the constraint
	unmets  map[model.Constraint]string // cached results of unmet

	rankings map[claimKind]*ranking
	changes  []int32     // positions of nodes whose views changed, in the order of the changes
	avoided  []*nodeView // nodes that a group avoids, and nodes that wait for their turn in a drain; may have duplicates
}

// nodeView is one node as it is in the draft now.
type nodeView struct {
	node     *fsm.Node
	at       int             // its position in the table
	size     model.Resources // all resources that instances may use
	held     model.Resources // resources of placed instances; the memory includes what the state promises to preemptors
	avoided  bool            // some group avoids the node
	refusal  *model.Error    // why no instance may be placed on the node, or nil
	detour   bool            // waits for its turn in a drain; it is a last resort, for instances that can leave again
	promised int64           // memory kept for instances that this decision can't place yet, in bytes
	reserved []int           // static ports kept for instances that this decision can't place yet
	moves    int32           // grows with each placement and promise; a score made at a lower number is out of date

	crowd     *nodeInstances                    // instances on the node, for preemption
	soonTaken int64                             // bytes that will soon become free and that waiting needs already claim
	spared    map[model.InstanceID]*model.Error // instances that Apply refused to preempt, with the refusal
	shut      *model.Error                      // why nothing more is preempted on the node in this decision
}

// free returns the memory that is neither taken nor promised, in bytes.
func (v *nodeView) free() int64 {
	return v.size.MemoryBytes - v.held.MemoryBytes - v.promised
}

func (v *nodeView) take(n *fsm.Node) {
	v.node, v.size, v.avoided = n, n.Allocatable(), len(n.Avoid)+len(n.FailedPulls) > 0
	v.held = model.Resources{CPU: n.Placed.CPU, MemoryBytes: n.Placed.MemoryBytes + n.Promised}
}

// candidates returns the table of nodes, which is made at first use.
func (p *pass) candidates() *nodeTable {
	if p.nodes != nil {
		return p.nodes
	}
	s := p.state()
	count := s.Nodes.Len()
	t := &nodeTable{places: p.nodePlaces(), views: make([]*nodeView, 0, count), layouts: map[string]*layout{},
		meets: map[model.Constraint][]bool{}, unmets: map[model.Constraint]string{}, rankings: map[claimKind]*ranking{}}
	rows := make([]nodeView, count)
	for _, n := range s.Nodes.All() {
		v := &rows[len(t.views)]
		v.take(n)
		v.at, v.refusal = len(t.views), s.Eligible(n)
		if n.Intent == model.IntentActive && n.Health != model.HealthOffline && s.Now < n.Return.HeldUntil {
			p.plan.wakeAt(n.Return.HeldUntil)
		}
		if n.Intent == model.IntentDraining && s.WaitsForTurn(n) {
			v.refusal, v.detour = s.Takes(n, &model.GroupSpec{}), true
		}
		t.views = append(t.views, v)
		if v.avoided || v.detour {
			t.avoided = append(t.avoided, v)
		}
	}
	p.promise(t)
	p.nodes = t
	return t
}

// view returns the view of a node, or nil if the node was forgotten.
func (t *nodeTable) view(id model.NodeID) *nodeView {
	if at, ok := t.places.at[id]; ok {
		return t.views[at]
	}
	return nil
}

// changed updates the view of a node after a placement.
func (p *pass) changed(id model.NodeID) {
	t := p.candidates()
	if v := t.view(id); v != nil {
		v.take(p.node(id))
		if v.avoided {
			t.avoided = append(t.avoided, v)
		}
		t.moved(v)
	}
}

// moved marks all scores of a node as out of date.
func (t *nodeTable) moved(v *nodeView) {
	v.moves++
	t.note(v)
}

// release makes promised memory of a node free again.
func (t *nodeTable) release(v *nodeView, bytes int64) {
	v.promised -= bytes
	t.note(v)
}

// note marks the node's place in the rankings as out of date.
func (t *nodeTable) note(v *nodeView) { t.changes = append(t.changes, int32(v.at)) }

// hardFilters are the rules that a node must meet whatever its score. They are checked in this order. Each returns the
// code that excludes the node, or "". Distinct attributes are not a filter, because they depend on where the group's
// other instances are.
var hardFilters = [...]func(*field, *nodeView) model.Code{
	filterEligible,
	filterProgram,
	filterConstraints,
	filterImage,
	filterStaticPorts,
	filterMemory,
}

func filterEligible(f *field, v *nodeView) model.Code {
	if v.refusal != nil || v.detour && !f.detours {
		return model.CodeNoNodes
	}
	return ""
}

func filterProgram(f *field, v *nodeView) model.Code {
	if refusal := v.node.Starts(f.spec); refusal != nil {
		return refusal.Code
	}
	return ""
}

func filterConstraints(f *field, v *nodeView) model.Code {
	for _, meets := range f.meets {
		if !meets[v.at] {
			return model.CodeConstraint
		}
	}
	return ""
}

func filterStaticPorts(f *field, v *nodeView) model.Code {
	for _, port := range f.spec.Ports {
		if port.Static == 0 {
			continue
		}
		owner, taken := f.pass.state().PortOwner(v.node.ID, port.Static)
		if taken && !f.pass.gone[owner] || slices.Contains(v.reserved, port.Static) {
			return model.CodeNoPorts
		}
	}
	return ""
}

// reserve keeps memory and static ports on a node for one more instance of the field, until the pass ends.
func (f *field) reserve(v *nodeView) {
	v.promised += f.claim.MemoryBytes
	for _, port := range f.spec.Ports {
		if port.Static != 0 {
			v.reserved = append(v.reserved, port.Static)
		}
	}
}

func filterMemory(f *field, v *nodeView) model.Code {
	if v.free() < f.claim.MemoryBytes {
		return model.CodeNoMemory
	}
	return ""
}

// excludeLasting is like exclude, but runs only the filters whose results can't change within a decision.
func (f *field) excludeLasting(v *nodeView) model.Code {
	if code := cmp.Or(filterEligible(f, v), filterProgram(f, v)); code != "" {
		return code
	}
	return cmp.Or(filterConstraints(f, v), filterImage(f, v))
}

// exclude returns the code of the first filter that excludes the node, or "".
func (f *field) exclude(v *nodeView) model.Code {
	for _, filter := range hardFilters {
		if code := filter(f, v); code != "" {
			return code
		}
	}
	return ""
}

// ports chooses ports of a node for one more instance. Static ports are those of the spec. Dynamic ports are free ports
// of the node's range. ok is false if there are not enough of them.
func (f *field) ports(v *nodeView, id model.InstanceID) (ports model.Ports, ok bool) {
	return f.portsBeside(v, id, nil)
}

// portsBeside is like ports, but treats the ports of the instances in leaving as free.
func (f *field) portsBeside(v *nodeView, id model.InstanceID, leaving []model.InstanceID) (ports model.Ports, ok bool) {
	if len(f.spec.Ports) == 0 {
		return nil, true
	}
	ports = make(model.Ports, 0, len(f.spec.Ports))
	used := make([]int, 0, len(f.spec.Ports))
	for _, port := range f.spec.Ports {
		if port.Static != 0 {
			used = append(used, port.Static)
		}
	}
	size := v.node.Shape.PortMax - v.node.Shape.PortMin + 1
	for _, port := range f.spec.Ports {
		if port.Static != 0 {
			ports = append(ports, model.Port{Name: port.Name, Number: port.Static})
			continue
		}
		if size <= 0 {
			return nil, false
		}
		// The search for a free port starts at a place that depends on the instance, so that a port that was just freed is
		// rarely chosen next. The place also depends on the node's id, so that two clusters on one machine rarely choose the
		// same port.
		n, found := f.dynamicPort(v, int(hash(string(v.node.ID), string(id), port.Name)%uint64(size)), size, used, leaving)
		if !found {
			return nil, false
		}
		ports = append(ports, model.Port{Name: port.Name, Number: n})
		used = append(used, n)
	}
	return ports.Sorted(), true
}

func (f *field) dynamicPort(v *nodeView, start, size int, used []int, leaving []model.InstanceID) (int, bool) {
	for i := range size {
		n := v.node.Shape.PortMin + (start+i)%size
		owner, taken := f.pass.state().PortOwner(v.node.ID, n)
		if (!taken || slices.Contains(leaving, owner)) && !slices.Contains(used, n) {
			return n, true
		}
	}
	return 0, false
}

// hash returns the FNV-1a hash of the parts, each followed by a separator.
func hash(parts ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, part := range parts {
		h = hashOn(h, part)
	}
	return h
}

// hashOn continues a hash with one more part.
func hashOn(h uint64, part string) uint64 {
	for i := range len(part) {
		h = (h ^ uint64(part[i])) * 1099511628211
	}
	return (h ^ 0xff) * 1099511628211 // so that the parts "a" and "bc" hash differently from "ab" and "c"
}
