package reconcile

import "github.com/outspan/outspan/fsm"

// adopt takes over the instances that a restore has lost from the state and that hold their slots. If InstanceAdopt
// refuses one, for example because another instance may hold the slot too, adopt records the refusal.
func (p *pass) adopt() {
	for _, id := range p.state().Kept() {
		if refusal := p.plan.try("instance/"+string(id), &fsm.InstanceAdopt{ID: id}); refusal != nil {
			p.plan.refuse("instance/"+string(id), refusal)
		}
	}
}
