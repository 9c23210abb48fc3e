package reconcile

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// ranking orders the eligible nodes that meet the constraints and have enough memory by how full one more instance of a
// certain claim would make them. Fields of one decision with the same claimKind share a ranking and score only the
// nodes that they take from it. For a hundred groups that lack one instance each, sharing saves four fifths of the
// time.
type ranking struct {
	made    int        // length of nodeTable.changes when the ranking was made
	domains [][]ranked // by domain of the layout: its nodes, the best first
	full    []bool     // by node: whether it is not in the ranking because it lacks memory
}

// ranked is one node of a ranking.
type ranked struct {
	use   int64 // the node's score without the group's own preferences
	at    int32
	moves int32 // value of the view's moves when the node was ranked
}

// claimKind is what fields must have in common to share a ranking.
type claimKind struct {
	constraints string
	layout      *layout
	claim       model.Resources
	detours     bool
}

// A ranking is made again once more than one in staleAfter nodes has changed.
const staleAfter = 8

func kindOf(f *field) claimKind {
	kind := claimKind{layout: f.layout, claim: f.claim, detours: f.detours}
	if len(f.spec.Constraints) > 0 {
		var text strings.Builder
		for _, c := range f.spec.Constraints {
			for _, part := range [...]string{c.Attribute, c.Operator, c.Value} {
				text.WriteString(part)
				text.WriteByte(0)
			}
		}
		kind.constraints = text.String()
	}
	return kind
}

// rankingFor returns the ranking that a field shares with others of its kind. It makes a new one if there is none, or
// if too many nodes have changed since the last one.
func (t *nodeTable) rankingFor(f *field) *ranking {
	kind := kindOf(f)
	r := t.rankings[kind]
	if r == nil || (len(t.changes)-r.made)*staleAfter > len(t.views) {
		r = t.rank(f)
		t.rankings[kind] = r
	}
	return r
}

func (t *nodeTable) rank(f *field) *ranking {
	r := &ranking{made: len(t.changes), domains: make([][]ranked, len(f.layout.domains)), full: make([]bool, len(t.views))}
	order := make([]ranked, 0, len(t.views))
	for i, v := range t.views {
		switch f.exclude(v) {
		case "":
			order = append(order, ranked{use: f.use(v), at: int32(i), moves: v.moves})
		case model.CodeNoMemory:
			r.full[i] = true
		}
	}
	slices.SortFunc(order, func(a, b ranked) int {
		if a.use != b.use {
			return int(b.use - a.use)
		}
		return int(a.at - b.at)
	})
	room := make([]ranked, len(t.views))
	for i, size := range f.layout.sizes {
		r.domains[i], room = room[:0:size], room[size:]
	}
	for _, x := range order {
		d := f.layout.of[x.at]
		r.domains[d] = append(r.domains[d], x)
	}
	return r
}

// joined is the part of a field that comes from a shared ranking.
type joined struct {
	ranking *ranking // nil if every node was scored when the field was made
	// By position of the node: the nodes that had changed since the ranking when the field was made. The value is the code
	// that excluded the node, or "".
	fresh   map[int32]model.Code
	began   excluded // the result of unranked, once counted is set
	counted bool
}

// shares reports whether a field can take its nodes from a ranking. A ranking ignores affinities, images and static
// ports, so a field with any of them can't.
func (f *field) shares() bool {
	static := func(port model.PortSpec) bool { return port.Static != 0 }
	return len(f.spec.Affinities) == 0 && f.spec.Container == nil && !slices.ContainsFunc(f.spec.Ports, static)
}

// join fills a field from a ranking. Nodes that have changed since the ranking was made are scored immediately.
func (f *field) join() {
	table := f.pass.nodes
	f.ranking = table.rankingFor(f)
	for i := range f.domains {
		f.domains[i].rest = f.ranking.domains[i]
	}
	for _, v := range table.avoided {
		f.sumLoads(v)
	}
	for i := range f.failures {
		if v := table.view(f.failures[i].Node); v != nil {
			f.sumLoads(v)
		}
	}
	if fresh := table.changes[f.ranking.made:]; len(fresh) > 0 {
		f.fresh = map[int32]model.Code{}
		for _, at := range fresh {
			if _, done := f.fresh[at]; !done {
				f.fresh[at] = f.enter(table.views[at])
			}
		}
	}
}

// sumLoads records the constant part of a node's score for this group, if it is not 0.
func (f *field) sumLoads(v *nodeView) {
	if bonus := f.constantBonus(v); bonus != 0 {
		if f.bonus == nil {
			f.bonus = make([]int64, len(f.views))
		}
		f.bonus[v.at] = bonus
	}
}

// enter puts a node into the field, or returns the code that excludes it.
func (f *field) enter(v *nodeView) model.Code {
	code := f.exclude(v)
	if code == "" {
		f.domains[f.layout.of[v.at]].heap.push(f.candidate(v))
	}
	return code
}

// lacks reports whether a domain's best node may be among those that are not scored yet. A node with an equal score may
// be the best too, because ties are broken by the hash.
func (d *domain) lacks() bool {
	return len(d.rest) > 0 && (len(d.heap) == 0 || d.rest[0].use >= d.heap[0].score)
}

// bound returns an upper bound of the scores of the nodes in a domain.
func (d *domain) bound() int64 {
	if d.lacks() {
		return d.rest[0].use
	}
	return d.heap[0].score
}

// pull scores the next nodes of a domain's ranking: the next one, and all others with the same use.
func (f *field) pull(d *domain) {
	n, use := 1, d.rest[0].use
	for n < len(d.rest) && d.rest[n].use == use {
		n++
	}
	many := n > len(d.heap)/4
	d.heap = slices.Grow(d.heap, n)
	for _, x := range d.rest[:n] {
		if _, done := f.fresh[x.at]; done {
			continue
		}
		c := candidate{at: x.at, moves: x.moves, tie: f.tie(x.at), score: use - int64(f.same[x.at])*f.samePenalty}
		if f.bonus != nil {
			c.score += f.bonus[x.at]
		}
		if many {
			d.heap = append(d.heap, c)
		} else {
			d.heap.push(c)
		}
	}
	if d.rest = d.rest[n:]; many {
		d.heap.build()
	}
}

// unranked counts the nodes that the filters excluded when the field was made, by code. It returns nil if the field has
// no ranking.
func (f *field) unranked() excluded {
	if f.ranking == nil {
		return nil // without a ranking, f.out includes these nodes
	}
	if !f.counted {
		f.counted = true
		for i, v := range f.views {
			code, fresh := f.fresh[int32(i)]
			switch {
			case fresh:
			case f.ranking.full[i]:
				code = model.CodeNoMemory
			default:
				code = f.excludeLasting(v)
			}
			if code != "" {
				f.began.add(code, 1)
			}
		}
	}
	return f.began
}
