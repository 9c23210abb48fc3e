package reconcile

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/outspan/outspan/fsm"
)

// scaleDown takes the slots above the count, the most dispensable instance first.
func (p *pass) scaleDown(g *groupView) {
	excess := g.held() - g.row.Count
	if excess <= 0 {
		return
	}
	held := slices.DeleteFunc(slices.Clone(g.slots()), func(v *slotView) bool { return v.holder == nil })
	if len(g.spec.Volumes) > 0 { // data is tied to slots: the largest go, so that what stays keeps its data
		slices.SortStableFunc(held, func(a, b *slotView) int { return cmp.Compare(b.n, a.n) })
	} else {
		slices.SortStableFunc(held, func(a, b *slotView) int { return p.dispensable(g, a.holder, b.holder) })
		p.balance(g, held, excess)
	}
	cause, by := fsm.CauseScaleDown, "above the count"
	if g.job.Stopped {
		cause, by = fsm.CauseJobStopped, "the job is stopped"
	}
	for _, slot := range held[:excess] {
		slot.dropped = true
		p.stop(slot.holder, cause, by)
		if slot.successor != nil {
			p.stop(slot.successor, cause, by)
		}
	}
}

// compareWorth orders instances for scale-down: failed, not ready (those that never were first), on draining nodes, whom no gate of its role keeps,
// newest version last. While the latest version is one that failed, it is the first to go.
func (p *pass) compareWorth(g *groupView, a, b *fsm.Instance) int {
	failed := g.deploy != nil && g.deploy.Status == fsm.DeploymentFailed
	return cmp.Or(
		first(isDown(a), isDown(b)),
		first(a.Eviction.Preparing, b.Eviction.Preparing),
		first(isStarting(a), isStarting(b)),
		first(!a.Ready(), !b.Ready()),
		first(p.leaving(a), p.leaving(b)),
		cmp.Compare(p.bound(a), p.bound(b)),
		first((a.Version == g.row.Version) == failed, (b.Version == g.row.Version) == failed),
		cmp.Compare(a.Version, b.Version),
	)
}

func isStarting(inst *fsm.Instance) bool {
	return inst.Status.Observed == fsm.ObservedPending || inst.Status.Observed == fsm.ObservedBooting
}

// balance puts slots whose holders are worth the same in the order in which they leave the group the most evenly spread. held is in order of worth, and
// the first excess of it go. With the algorithm binpack only domains of a spread count.
func (p *pass) balance(g *groupView, held []*slotView, excess int) {
	if excess >= len(held) {
		return
	}
	last := held[excess].holder
	alike := func(v *slotView) bool { return p.compareWorth(g, v.holder, last) == 0 }
	from := slices.IndexFunc(held, alike)
	if from >= excess || p.in.State.Settings.Algorithm == "binpack" && len(g.spec.Spreads) == 0 {
		return // age makes no difference, or all that counts
	}
	to := excess
	for to < len(held) && alike(held[to]) {
		to++
	}
	c := p.presenceOf(g, held[from:])
	order := make([]*slotView, 0, to-from)
	for queue := c.queue(held[from:to]); len(order) < excess-from; {
		order = append(order, queue.take())
	}
	taken := make(map[*slotView]bool, len(order))
	for _, v := range order {
		taken[v] = true
	}
	for _, v := range held[from:to] {
		if !taken[v] {
			order = append(order, v)
		}
	}
	copy(held[from:to], order)
}

// presence counts the instances of a group where they are.
type presence struct {
	pass    *pass
	layout  *layout
	domains []int // by domain of the group's spreads
	nodes   map[fsm.NodeID]int
	packs   bool // nodes are to be full: how many of the group are on one is no matter
}

func (p *pass) presenceOf(g *groupView, held []*slotView) *presence {
	c := &presence{
		pass: p, layout: p.candidates().layoutOf(g.spec.Spreads), nodes: map[fsm.NodeID]int{},
		packs: p.in.State.Settings.Algorithm == "binpack",
	}
	c.domains = make([]int, len(c.layout.domains))
	for _, v := range held {
		c.count(v.holder.Node, 1)
	}
	return c
}

func (c *presence) count(node fsm.NodeID, delta int) {
	c.nodes[node] += delta
	if v := c.pass.candidates().view(node); v != nil {
		c.domains[c.layout.of[v.at]] += delta
	}
}

// crowding is how crowded it is where a node is. Of two it is the first greater number that counts.
type crowding struct {
	domain int // instances of the group in domains that share a value with the node's, once for each shared value
	node   int // instances of the group on the node
	use    int64
}

const useSteps = 10 // how finely nodes are told apart by how full they are

func (c *presence) at(node fsm.NodeID) crowding {
	v := c.pass.candidates().view(node)
	if v == nil {
		return crowding{}
	}
	out, here := crowding{}, c.layout.domains[c.layout.of[v.at]]
	for i, there := range c.layout.domains {
		for j := range here {
			if here[j] == there[j] {
				out.domain += c.domains[i]
			}
		}
	}
	if !c.packs {
		out.node, out.use = c.nodes[node], v.held.MemoryBytes*useSteps/max(v.size.MemoryBytes, 1)
	}
	return out
}

func (a crowding) compare(b crowding) int {
	return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.node, b.node), cmp.Compare(a.use, b.use))
}

// crowdQueue gives the slots of the most crowded node first. What is taken makes it less crowded, so a node's place in the heap is an upper bound.
type crowdQueue struct {
	crowd *presence
	heap  []crowdedNode
}

// crowdedNode is a node with what may be taken from it, the most dispensable first.
type crowdedNode struct {
	node  fsm.NodeID
	was   crowding
	slots []*slotView
}

func (c *presence) queue(slots []*slotView) *crowdQueue {
	q, at := &crowdQueue{crowd: c}, map[fsm.NodeID]int{}
	for _, v := range slots {
		i, known := at[v.holder.Node]
		if !known {
			i = len(q.heap)
			at[v.holder.Node], q.heap = i, append(q.heap, crowdedNode{node: v.holder.Node, was: c.at(v.holder.Node)})
		}
		q.heap[i].slots = append(q.heap[i].slots, v)
	}
	heap.Init(q)
	return q
}

// take returns the next slot. There must be one.
func (q *crowdQueue) take() *slotView {
	for {
		top := &q.heap[0]
		if now := q.crowd.at(top.node); now != top.was {
			top.was = now
			heap.Fix(q, 0)
			continue
		}
		v := top.slots[0]
		q.crowd.count(top.node, -1)
		if top.slots = top.slots[1:]; len(top.slots) == 0 {
			heap.Pop(q)
		} else {
			heap.Fix(q, 0)
		}
		return v
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (q *crowdQueue) Len() int { return len(q.heap) }

// Less implements heap.Interface.
func (q *crowdQueue) Less(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	return cmp.Or(b.was.compare(a.was), older(a.slots[0].holder, b.slots[0].holder)) < 0
}

// Swap implements heap.Interface.
func (q *crowdQueue) Swap(i, j int) { q.heap[i], q.heap[j] = q.heap[j], q.heap[i] }

// Push implements heap.Interface. Nothing is put back.
func (q *crowdQueue) Push(any) {}

// Pop implements heap.Interface.
func (q *crowdQueue) Pop() any {
	last := q.heap[len(q.heap)-1]
	q.heap = q.heap[:len(q.heap)-1]
	return last
}
