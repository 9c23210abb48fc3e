package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Weights of the soft rules, in points. The score for a node's use is at most the constant full.
const (
	full          = 10_000
	sameGroup     = full     // penalty for each instance of the group on the node, with the algorithm spread
	sameValue     = 2 * full // penalty for each instance of the group that shares a spread value with the node
	affinityPoint = 200      // for each unit of an affinity's weight; the greatest weight makes up for two instances
	failedThere   = 5 * full // penalty for each recent failure of the group on the node
	avoidedThere  = 1 << 40  // penalty that outweighs all preferences together (R40)
	detourThere   = 1 << 41  // penalty that makes the node a last resort, because an instance on it has to move twice
)

// score returns how good a node is for one more instance; greater is better. It does not include the penalty for
// spreads, which is the same for all nodes of a domain.
func (f *field) score(c *candidate) int64 {
	v := f.views[c.at]
	score := f.use(v) - int64(f.same[c.at])*f.samePenalty
	if f.bonus != nil {
		score += f.bonus[c.at]
	}
	return score
}

// use returns the score for how full the node would be with one more instance. The algorithm spread prefers empty
// nodes, binpack full ones.
func (f *field) use(v *nodeView) int64 {
	return f.useOf(v, v.held.MemoryBytes+v.promised+f.claim.MemoryBytes, v.held.CPU+f.claim.CPU)
}

// useOf returns the score for a node on which heldMemory bytes and heldCPU are used.
func (f *field) useOf(v *nodeView, heldMemory, heldCPU int64) int64 {
	capacity := &v.size
	memory, cpu := int64(full), int64(full)
	if capacity.MemoryBytes > 0 {
		memory = heldMemory / max(capacity.MemoryBytes/full, 1)
	}
	if capacity.CPU > 0 {
		cpu = heldCPU * full * 100 / (capacity.CPU * max(f.overcommit, 1))
	}
	used := min((memory+min(cpu, full))/2, full)
	if f.binpack {
		return used
	}
	return full - used
}

// affinity returns the points that the group's affinities give a node.
func (f *field) affinity(n *fsm.Node) int64 {
	total := int64(0)
	for i := range f.spec.Affinities {
		if a := &f.spec.Affinities[i]; n.Meets(&a.Constraint) {
			total += int64(a.Weight) * affinityPoint
		}
	}
	return total
}

// constantBonus returns the part of a node's score that stays the same while instances are placed: affinities, recent
// failures, the avoid list, whether the node has the image, and whether it waits for its turn in a drain.
func (f *field) constantBonus(v *nodeView) int64 {
	total := f.affinity(v.node)
	if v.avoided {
		if _, avoided := v.node.Avoids(f.group.id, f.version, f.pass.in.Now); avoided {
			total -= avoidedThere
		}
	}
	if c := f.spec.Container; c != nil {
		if image, _ := v.node.Image(c.ImageDigest()); image.State == model.ImagePresent {
			total += imageThere
		}
	}
	if v.detour {
		total -= detourThere
	}
	for i := range f.failures {
		if f.failures[i].Node == v.node.ID {
			total -= failedThere
		}
	}
	return total
}

// domain is the set of nodes that have the same values for all spread attributes. The heap's first node has the best
// score of those in the heap.
type domain struct {
	heap candidates
	rest []ranked // nodes that are not scored yet, the best first
	used int64    // the group's instances, each counted once for each spread value that it shares with this domain
}

// countSpread adds delta instances on a node to the counts of all domains that share a value with it.
func (f *field) countSpread(v *nodeView, delta int64) {
	switch len(f.spec.Spreads) {
	case 0:
		return
	case 1: // with one spread, no two domains share a value
		f.domains[f.layout.of[v.at]].used += delta
		return
	}
	here := f.layout.domains[f.layout.of[v.at]]
	for i, there := range f.layout.domains {
		for j := range here {
			if here[j] == there[j] {
				f.domains[i].used += delta
			}
		}
	}
}

// candidate is one scored node in a field. It holds no pointers, so that the garbage collector need not scan a hundred
// fields of 5,000 nodes.
type candidate struct {
	score int64
	tie   uint64 // hash of group and node
	at    int32  // position of the node
	moves int32  // value of the view's moves when the node was scored
}

// candidates is a heap. The best score comes first. Among equal scores, the smallest tie comes first, and then the
// lowest position.
type candidates []candidate

func (c candidates) better(i, j int) bool {
	a, b := &c[i], &c[j]
	if a.score != b.score {
		return a.score > b.score
	}
	if a.tie != b.tie {
		return a.tie < b.tie
	}
	return a.at < b.at
}

func (c candidates) down(i int) {
	for {
		best := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < len(c) && c.better(child, best) {
				best = child
			}
		}
		if best == i {
			return
		}
		c[i], c[best] = c[best], c[i]
		i = best
	}
}

func (c candidates) build() {
	for i := len(c)/2 - 1; i >= 0; i-- {
		c.down(i)
	}
}

func (c *candidates) push(x candidate) {
	*c = append(*c, x)
	for i := len(*c) - 1; i > 0; {
		parent := (i - 1) / 2
		if !c.better(i, parent) {
			return
		}
		(*c)[i], (*c)[parent] = (*c)[parent], (*c)[i]
		i = parent
	}
}

func (c *candidates) pop() candidate {
	old := *c
	top, last := old[0], len(old)-1
	old[0] = old[last]
	*c = old[:last]
	c.down(0)
	return top
}
