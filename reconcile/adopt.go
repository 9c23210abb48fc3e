package reconcile

import "github.com/outspan/outspan/fsm"

// adopt takes over the instances that a restore lost from the state. It does so only for an instance that holds its
// slot where no other instance may be in that slot. The rest wait for an operator.
func (p *pass) adopt() {
	for _, id := range p.state().Kept() {
		if refusal := p.plan.try("instance/"+string(id), &fsm.InstanceAdopt{ID: id}); refusal != nil {
			p.plan.refuse("instance/"+string(id), refusal)
		}
	}
}
