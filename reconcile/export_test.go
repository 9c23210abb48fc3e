package reconcile

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Follow reports written rows to the cache, as a rehearsal does.
func (s *Cache) Follow(written []*fsm.Instance) {
	if !s.followed {
		s.follow(true)
	}
	s.note(written)
}

// Lists returns the number of groups that have an instance list in the cache.
func (s *Cache) Lists() int { return len(s.instances) }

// Surveys returns the groups, instances and nodes that a pass must look at, as two texts. The first was found through
// the indexes of the state, and the second by a scan of all rows. The texts must be equal.
func Surveys(in Input) (indexed, scanned string) {
	p := newPass(in)
	p.findGroups()
	scan := newPass(in)
	scan.scanEverything()
	return p.found(), scan.found()
}

func (p *pass) found() string {
	text := fmt.Sprintf("kills %v\nmarked %v\npolicy nodes", p.kills, p.marked)
	for _, n := range p.policyNodes() {
		text += " " + string(n.ID)
	}
	for _, g := range p.groups {
		text += fmt.Sprintf("\ngroup %s at version %d", g.id, g.row.Version)
	}
	return text
}

// scanEverything does the work of findGroups by a scan of all rows, without the indexes of the state.
func (p *pass) scanEverything() {
	s := p.state()
	dirty := map[model.GroupID]bool{}
	for _, inst := range s.Instances.All() {
		if inst.Ready() && !inst.Eviction.Requested || inst.Terminal() {
			continue
		}
		dirty[inst.Group] = true
		if inst.Desired == model.DesiredDraining {
			p.kills = append(p.kills, inst.ID)
		}
		if inst.Eviction.Requested {
			p.marked = append(p.marked, inst.ID)
		}
	}
	for _, n := range s.Nodes.All() {
		cordoned := n.Intent == model.IntentCordoned && s.Settings.EvictOn == model.EvictOnCordon
		if n.Placed.Instances == 0 || n.Intent != model.IntentDraining && n.Intent != model.IntentDisabled && !cordoned {
			continue
		}
		for inst := range s.InstancesOn(n.ID) {
			dirty[inst.Group] = true
		}
	}
	for id, row := range s.Groups.All() {
		d := p.deploymentOf(id)
		rolls := d != nil && !d.Status.Ended()
		short := row.Ready != row.Count || row.Running != row.Count
		if row.Role == model.RoleSystem && row.Count > 0 {
			short = p.systemUnsettled(row)
		}
		if dirty[id] || rolls || short {
			p.groups = append(p.groups, &groupView{id: id, row: row})
		}
	}
}

// FieldsDiffer repeatedly takes the best node for a random group while nodes change. It takes the node from two fields
// of the group: one as the product makes it, and one that scored every node at the start. It returns the first
// difference between the fields, or "".
func FieldsDiffer(in Input, r *rand.Rand, steps int) string {
	p := newPass(in)
	for id, row := range p.state().Groups.All() {
		p.groups = append(p.groups, &groupView{id: id, row: row})
	}
	p.viewGroups()
	plain := map[*groupView]*field{}
	for step := range steps {
		g := p.groups[r.IntN(len(p.groups))]
		f := p.fieldOf(g, g.row.Version)
		if plain[g] == nil {
			plain[g] = p.newField(g, g.row.Version)
			plain[g].census()
			plain[g].scoreAll()
		}
		a, b := f.take(), plain[g].take()
		switch {
		case a != b:
			return fmt.Sprintf("step %d: %s takes %v, scored at once %v", step, g.id, a, b)
		case a == nil:
			if why, all := p.nowhere(f, nil), p.nowhere(plain[g], nil); !reflect.DeepEqual(why, all) {
				return fmt.Sprintf("step %d: %s fits nowhere: %v, scored at once %v", step, g.id, why, all)
			}
			continue
		}
		if r.IntN(3) > 0 { // an instance is placed on the node
			a.promised += f.claim.MemoryBytes
			p.nodes.moved(a)
			f.count(a)
			plain[g].count(a)
		}
		if other := p.nodes.views[r.IntN(len(p.nodes.views))]; r.IntN(4) == 0 { // another change happens on a node
			other.promised += (r.Int64N(5) - 2) * f.claim.MemoryBytes
			p.nodes.moved(other)
		}
		if r.IntN(8) > 0 {
			f.putBack(a)
			plain[g].putBack(a)
		}
	}
	return ""
}

