package reconcile

import (
	"container/heap"

	"github.com/outspan/outspan/model"
)

// spreadQueue contains instances of a group in the order in which to stop them, so that the group stays most evenly
// spread. The next instance is in the most crowded spread domain, on the domain's node with the most instances of the
// group. Among such nodes, the fullest one is first, and then the one with the oldest instance.
//
// The domains, and the nodes of each domain, are in heaps. Taking an instance changes the positions of its node and its
// domain. It changes the positions of other domains only if the group has several spreads.
type spreadQueue struct {
	domains  crowdHeap[*crowdedDomain]
	compared int // number of comparisons in all heaps, for tests
}

// crowdedDomain is a spread domain with those of its nodes from which instances may be taken.
type crowdedDomain struct {
	shares []*int // by attribute: number of the group's instances in all domains with the same value
	weight int    // sum of shares
	nodes  crowdHeap[*crowdedNode]
}

// crowdedNode is a node with the slots that may be taken from it, the most dispensable first.
type crowdedNode struct {
	count int   // number of the group's instances; 0 for forgotten nodes and with binpack
	use   int64 // how full the node is, in units of 1/useSteps; 0 for forgotten nodes and with binpack
	slots []*slotView
}

const useSteps = 10 // nodes that are full to the same tenth are treated as equally full

// spreadQueue returns a queue of the slots held[:alike]. Their holders must be of equal worth, the oldest first. The
// other slots in held only add to the numbers of instances on nodes and in domains. Instances on forgotten nodes are
// taken last.
func (p *pass) spreadQueue(g *groupView, held []*slotView, alike int) *spreadQueue {
	q, table := &spreadQueue{}, p.candidates()
	l := table.layoutOf(g.spec.Spreads)
	domains := q.domainsOf(l)
	packs := p.in.State.Settings.Algorithm == "binpack" // binpack wants full nodes, so all nodes of a domain are one here
	type place struct {
		domain *crowdedDomain
		node   model.NodeID
	}
	nodes := map[place]*crowdedNode{}
	for i, slot := range held {
		at, v := place{domain: domains[len(l.domains)]}, table.view(slot.holder.Node)
		if v != nil {
			at.domain = domains[l.of[v.at]]
			at.domain.count(1)
			if !packs {
				at.node = v.node.ID
			}
		}
		node := nodes[at]
		if node == nil {
			node = &crowdedNode{}
			nodes[at] = node
		}
		if at.node != "" {
			node.count++
			node.use = v.held.MemoryBytes * useSteps / max(v.size.MemoryBytes, 1)
		}
		if i < alike {
			if len(node.slots) == 0 {
				at.domain.nodes.all = append(at.domain.nodes.all, node)
			}
			node.slots = append(node.slots, slot)
		}
	}
	q.domains.before, q.domains.compared = (*crowdedDomain).before, &q.compared
	for _, d := range domains {
		if len(d.nodes.all) > 0 {
			d.weigh()
			heap.Init(&d.nodes)
			q.domains.all = append(q.domains.all, d)
		}
	}
	heap.Init(&q.domains)
	return q
}

// domainsOf returns the domains of a layout, without nodes, and one more for forgotten nodes.
func (q *spreadQueue) domainsOf(l *layout) []*crowdedDomain {
	type value struct {
		attribute int
		text      string
	}
	shares := map[value]*int{}
	domains := make([]*crowdedDomain, len(l.domains)+1)
	for i := range domains {
		domains[i] = &crowdedDomain{nodes: crowdHeap[*crowdedNode]{before: (*crowdedNode).before, compared: &q.compared}}
	}
	for i, values := range l.domains {
		for attribute, text := range values {
			key := value{attribute, text}
			if shares[key] == nil {
				shares[key] = new(int)
			}
			domains[i].shares = append(domains[i].shares, shares[key])
		}
	}
	return domains
}

// take removes the next slot and returns it. The queue must not be empty.
func (q *spreadQueue) take() *slotView {
	d := q.domains.all[0]
	slot := d.take()
	if len(d.nodes.all) == 0 {
		heap.Pop(&q.domains)
	}
	switch {
	case len(d.shares) > 1:
		for _, other := range q.domains.all {
			other.weigh()
		}
		heap.Init(&q.domains)
	case len(d.nodes.all) > 0:
		d.weigh()
		heap.Fix(&q.domains, 0)
	}
	return slot
}

func (d *crowdedDomain) take() *slotView {
	node := d.nodes.all[0]
	slot := node.slots[0]
	node.count = max(node.count-1, 0)
	if node.slots = node.slots[1:]; len(node.slots) == 0 {
		heap.Pop(&d.nodes)
	} else {
		heap.Fix(&d.nodes, 0)
	}
	d.count(-1)
	return slot
}

func (d *crowdedDomain) count(delta int) {
	for _, share := range d.shares {
		*share += delta
	}
}

func (d *crowdedDomain) weigh() {
	d.weight = 0
	for _, share := range d.shares {
		d.weight += *share
	}
}

func (d *crowdedDomain) before(other *crowdedDomain) bool {
	if d.weight != other.weight {
		return d.weight > other.weight
	}
	return d.nodes.all[0].before(other.nodes.all[0])
}

func (n *crowdedNode) before(other *crowdedNode) bool {
	switch {
	case n.count != other.count:
		return n.count > other.count
	case n.use != other.use:
		return n.use > other.use
	}
	return older(n.slots[0].holder, other.slots[0].holder) < 0
}

// crowdHeap is a heap with the most crowded element first.
type crowdHeap[T any] struct {
	all      []T
	before   func(a, b T) bool
	compared *int
}

// Len implements heap.Interface.
func (h *crowdHeap[T]) Len() int { return len(h.all) }

// Less implements heap.Interface.
func (h *crowdHeap[T]) Less(i, j int) bool {
	*h.compared++
	return h.before(h.all[i], h.all[j])
}

// Swap implements heap.Interface.
func (h *crowdHeap[T]) Swap(i, j int) { h.all[i], h.all[j] = h.all[j], h.all[i] }

// Push implements heap.Interface. It is never called.
func (h *crowdHeap[T]) Push(any) {}

// Pop implements heap.Interface.
func (h *crowdHeap[T]) Pop() any {
	last := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]
	return last
}
