package reconcile

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// replaceable reports whether the gates of a group's replacement let another member take over from a member that is
// down. If not, it records the reason. It returns true if there are no such gates.
func (p *pass) replaceable(g *groupView, old *fsm.Instance) bool {
	if g.spec.Replacement.Mode != model.ModeWhen {
		return true
	}
	refusal := p.factsOnTheirWay(g.id, p.state().FactsRefs(old))
	if refusal == nil {
		refusal = p.state().CheckGates(old, g.spec.Replacement.When, fsm.EveryGate)
	}
	if refusal == nil {
		return true
	}
	p.block(old, refusal.Code, "it is not replaced yet: "+refusal.Message, refusal.Hint)
	return false
}

// afterLeaving adjusts the need of an empty slot to the group's role, or returns nil if the slot has to wait. It
// changes nothing if the slot's last instance had another version or was stopped by its own job. A group that is never
// replaced elsewhere gets its next instance on the same node, once that node is eligible. A group that is replaced
// under conditions waits for them if the node went offline.
func (p *pass) afterLeaving(g *groupView, slot *slotView, n *need) *need {
	last := slot.last
	if last == nil || g.system() || last.Version != n.version {
		return n
	}
	switch last.Marks.StopCause {
	case model.CauseNodeOffline, model.CauseNodeDraining, model.CauseNodeDisabled, model.CauseNodeNotReady,
		model.CausePreempted, model.CauseRebalance, model.CauseAffinity, model.CauseDrainTimeout:
	default:
		return n
	}
	if home := p.node(last.Node); g.spec.Replacement.Mode == model.ModeNever && n.home == "" && home != nil {
		if refusal := p.state().Eligible(home); refusal != nil {
			p.keepVacant(g, slot, model.Refuse(model.CodeRoleNever, "%s is never replaced elsewhere, and %s", g.id,
				refusal.Message).WithHint("bring the node back into use, or run a new version"))
			return nil
		}
		n.home = last.Node
	}
	if last.Marks.StopCause != model.CauseNodeOffline || g.spec.Replacement.Mode != model.ModeWhen {
		return n
	}
	refusal := p.factsOnTheirWay(g.id, p.state().FactsRefs(last))
	if refusal == nil {
		refusal = p.state().CheckGates(last, g.spec.Replacement.When, fsm.EveryGate)
	}
	if refusal != nil {
		p.keepVacant(g, slot, refusal)
		return nil
	}
	return n
}

// keepVacant records why an empty slot gets no instance now.
func (p *pass) keepVacant(g *groupView, slot *slotView, refusal *model.Error) {
	p.reasons.noRoom(slotKey{g.id, slot.n}, &unplaced{code: refusal.Code, message: refusal.Message})
	p.plan.refuse(fmt.Sprintf("%s/%d", g.subject(), slot.n), refusal)
}

// ofMembers reports whether refusals with this code depend on facts of members. Such facts may change by themselves or
// through work on the members.
func ofMembers(code model.Code) bool {
	switch code {
	case model.CodeIsLeader, model.CodeNotDrained, model.CodeNoInSyncFollower, model.CodeQuorumNotHealthy,
		model.CodeFactsUnknown, model.CodeHookFailed:
		return true
	}
	return strings.HasPrefix(string(code), string(model.Gated("")))
}

// hooked returns the facts of an instance after its before_stop hook succeeded: they satisfy the gates on the instance
// itself. If these facts end its leadership, another ready member becomes the leader. Without a hook or gates, the
// facts do not change.
func (r *rehearsal) hooked(inst *fsm.Instance) map[string]string {
	policy, ok := r.in.State.Policy(inst.Group)
	if _, has := r.in.State.Hook(inst, model.HookBeforeStop); !has || !ok || policy.Eviction.Mode != model.ModeWhen {
		return inst.Status.Facts
	}
	facts := maps.Clone(inst.Status.Facts)
	if facts == nil {
		facts = map[string]string{}
	}
	led := facts[model.FactLeader] == "true"
	for _, text := range policy.Eviction.When {
		switch gate, _ := model.ParseGate(text); gate.Subject {
		case model.GateSelf:
			facts[gate.Fact] = strconv.FormatBool(!gate.Not)
		case model.GateLedShards:
			facts[model.FactShardsSafe] = "true"
		}
	}
	if led && facts[model.FactLeader] == "false" {
		r.elect(inst)
	}
	return facts
}

// elect makes another ready member of the instance's group the leader, if there is one.
func (r *rehearsal) elect(instead *fsm.Instance) {
	for other := range r.in.State.InstancesOf(instead.Group) {
		if other.ID == instead.ID || !other.Ready() {
			continue
		}
		n, _ := r.in.State.Nodes.Get(other.Node)
		status := other.Status
		status.Generation++
		if status.Facts = maps.Clone(status.Facts); status.Facts == nil {
			status.Facts = map[string]string{}
		}
		status.Facts[model.FactLeader] = "true"
		r.commit(&fsm.NodeReport{ID: n.ID, Epoch: n.Agent.Epoch, Instances: []model.InstanceStatus{status}})
		return
	}
}
