package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// field contains the nodes where instances of one version of a group could run. Nodes with the same values of all
// spread attributes form a domain. The scored nodes of a domain are in a heap. Nodes without a score are in the ranking
// that the field shares with other groups. Taking the best node and putting it back with its new score costs
// log(nodes), so placing N instances costs nodes + N log(nodes).
type field struct {
	pass        *pass
	group       *groupView
	version     uint64
	spec        *model.GroupSpec
	claim       model.Resources
	overcommit  int64
	binpack     bool
	detours     bool // the group's instances may be placed on nodes that wait for their turn in a drain
	samePenalty int64
	failures    []fsm.Failure
	out         excluded // by code: number of excluded nodes that method unranked does not count
	views       []*nodeView
	same        []int32  // by position of the node: the group's instances on it that are not leaving
	bonus       []int64  // by position of the node: the constant part of its score; nil means 0 for all
	meets       [][]bool // for each constraint, by position of the node: whether the node meets it
	layout      *layout
	groupHash   uint64   // hash of the group's id, to which method tie adds a node's id
	domains     []domain // in the order of the layout

	joined
	distinct map[string]int // by "attribute=value": number of the group's instances on nodes with that value
}

// fieldOf returns the group's field for a version, and makes the field at first use. It returns nil if that version's
// spec no longer exists.
func (p *pass) fieldOf(g *groupView, version uint64) *field {
	for _, f := range g.fields {
		if f.version == version {
			return f
		}
	}
	f := p.newField(g, version)
	if f == nil {
		return nil
	}
	if f.census(); f.shares() {
		f.join()
	} else {
		f.scoreAll()
	}
	g.fields = append(g.fields, f)
	return f
}

// newField returns a field without any nodes, or nil if the version's spec no longer exists.
func (p *pass) newField(g *groupView, version uint64) *field {
	s, table := p.state(), p.candidates()
	template, ok := s.Spec(g.id, version)
	if !ok {
		return nil
	}
	spec := *template
	spec.Affinities, spec.Spreads = g.spec.Affinities, g.spec.Spreads
	f := &field{
		pass: p, group: g, version: version, spec: &spec, claim: s.ClaimsOf(&spec, nil).Resources,
		overcommit: s.Settings.CPUOvercommit, binpack: s.Settings.Algorithm == "binpack", detours: fsm.CanDetour(&spec),
		samePenalty: sameGroup,
		views:       table.views, groupHash: hash(string(g.id)),
		layout: table.layoutOf(spec.Spreads), distinct: map[string]int{},
	}
	if f.binpack {
		f.samePenalty = full / int64(max(g.row.Count, 1))
	}
	for _, x := range g.row.Failures {
		if x.Version == version && x.Reason != goneFromNode && x.At.Add(g.spec.Reschedule.Interval) > p.in.Now {
			f.failures = append(f.failures, x)
		}
	}
	for _, c := range spec.Constraints {
		f.meets = append(f.meets, table.meeting(c))
	}
	f.domains = make([]domain, len(f.layout.domains))
	return f
}

func (f *field) scoreAll() {
	heaps := make(candidates, len(f.views))
	for i, size := range f.layout.sizes {
		f.domains[i].heap, heaps = heaps[:0:size], heaps[size:]
	}
	f.bonus = make([]int64, len(f.views))
	for i, v := range f.views {
		if code := f.exclude(v); code != "" {
			f.out.add(code, 1)
			continue
		}
		f.bonus[i] = f.constantBonus(v)
		d := &f.domains[f.layout.of[i]]
		d.heap = append(d.heap, f.candidate(v))
	}
	for i := range f.domains {
		f.domains[i].heap.build()
	}
}

// census counts the group's instances when the field is made. The counts by node and by domain include only the
// instances that are not leaving. The counts by value of a distinct attribute include all, because a leaving instance
// still occupies the value of its node. A claim counts as an instance, unless it holds no room.
func (f *field) census() {
	f.same = make([]int32, len(f.views))
	for row := range f.group.quietRows() {
		v := f.views[row.at]
		if len(f.spec.Distinct) > 0 {
			f.countDistinct(v.node, 1)
		}
		f.same[row.at]++
		f.countSpread(v, 1)
	}
	for c := range f.pass.state().PullsOf(f.group.id) {
		if v := f.pass.candidates().view(c.Node); v != nil && !c.Bare() {
			f.count(v)
		}
	}
	for _, slot := range f.group.open {
		for _, inst := range [...]*fsm.Instance{slot.holder, slot.successor} {
			if inst == nil || f.pass.gone[inst.ID] {
				continue
			}
			v := f.pass.candidates().view(inst.Node)
			if v == nil {
				continue
			}
			f.countDistinct(v.node, 1)
			if f.pass.leaveReasonOf(f.group, inst) == leaveNone {
				f.same[v.at]++
				f.countSpread(v, 1)
			}
		}
	}
}

func (f *field) countDistinct(n *fsm.Node, delta int) {
	for _, attribute := range f.spec.Distinct {
		if value, ok := n.Attribute(attribute); ok {
			f.distinct[attribute+"="+value] += delta
		}
	}
}

// repeats reports whether an instance other than the replaced one is on a node with the same value of a distinct
// attribute. It returns true for a node that lacks a distinct attribute.
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

// take removes the best node from the field and returns it, or nil if no node is left. If the best node's score is out
// of date because another group placed an instance there, take scores the node again and then looks for the best one.
func (f *field) take() *nodeView {
	for {
		best := f.bestDomain()
		if best == nil {
			return nil
		}
		c := best.heap.pop()
		v := f.views[c.at]
		if c.moves == v.moves {
			return v
		}
		if code := f.exclude(v); code != "" {
			f.out.add(code, 1)
			continue
		}
		c.moves, c.score = v.moves, f.score(&c)
		best.heap.push(c)
	}
}

// bestDomain returns the domain with the best node, or nil if no node is left. The penalty for the instances in a
// domain is subtracted from the scores of its nodes. A node without a score is compared by an upper bound of its score,
// and scored only if its domain would be the best.
func (f *field) bestDomain() *domain {
	for {
		var best *domain
		bestScore := int64(0)
		for i := range f.domains {
			d := &f.domains[i]
			if len(d.heap) == 0 && len(d.rest) == 0 {
				continue
			}
			if score := d.bound() - d.used*sameValue; best == nil || score > bestScore {
				best, bestScore = d, score
			}
		}
		if best == nil || !best.lacks() {
			return best
		}
		f.pull(best)
	}
}

// putBack scores a node again and returns it to the field.
func (f *field) putBack(v *nodeView) {
	if code := f.enter(v); code != "" {
		f.out.add(code, 1)
	}
}

func (f *field) candidate(v *nodeView) candidate {
	c := candidate{at: int32(v.at), moves: v.moves, tie: f.tie(int32(v.at))}
	c.score = f.score(&c)
	return c
}

// tie returns a hash of group and node, which orders nodes of equal score.
func (f *field) tie(at int32) uint64 {
	tie := hashOn(f.groupHash, string(f.pass.places.ids[at]))
	if plant.Is(plant.MapOrder) {
		tie = plant.Disorder(tie)
	}
	return tie
}

// count records one more instance on a node.
func (f *field) count(v *nodeView) {
	f.same[v.at]++
	f.countSpread(v, 1)
	f.countDistinct(v.node, 1)
}
