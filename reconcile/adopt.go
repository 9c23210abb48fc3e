package reconcile

import "github.com/outspan/outspan/fsm"

// adopt gives rows back to instances that a restore has lost from the state and that still run. If InstanceAdopt
// refuses an instance, for example because another instance may hold its slot, adopt records the refusal.
func (p *pass) adopt() {
	for _, id := range p.state().Kept() {
		if refusal := p.plan.try("instance/"+string(id), &fsm.InstanceAdopt{ID: id}); refusal != nil {
			p.plan.refuse("instance/"+string(id), refusal)
		}
	}
}
