package invariant

import (
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// FromOutside reports whether an instance's role and gates protect the instance from a stop for this cause (S6).
func FromOutside(cause model.Cause) bool {
	switch cause {
	case model.CauseNodeDraining, model.CauseNodeNotReady, model.CausePreempted, model.CauseRebalance, model.CauseAffinity:
		return true
	}
	return false
}

// reasons checks S6: a drain, a preemption or the rescheduler stops an instance only for a committed reason that is
// still valid. Unless a drain is forced, an instance keeps running if its role or a gate requires that, or if it has
// the last copy of its data.
func (j *Judge) reasons(f *fsm.Findings, s *Step) {
	s.began(func(was, now *fsm.Instance) {
		if !ran(was, now) {
			return
		}
		if FromOutside(now.Marks.StopCause) {
			j.reason(f, s, was, now)
		}
		j.lastCopy(f, s, was, now)
	})
}

func (j *Judge) reason(f *fsm.Findings, s *Step, was, now *fsm.Instance) {
	drain, drained := drainOf(s, now)
	if why := s.unfounded(now, drain, drained); why != "" {
		f.Add(fsm.S6, "instance %s was told to stop for %s by %q, and %s", now.ID, now.Marks.StopCause,
			now.Marks.StopReason, why)
	}
	if drained && drain.Options.Force {
		return
	}
	policy, ok := s.Before.Policy(now.Group)
	if !ok {
		return
	}
	switch {
	case policy.Eviction.Mode == model.ModeNever:
		f.Add(fsm.S6, "instance %s of %s was told to stop for %s; its eviction mode is never", now.ID,
			now.Group, now.Marks.StopCause)
	case policy.Eviction.Mode == model.ModeWhen:
		for _, text := range policy.Eviction.When {
			if why := broken(s, was, text); why != "" {
				f.Add(fsm.S6, "instance %s of %s was told to stop for %s although %s: %s", now.ID, now.Group,
					now.Marks.StopCause, text, why)
			}
		}
	}
}

// drainOf returns the drain for which an instance stops, or false if there is no such drain. The reason of such a stop
// is the drain's id. The id may follow "budget bypassed: ", and a ";" with a remark may follow the id.
func drainOf(s *Step, i *fsm.Instance) (*fsm.Drain, bool) {
	by, _, _ := strings.Cut(strings.TrimPrefix(i.Marks.StopReason, "budget bypassed: "), ";")
	return s.After.Drains.Get(model.DrainID(by))
}

// unfounded returns why the reason of a stop is not valid, or "" if the reason is valid.
func (s *Step) unfounded(i *fsm.Instance, d *fsm.Drain, drained bool) string {
	switch i.Marks.StopCause {
	case model.CauseNodeDraining:
		if i.Marks.StopReason == fsm.ByPolicy {
			if n, ok := s.Before.Nodes.Get(i.Node); !ok || n.Intent != model.IntentCordoned ||
				s.Before.Settings.EvictOn != model.EvictOnCordon {
				return "its node is not cordoned, or a cordon evicts nothing"
			}
			return ""
		}
		if !drained {
			return "there is no such drain"
		}
		before, _ := s.Before.Drains.Get(d.ID)
		part, _ := d.Node(i.Node)
		if !part.Turn || part.Phase != model.PhaseDraining && part.Phase != model.PhaseDrained || before != nil &&
			before.Paused && d.Paused {
			return "that drain does not run on its node"
		}
	case model.CausePreempted:
		taker, ok := s.After.Instances.Get(model.InstanceID(i.Marks.StopReason))
		if !ok || taker.Node != i.Node {
			return "nobody takes its room"
		}
	case model.CauseRebalance, model.CauseAffinity:
		was, _ := s.Before.Instances.Get(i.ID)
		next, ok := s.Before.Instances.Get(was.Links.ReplacedBy)
		if !was.Eviction.Requested || !ok || !next.Ready() {
			return "it was not being moved, or its replacement is not ready"
		}
	}
	return ""
}

// broken returns why a gate was not satisfied before the entry, or "" if the gate was satisfied. It does not check the
// gates led_shards.in_sync_followers, group.healthy and old.confirmed_stopped, and returns "" for them.
func broken(s *Step, i *fsm.Instance, text string) string {
	gate, refusal := model.ParseGate(text)
	if refusal != nil {
		return refusal.Message
	}
	if gate.Self() {
		facts := i.Status.Facts
		was, _ := s.Before.Nodes.Get(i.Node)
		now, ok := s.After.Nodes.Get(i.Node) // the same entry may have marked the node online
		if !ok || now.Health != model.HealthOnline && (was == nil || was.Health != model.HealthOnline) {
			facts = nil
		}
		if refusal = gate.HoldsFor(facts); refusal != nil {
			return refusal.Message
		}
		return ""
	}
	leaders, followers, ready := 0, 0, 0
	for peer := range s.Before.InstancesOf(i.Group) {
		node, ok := s.Before.Nodes.Get(peer.Node)
		if !ok || node.Health == model.HealthOffline || !peer.Ready() {
			continue
		}
		ready++
		switch value := peer.Status.Facts[model.FactLeader]; {
		case value == "true":
			leaders++
		case value == "false" && peer.ID != i.ID:
			followers++
		}
	}
	switch {
	case gate.Fact == "leader_responding" && leaders == 0:
		return "no member says that it leads"
	case gate.Fact == "followers_responding" && followers < gate.AtLeast:
		return "too few other followers respond"
	case gate.Fact == "ready" && ready < gate.AtLeast:
		return "too few are ready"
	}
	return ""
}

// lastCopy checks S6 for replicated volumes: the instance with the last copy that is in sync is not stopped. Exceptions
// are a stop that an operator let bypass budgets, a stopped job, a count of 0, and a drain that Lenient allows.
func (j *Judge) lastCopy(f *fsm.Findings, s *Step, was, now *fsm.Instance) {
	spec, ok := s.Before.Spec(was.Group, was.Version)
	group, known := s.After.Groups.Get(was.Group)
	if !ok || !known || group.Count == 0 || !hasVolume(spec, model.VolumeReplicated) ||
		was.Status.Facts[model.FactInSync] != "true" || !was.Ready() {
		return
	}
	cause := now.Marks.StopCause
	if cause == model.CauseJobStopped || Bypassed(now) || cause == model.CauseNodeDraining && Lenient(s, now) {
		return
	}
	for peer := range s.Before.InstancesOf(was.Group) {
		node, there := s.Before.Nodes.Get(peer.Node)
		stays, still := s.After.Instances.Get(peer.ID)
		if peer.ID != was.ID && peer.Node != was.Node && there && node.Health != model.HealthOffline && still &&
			stays.Desired == model.DesiredRunning &&
			peer.Ready() && peer.Status.Facts[model.FactInSync] == "true" {
			return
		}
	}
	f.Add(fsm.S6, "instance %s of %s was told to stop for %s, and no other copy is in sync", now.ID, now.Group, cause)
}

// Lenient reports whether an instance stops for a drain that may stop the last copy of data, because the drain is
// forced or its policy is model.PolicyAlwaysAllow.
func Lenient(s *Step, i *fsm.Instance) bool {
	d, ok := drainOf(s, i)
	if !ok {
		return false
	}
	policy := d.Options.Policy
	if policy == "" {
		policy = s.Before.Settings.NodeDrainPolicy
	}
	return d.Options.Force || policy == string(model.PolicyAlwaysAllow)
}
