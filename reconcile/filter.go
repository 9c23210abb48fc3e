package reconcile

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// nodeTable is what placement knows of nodes during one pass. What groups have in common is worked out once: with 5,000
// nodes that halves what each of a hundred groups costs.
type nodeTable struct {
	views   []*nodeView // in order of id
	places  *places
	layouts map[string]*layout          // by the spread attributes, joined
	meets   map[model.Constraint][]bool // by node
	unmets  map[model.Constraint]string // what unmet says

	rankings map[claimKind]*ranking
	changes  []int32     // nodes whose views have changed, in the order of the changes
	avoided  []*nodeView // by some group; one may stand there twice
}

// nodeView is one node as the draft has it now.
type nodeView struct {
	node     *fsm.Node
	at       int             // its place in the table
	size     model.Resources // what instances can use
	held     model.Resources // what is placed; its memory in bytes with what is promised
	avoided  bool            // by some group
	refusal  *model.Error    // why nothing may be placed there; nil if it is eligible
	detour   bool            // it waits for its turn in a drain: it takes what can leave again, where nothing else will do
	promised int64           // memory kept for instances whose predecessors must stop first
	reserved []int           // static ports kept for the same
	moves    int32           // grows with each placement and promise, so that scores known to be old are made again

	crowd     *crowd                            // who is on it, for preemption
	soonTaken int64                             // of the memory that comes free soon: what others wait for
	spared    map[model.InstanceID]*model.Error // whom the log would not let go for others
	shut      *model.Error                      // why nothing more is preempted on it in this decision
}

// free is the memory that can still be given away.
func (v *nodeView) free() int64 {
	return v.size.MemoryBytes - v.held.MemoryBytes - v.promised
}

// take makes the view one of this row.
func (v *nodeView) take(n *fsm.Node) {
	v.node, v.size, v.avoided = n, n.Allocatable(), len(n.Avoid) > 0
	v.held = model.Resources{CPU: n.Placed.CPU, MemoryBytes: n.Placed.MemoryBytes + n.Promised}
}

// candidates returns the table of nodes, made when something is placed for the first time.
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

// view is the view of a node; nil if it was forgotten.
func (t *nodeTable) view(id model.NodeID) *nodeView {
	if at, ok := t.places.at[id]; ok {
		return t.views[at]
	}
	return nil
}

// changed takes the draft's row of a node on which something was placed.
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

// moved notes that a view is not what scores of it rest on any more.
func (t *nodeTable) moved(v *nodeView) {
	v.moves++
	t.note(v)
}

// note notes that a view is not what rankings rest on any more.
func (t *nodeTable) note(v *nodeView) { t.changes = append(t.changes, int32(v.at)) }

// hardFilters are the rules that a node must meet whatever the score, in order. Each returns the code that excludes the
// node, or "". Only distinct attributes are not among them: they depend on where the others went.
var hardFilters = [...]func(*field, *nodeView) model.Code{
	filterEligible,
	filterConstraints,
	filterStaticPorts,
	filterMemory,
}

func filterEligible(f *field, v *nodeView) model.Code {
	if v.refusal != nil || v.detour && !f.detours {
		return model.CodeNoNodes
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

// reserve keeps room on a node for one more instance of the field, for the rest of the pass.
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

// excludeLasting is exclude for the rules by which a node is in or out for the whole of a decision.
func (f *field) excludeLasting(v *nodeView) model.Code {
	if code := filterEligible(f, v); code != "" {
		return code
	}
	return filterConstraints(f, v)
}

// exclude returns the first filter's code that takes the node out, or "".
func (f *field) exclude(v *nodeView) model.Code {
	for _, filter := range hardFilters {
		if code := filter(f, v); code != "" {
			return code
		}
	}
	return ""
}

// ports chooses the node's ports for one more instance: static ones as asked, dynamic ones from the node's range,
// beginning at a place that depends on the instance, so that a port that was just given back is rarely the next one
// out, and on the node, whose id no other cluster has: two clusters on one machine rarely want the same. ok is false if
// there are not enough.
func (f *field) ports(v *nodeView, id model.InstanceID) (ports model.Ports, ok bool) {
	return f.portsBeside(v, id, nil)
}

// portsBeside is ports when some instances will have left the node.
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

// hash is FNV-1a over the parts; ties are broken by it.
func hash(parts ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, part := range parts {
		h = hashOn(h, part)
	}
	return h
}

// hashOn goes on with a hash: one more part.
func hashOn(h uint64, part string) uint64 {
	for i := range len(part) {
		h = (h ^ uint64(part[i])) * 1099511628211
	}
	return (h ^ 0xff) * 1099511628211 // "a", "bc" is not "ab", "c"
}
