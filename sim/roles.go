package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/outspan/outspan/model"
)

// roles makes the members of a program's group report their facts again after a while, because something about the
// program changed. It does nothing for a group without a role check.
func (w *world) roles(p *program) {
	if p.spec == nil || p.spec.RoleCheck == nil {
		return
	}
	group := p.group
	w.after(between(w.chance, 200, 2500), func() { w.settleRoles(group) })
}

// members returns the running programs of a group on machines that aren't frozen, in order of machine.
func (w *world) members(group model.GroupID) []*program {
	var list []*program
	for _, m := range w.nodes {
		for _, p := range m.programs {
			if p.group == group && p.alive && !m.frozen {
				list = append(list, p)
			}
		}
	}
	return list
}

// settleRoles makes every member report its facts. One of the ready members is the leader. A ready member whose copy of
// the data is not in sync completes the copy after a while.
func (w *world) settleRoles(group model.GroupID) {
	members := w.members(group)
	if len(members) == 0 {
		return
	}
	leader := slices.IndexFunc(members, func(p *program) bool { return p.told[model.FactLeader] == "true" && p.ready })
	if leader < 0 {
		leader = w.choose(members)
	}
	source := slices.ContainsFunc(members, func(p *program) bool { return p.synced })
	for i, p := range members {
		if p.ready && !p.synced && replicated(p) {
			w.sync(p, source)
		}
		p.say(p.facts(i == leader))
	}
}

// choose returns the index of the new leader: a ready member, preferably on a node whose intent is active. It returns
// -1 if no member is ready.
func (w *world) choose(members []*program) int {
	best := -1
	for i, p := range members {
		row, ok := w.log.first.Nodes.Get(p.m.id)
		stays := ok && row.Intent == model.IntentActive
		if p.ready && (best < 0 || stays) {
			best = i
			if stays {
				break
			}
		}
	}
	return best
}

func replicated(p *program) bool {
	return len(p.spec.Volumes) > 0 && p.spec.Volumes[0].Kind == model.VolumeReplicated
}

// sync completes a program's copy after a while. If source is true, the program copies from a member in sync. Otherwise
// it uses what is on its own disk, which is faster.
func (w *world) sync(p *program, source bool) {
	takes := between(p.chance, 500, 8000)
	if !source {
		takes = between(p.chance, 500, 2000)
	}
	p.in(takes, func() {
		if p.ready && !p.synced {
			p.synced = true
			p.say(p.facts(p.told[model.FactLeader] == "true"))
			w.roles(p)
		}
	})
}

// facts returns the facts that the program's role check reports. The program reports itself as the leader only if leads
// is true and it is ready.
func (p *program) facts(leads bool) map[string]string {
	switch {
	case replicated(p):
		return map[string]string{model.FactInSync: fmt.Sprint(p.synced)}
	case p.spec.Role == model.RoleShardedData:
		return map[string]string{model.FactDrained: fmt.Sprint(p.hooked != 0 && p.preparingFor(p.hooked)),
			model.FactLeadsShards: "false", model.FactShardsSafe: "true"}
	}
	return map[string]string{model.FactLeader: fmt.Sprint(leads && p.ready)}
}

func (p *program) say(facts map[string]string) {
	if maps.Equal(p.told, facts) || p.stopping || !p.alive || !p.m.agent {
		return
	}
	p.told = facts
	p.m.w.counts[CountFacts]++
	switch {
	case p.ready:
		p.tell(model.ObservedReady, "")
	case p.status.Observed == model.ObservedUnready:
		p.tell(model.ObservedUnready, p.status.Reason)
	default:
		p.tell(model.ObservedBooting, "")
	}
}

// resign does what a before_stop hook does: it makes another member the leader, or moves the data away.
func (w *world) resign(p *program) {
	if p.spec.RoleCheck == nil || replicated(p) {
		return
	}
	if p.told[model.FactLeader] == "true" {
		others := slices.DeleteFunc(w.members(p.group), func(o *program) bool { return o == p || !o.ready })
		if len(others) == 0 {
			return
		}
		p.say(p.facts(false))
		next := others[max(w.choose(others), 0)]
		next.say(next.facts(true))
		return
	}
	p.say(p.facts(false))
}

// unknown makes a member's role check fail for a while, so that the member's facts are withdrawn.
func (p *program) unknown() {
	if p.alive && p.told != nil {
		p.say(nil)
		p.m.w.after(between(p.chance, 1000, 30000), func() { p.m.w.settleRoles(p.group) })
	}
}
