package reconcile

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
)

// field is where instances of one version of a group could go: every feasible node, scored once and kept in a heap for each spread domain. Taking the best
// and putting it back with its new score costs log(nodes), so N instances cost nodes + N log(nodes).
type field struct {
	pass        *pass
	group       *groupView
	version     uint64
	spec        *fsm.GroupSpec
	claim       fsm.Resources
	overcommit  int64
	binpack     bool
	samePenalty int64
	failures    []fsm.Failure
	out         excluded
	domains     map[string]*domain
	domainKeys  []string       // in order
	distinct    map[string]int // attribute=value: instances of the group there
}

// fieldOf returns the group's field for a version, scored when it is asked for first. nil if the version's spec is gone.
func (p *pass) fieldOf(g *groupView, version uint64) *field {
	for _, f := range g.fields {
		if f.version == version {
			return f
		}
	}
	s := p.state()
	template, ok := s.Spec(g.id, version)
	if !ok {
		return nil
	}
	spec := *template
	spec.Affinities, spec.Spreads = g.spec.Affinities, g.spec.Spreads
	f := &field{
		pass: p, group: g, version: version, spec: &spec, claim: s.ClaimsOf(&spec, nil).Resources,
		overcommit: s.Settings.CPUOvercommit, binpack: s.Settings.Algorithm == "binpack", samePenalty: sameGroup,
		domains: map[string]*domain{}, distinct: map[string]int{},
	}
	if f.binpack {
		f.samePenalty = full / int64(max(g.row.Count, 1))
	}
	for _, x := range g.row.Failures {
		if x.Version == version && x.Reason != goneFromNode && x.At.Add(g.spec.Reschedule.Interval) > p.in.Now {
			f.failures = append(f.failures, x)
		}
	}
	f.fill()
	g.fields = append(g.fields, f)
	return f
}

// fill scores every feasible node.
func (f *field) fill() {
	same, all := f.census()
	for _, v := range f.pass.candidates().views {
		key := f.domainKey(v.node)
		if f.domains[key] == nil {
			f.domains[key] = &domain{}
			f.domainKeys = append(f.domainKeys, key)
		}
		f.countDistinct(v.node, all[v.node.ID])
		if code := f.exclude(v); code != "" {
			f.out.add(code)
			continue
		}
		c := &candidate{view: v, same: same[v.node.ID], bonus: f.constantBonus(v.node), moves: v.moves, tie: hash(string(f.group.id), string(v.node.ID))}
		if plant.Is(plant.MapOrder) {
			c.tie = plant.Disorder(c.tie)
		}
		c.score = f.score(c)
		f.domains[key].heap = append(f.domains[key].heap, c)
	}
	slices.Sort(f.domainKeys)
	for _, key := range f.domainKeys {
		f.domains[key].heap.build()
	}
	for _, v := range f.pass.candidates().views {
		if n := same[v.node.ID]; n > 0 {
			f.countSpread(v.node, int64(n))
		}
	}
}

// census counts the group's instances on each node: those that stay, which are to be spread, and all, of which no two may share a distinct attribute.
func (f *field) census() (stay, all map[fsm.NodeID]int) {
	stay, all = map[fsm.NodeID]int{}, map[fsm.NodeID]int{}
	for _, slot := range f.group.slots {
		for _, inst := range [...]*fsm.Instance{slot.holder, slot.successor} {
			if inst == nil {
				continue
			}
			all[inst.Node]++
			if f.pass.wishOf(f.group, inst) == wishNone {
				stay[inst.Node]++
			}
		}
	}
	return stay, all
}

func (f *field) countDistinct(n *fsm.Node, delta int) {
	if delta == 0 {
		return
	}
	for _, attribute := range f.spec.Distinct {
		if value, ok := n.Attribute(attribute); ok {
			f.distinct[attribute+"="+value] += delta
		}
	}
}

// repeats reports whether the node has a distinct attribute's value that another instance than the replaced one has.
func (f *field) repeats(n *fsm.Node, replaced *fsm.Node) bool {
	for _, attribute := range f.spec.Distinct {
		value, ok := n.Attribute(attribute)
		if !ok {
			return true
		}
		others := f.distinct[attribute+"="+value]
		if replaced != nil {
			if old, ok := replaced.Attribute(attribute); ok && old == value {
				others--
			}
		}
		if others > 0 {
			return true
		}
	}
	return false
}

// take removes the best node from the field, or returns nil if none is left. Scores made before other groups were placed are made anew first.
func (f *field) take() *candidate {
	for {
		best := f.bestDomain()
		if best == nil {
			return nil
		}
		c := best.heap.pop()
		if c.moves == c.view.moves {
			return c
		}
		if code := f.exclude(c.view); code != "" {
			f.out.add(code)
			continue
		}
		c.moves, c.score = c.view.moves, f.score(c)
		best.heap.push(c)
	}
}

// bestDomain is the domain whose best node is the best of all, the domain's own score included.
func (f *field) bestDomain() *domain {
	var best *domain
	bestScore := int64(0)
	for _, key := range f.domainKeys {
		d := f.domains[key]
		if len(d.heap) == 0 {
			continue
		}
		if score := d.heap[0].score - d.used*sameValue; best == nil || score > bestScore {
			best, bestScore = d, score
		}
	}
	return best
}

// putBack returns a node to the field, scored anew.
func (f *field) putBack(c *candidate) {
	if code := f.exclude(c.view); code != "" {
		f.out.add(code)
		return
	}
	c.moves, c.score = c.view.moves, f.score(c)
	f.domains[f.domainKey(c.view.node)].heap.push(c)
}

// count notes one more instance on the candidate's node.
func (f *field) count(c *candidate) {
	c.same++
	f.countSpread(c.view.node, 1)
	f.countDistinct(c.view.node, 1)
}
