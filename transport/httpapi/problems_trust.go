package httpapi

import (
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// gossipPatience is how long a step of a rotation of the gossip key may wait before it is a problem.
const gossipPatience = 10 * model.Minute

// gossip adds a problem if a rotation of the gossip key waits for members that don't take the keys.
func (p *problems) gossip(keys GossipKeys) {
	rows := p.r.KeysOf(model.KeyGossip)
	if keys == nil || len(rows) < 2 {
		return
	}
	var changed model.Time
	for _, row := range rows {
		changed = max(changed, row.At)
	}
	v, err := keys.GossipKeys(&p.r.State)
	if waits := p.r.now.Sub(changed); err == nil && v.WaitsFor > 0 && waits > gossipPatience {
		var names []string
		for _, m := range v.Lacking {
			if m.Waits {
				names = append(names, m.Subject)
			}
		}
		p.add(api.ProblemGossipRotation, "cluster", "look at their logs; see: outspan gossip key ls",
			"the rotation of the gossip key has waited for %s: %d servers and agents don't take the keys, such as %s",
			seconds(waits), v.WaitsFor, strings.Join(names[:min(len(names), 3)], ", "))
	}
}
