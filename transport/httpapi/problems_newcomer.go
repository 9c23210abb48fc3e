package httpapi

import (
	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// newcomers adds a problem for each newcomer that waits until a person approves it.
func (p *problems) newcomers() {
	for _, n := range p.r.Newcomers.All() {
		if n.Over(&p.r.State, p.r.now) || n.ApprovedIndex+n.RejectedIndex != 0 {
			continue
		}
		who := n.Subject()
		noun := nounOf(who.Kind)
		p.add(api.ProblemNewcomerWaiting, noun+"/"+who.Name, "compare the key on that machine, then: outspan "+noun+
			" approve "+who.Name, "it waits until a person approves it, with the key %s", model.Fingerprint(n.Key()))
	}
}
