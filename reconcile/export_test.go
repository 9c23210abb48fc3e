package reconcile

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"

	"github.com/outspan/outspan/fsm"
)

// Follow tells a Seen of rows that were written, as a rehearsal does.
func (s *Seen) Follow(written []*fsm.Instance) {
	if !s.followed {
		s.follow(true)
	}
	s.note(written)
}

// Surveys is what a pass finds by the indexes of the state, and what a scan of every row finds: they must be equal.
func Surveys(in Input) (indexed, scanned string) {
	p := newPass(in)
	p.survey()
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

// scanEverything is the survey in the plainest words.
func (p *pass) scanEverything() {
	s := p.state()
	dirty := map[fsm.GroupID]bool{}
	for _, inst := range s.Instances.All() {
		if inst.Ready() && !inst.Eviction.Requested || inst.Terminal() {
			continue
		}
		dirty[inst.Group] = true
		if inst.Desired == fsm.DesiredDraining {
			p.kills = append(p.kills, inst.ID)
		}
		if inst.Eviction.Requested {
			p.marked = append(p.marked, inst.ID)
		}
	}
	for _, n := range s.Nodes.All() {
		cordoned := n.Intent == fsm.IntentCordoned && s.Settings.EvictOn == fsm.EvictOnCordon
		if n.Placed.Instances == 0 || n.Intent != fsm.IntentDraining && n.Intent != fsm.IntentDisabled && !cordoned {
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
		if row.Role == fsm.RoleSystem && row.Count > 0 {
			short = p.systemUnsettled(row)
		}
		if dirty[id] || rolls || short {
			p.groups = append(p.groups, &groupView{id: id, row: row})
		}
	}
}

// FieldsDiffer takes nodes from the fields of a cluster's groups, from those that share rankings and from others in which every node is scored when they begin, and
// changes nodes meanwhile. It tells where the two differ; empty: nowhere.
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
		if r.IntN(3) > 0 { // placed there
			a.promised += f.claim.MemoryBytes
			p.nodes.moved(a)
			f.count(a)
			plain[g].count(a)
		}
		if other := p.nodes.views[r.IntN(len(p.nodes.views))]; r.IntN(4) == 0 { // by what else goes on
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

// SlotsDiffer decides once with views that stand for several slots, and once with a view for each slot. It tells where
// the two differ; empty: nowhere.
func SlotsDiffer(in Input) string {
	shared, single := decide(in), newPass(in)
	for _, step := range passes {
		step(single)
		for _, g := range single.groups {
			for n := len(g.apart); n < g.row.Count; n++ {
				g.apart = append(g.apart, n)
			}
		}
	}
	a, b := shared.plan.finish(in), single.plan.finish(in)
	a.Refused = refusedSlots(a.Refused)
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

// refusedSlots has a refusal of its own for each slot of "group/JOB/GROUP/FIRST-LAST".
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
