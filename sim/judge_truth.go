package sim

import (
	"maps"
	"slices"

	"github.com/outspan/outspan/fsm"
)

// started checks what truly runs when the program p starts. All programs on the machine must fit into its memory and
// use different ports (S1). No other program may have the same identity or volume (S2).
func (j *judge) started(p *program) {
	j.fits(p)
	j.imaged(p)
	if p.spec == nil || !p.spec.OneHolder() {
		return
	}
	for _, m := range j.nodes {
		for _, other := range m.programs {
			if other == p || !other.alive || other.group != p.group || other.slot != p.slot {
				continue
			}
			shares := other.spec != nil &&
				(!p.hasLocal() && !other.hasLocal() && other.spec.OneHolder() || p.hasLocal() && other.hasLocal())
			doomed := m.frozen && other.fenced() && m.lease.over(other, j.now) // its shim kills it as soon as the machine thaws
			if shares && !doomed {
				j.fail(fsm.S2, "%s starts on %s as slot %d of %s, and %s runs on %s (frozen %v)", p.id, p.m.id, p.slot,
					p.group, other.id, m.id, m.frozen)
				return
			}
		}
	}
}

func (j *judge) fits(p *program) {
	sum := int64(0)
	ports := map[int]*program{}
	for _, other := range p.m.programs {
		if !other.alive {
			continue
		}
		sum += other.memory
		for _, name := range slices.Sorted(maps.Keys(other.ports)) {
			port := other.ports[name]
			if holder := ports[port]; holder != nil {
				j.fail(fsm.S1, "port %d of %s is used by %s and %s", port, p.m.id, holder.id, other.id)
				return
			}
			ports[port] = other
		}
	}
	if sum > p.m.memory {
		j.fail(fsm.S1, "programs of %d MiB run on %s, which has %d", sum/mib, p.m.id, p.m.memory/mib)
	}
}