// SlotsDiffer makes the same decision twice: once with views that each represent several slots, and once with one view
// for each slot. It returns the first difference, or "".
func SlotsDiffer(in Input) string {
	shared, single := decide(in), newPass(in)
	for _, step := range passes {
		step(single)
		for _, g := range single.groups {
			for n := len(g.slotsThatDiffer); n < g.row.Count; n++ {
				g.slotsThatDiffer = append(g.slotsThatDiffer, n)
			}
		}
	}
	a, b := shared.plan.finish(in), single.plan.finish(in)
	// In both plans, one refusal of a system group covers several slots.
	a.Refused, b.Refused = refusedSlots(a.Refused), refusedSlots(b.Refused)
	if !reflect.DeepEqual(a, b) {
		return fmt.Sprintf("the plans are\n%+v\nand by slot\n%+v", a, b)
	}
	if !reflect.DeepEqual(shared.reasons.blockers, single.reasons.blockers) ||
		!reflect.DeepEqual(shared.reasons.targets, single.reasons.targets) ||
		!reflect.DeepEqual(shared.reasons.groups, single.reasons.groups) {
		return fmt.Sprintf("the reasons are\n%+v\nand by slot\n%+v", shared.reasons, single.reasons)
	}
	for id, row := range in.State.Groups.All() {
		for n := range max(row.Count, in.State.Nodes.Len()) {
			one, other := shared.reasons.slot(slotKey{id, n}), single.reasons.slot(slotKey{id, n})
			if !reflect.DeepEqual(one, other) {
				return fmt.Sprintf("the reason of %s slot %d is %+v, and by slot %+v", id, n, one, other)
			}
		}
	}
	return ""
}

// Leaving returns which instances of a group a scale-down would stop, in this order, if all instances were worth the
// same. The parameter count is the number of instances to stop. The result compared is the number of comparisons that
// the scale-down's queue made.
func Leaving(in Input, id model.GroupID, count int) (taken []model.InstanceID, compared int) {
	p, g, held := heldOf(in, id)
	queue := p.spreadQueue(g, held, len(held))
	for range count {
		taken = append(taken, queue.take().holder.ID)
	}
	return taken, queue.compared
}

// LeavingPlainly returns the same instances as Leaving, but finds them without a queue: before each choice, it compares
// all instances that are left.
func LeavingPlainly(in Input, id model.GroupID, count int) (taken []model.InstanceID) {
	p, g, left := heldOf(in, id)
	for range count {
		next := slices.MinFunc(left, func(a, b *slotView) int {
			return cmp.Or(-slices.Compare(p.crowdedAt(g, left, a), p.crowdedAt(g, left, b)), older(a.holder, b.holder))
		})
		taken = append(taken, next.holder.ID)
		left = slices.DeleteFunc(left, func(v *slotView) bool { return v == next })
	}
	return taken
}

// heldOf returns a new pass, its view of a group, and the group's slots that have a holder, the oldest holder first.
func heldOf(in Input, id model.GroupID) (*pass, *groupView, []*slotView) {
	p := newPass(in)
	row, _ := p.state().Groups.Get(id)
	g := &groupView{id: id, row: row}
	p.groups = append(p.groups, g)
	p.viewGroups()
	held := slices.DeleteFunc(slices.Clone(g.slots()), func(v *slotView) bool { return v.holder == nil })
	slices.SortFunc(held, func(a, b *slotView) int { return older(a.holder, b.holder) })
	return p, g, held
}

// crowdedAt returns how crowded the place of v's holder is, considering only the group's slots in left. The values are
// the number of instances that share a value of a spread (once for each spread), the number of instances on the same
// node, and how many tenths of that node's memory are allocated. With the algorithm binpack, the last two values are 0.
func (p *pass) crowdedAt(g *groupView, left []*slotView, v *slotView) []int64 {
	at := p.candidates().view(v.holder.Node)
	if at == nil {
		return []int64{0, 0, 0}
	}
	var shared, here int64
	for _, other := range left {
		there := p.candidates().view(other.holder.Node)
		if there == nil {
			continue
		}
		if there == at {
			here++
		}
		for i := range g.spec.Spreads {
			one, _ := at.node.Attribute(g.spec.Spreads[i].Attribute)
			if two, _ := there.node.Attribute(g.spec.Spreads[i].Attribute); one == two {
				shared++
			}
		}
	}
	if p.in.State.Settings.Algorithm == "binpack" {
		return []int64{shared, 0, 0}
	}
	return []int64{shared, here, at.held.MemoryBytes * 10 / max(at.size.MemoryBytes, 1)}
}

// refusedSlots replaces each refusal with the subject "group/JOB/GROUP/FIRST-LAST" by one refusal per slot.
func refusedSlots(refused []Refusal) []Refusal {
	var all []Refusal
	for _, r := range refused {
		at := strings.LastIndexByte(r.Subject, '/') + 1
		var first, last int
		if n, _ := fmt.Sscanf(r.Subject[at:], "%d-%d", &first, &last); n < 2 || !strings.HasPrefix(r.Subject, "group/") {
			all = append(all, r)
			continue
		}
		for slot := first; slot <= last; slot++ {
			all = append(all, Refusal{fmt.Sprintf("%s%d", r.Subject[:at], slot), r.Code, r.Message})
		}
	}
	return all
}

func (p *pass) deploymentOf(g model.GroupID) *fsm.Deployment {
	name, _ := g.Split()
	job, ok := p.state().Jobs.Get(name)
	if !ok {
		return nil
	}
	d, _ := p.state().Deployments.Get(job.Deployment)
	return d
}
