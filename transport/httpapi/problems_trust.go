package httpapi

import (
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// rotationPatience is how long a step of a rotation of keys may wait before it is a problem.
const rotationPatience = 10 * model.Minute

// revoked reports whether the server of this name was revoked, and has not joined again.
func (p *problems) revoked(name string) bool {
	row, ok := p.r.TrustMemberOf(model.Subject{Kind: model.SubjectServer, Name: name})
	return ok && row.RevokedIndex != 0
}

// gossip adds a problem if a rotation of the gossip key waits for members that don't take the keys. Only the leader
// knows which servers are absent, and so whom the rotation waits for.
func (p *problems) gossip(keys GossipKeys) {
	rows := p.r.KeysOf(model.KeyGossip)
	if keys == nil || len(rows) < 2 || !p.leads {
		return
	}
	var changed model.Time
	for _, row := range rows {
		changed = max(changed, row.At)
	}
	v, err := keys.GossipKeys(&p.r.State)
	if waits := p.r.now.Sub(changed); err == nil && v.WaitsFor > 0 && waits > rotationPatience {
		var names []string
		for _, m := range v.Lacking {
			if m.Waits {
				names = append(names, m.Subject)
			}
		}
		p.add(api.ProblemGossipRotation, "cluster", "look at their logs; see: outspan gossip key ls; to go on without them: "+
			"outspan gossip key rotate --force",
			"the rotation of the gossip key has waited for %s: %d servers and agents don't take the keys, such as %s",
			seconds(waits), v.WaitsFor, strings.Join(names[:min(len(names), 3)], ", "))
	}
}

// caRotation adds a problem if a rotation of the CA waits for members, or if members still trust a CA that was dropped.
func (p *problems) caRotation(ca CARotation) {
	rows := p.r.KeysOf(model.KeyCA)
	if ca == nil || len(rows) == 0 {
		return
	}
	v, err := ca.CAStatus(&p.r.State)
	if err != nil || v.Rotation == nil || v.Rotation.Waiting == 0 {
		return
	}
	newest := rows[len(rows)-1]
	began := newest.At
	if v.Rotation.Step == api.CAForget {
		began = began.Add(newest.Grace) // the old CA was dropped then at the earliest
	}
	if waits := p.r.now.Sub(began); waits > rotationPatience {
		var names []string
		for _, m := range v.Rotation.WaitingFor {
			names = append(names, m.Subject)
		}
		p.add(api.ProblemCARotation, "cluster", "look at their logs; see: outspan ca status; to leave them behind: outspan "+
			"ca rotate --force NAME", "the rotation of the CA has waited for %s in the step %s for %d servers and agents, "+
			"such as %s", seconds(waits), v.Rotation.Step, v.Rotation.Waiting, strings.Join(names[:min(len(names), 3)], ", "))
	}
}
