package bubble

import (
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// fromOutside reports whether a stop for this cause is what roles, gates and copies are protected from (S6).
func fromOutside(cause model.Cause) bool {
	switch cause {
	case model.CauseNodeDraining, model.CauseNodeNotReady, model.CausePreempted, model.CauseRebalance, model.CauseAffinity:
		return true
	}
	return false
}

// reasons is S6: nothing is stopped by a drain, a preemption or the rescheduler without a committed reason that still
// holds; what a role keeps, a gate does not let go, or is the last copy of its data stays, unless a drain was told to
// force it.
func (c *court) reasons(s step) error {
	var f findings
	s.began(func(was, now *fsm.Instance) {
		if !ran(was, now) {
			return
		}
		if fromOutside(now.Marks.StopCause) {
			c.reason(&f, s, was, now)
		}
		c.lastCopy(&f, s, was, now)
	})
	return f.err()
}

func (c *court) reason(f *findings, s step, was, now *fsm.Instance) {
	drain, drained := drainOf(s, now)
	if why := s.unfounded(now, drain, drained); why != "" {
		f.add("S6: instance %s was told to stop for %s by %q, and %s", now.ID, now.Marks.StopCause, now.Marks.StopReason, why)
	}
	if drained && drain.Options.Force {
		return
	}
	policy, ok := s.before.Policy(now.Group)
	if !ok {
		return
	}
	switch {
	case policy.Eviction.Mode == model.ModeNever:
		f.add("S6: instance %s of %s was told to stop for %s; its eviction mode is never", now.ID, now.Group, now.Marks.StopCause)
	case policy.Eviction.Mode == model.ModeWhen:
		for _, text := range policy.Eviction.When {
			if why := broken(s, was, text); why != "" {
				f.add("S6: instance %s of %s was told to stop for %s although %s: %s", now.ID, now.Group, now.Marks.StopCause, text, why)
			}
		}
	}
}

// drainOf is the drain in whose name an instance stops. A reason may have a remark behind it.
func drainOf(s step, i *fsm.Instance) (*fsm.Drain, bool) {
	by, _, _ := strings.Cut(strings.TrimPrefix(i.Marks.StopReason, "budget bypassed: "), ";")
	return s.after.Drains.Get(model.DrainID(by))
}

// unfounded says what is missing of the reason of a stop.
func (s step) unfounded(i *fsm.Instance, d *fsm.Drain, drained bool) string {
	switch i.Marks.StopCause {
	case model.CauseNodeDraining:
		if i.Marks.StopReason == fsm.ByPolicy {
			if n, ok := s.before.Nodes.Get(i.Node); !ok || n.Intent != model.IntentCordoned || s.before.Settings.EvictOn != model.EvictOnCordon {
				return "its node is not cordoned, or a cordon evicts nothing"
			}
			return ""
		}
		if !drained {
			return "there is no such drain"
		}
		before, _ := s.before.Drains.Get(d.ID)
		part, _ := d.Node(i.Node)
		if !part.Turn || part.Phase != model.PhaseDraining && part.Phase != model.PhaseDrained || before != nil && before.Paused && d.Paused {
			return "that drain does not run on its node"
		}
	case model.CausePreempted:
		taker, ok := s.after.Instances.Get(model.InstanceID(i.Marks.StopReason))
		if !ok || taker.Node != i.Node {
			return "nobody takes its room"
		}
	case model.CauseRebalance, model.CauseAffinity:
		was, _ := s.before.Instances.Get(i.ID)
		next, ok := s.before.Instances.Get(was.Links.ReplacedBy)
		if !was.Eviction.Requested || !ok || !next.Ready() {
			return "it was not being moved, or where it goes nothing is ready"
		}
	}
	return ""
}

// broken says why a gate does not hold, by the rows before the entry; empty if it does, or is one about the group that
// cannot be told from one row.
func broken(s step, i *fsm.Instance, text string) string {
	gate, refusal := model.ParseGate(text)
	if refusal != nil {
		return refusal.Message
	}
	if gate.Self() {
		facts := i.Status.Facts
		was, _ := s.before.Nodes.Get(i.Node)
		now, ok := s.after.Nodes.Get(i.Node) // the same entry may have found it well
		if !ok || now.Health != model.HealthOnline && (was == nil || was.Health != model.HealthOnline) {
			facts = nil
		}
		if refusal = gate.HoldsFor(facts); refusal != nil {
			return refusal.Message
		}
		return ""
	}
	leaders, followers, ready := 0, 0, 0
	for peer := range s.before.InstancesOf(i.Group) {
		node, ok := s.before.Nodes.Get(peer.Node)
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

// lastCopy holds that the last copy which can be relied on is not stopped. A person may bypass that, a job may be
// stopped, and a drain may have a policy that lets it go.
func (c *court) lastCopy(f *findings, s step, was, now *fsm.Instance) {
	spec, ok := s.before.Spec(was.Group, was.Version)
	group, known := s.after.Groups.Get(was.Group)
	if !ok || !known || group.Count == 0 || !hasVolume(spec, model.VolumeReplicated) || was.Status.Facts[model.FactInSync] != "true" || !was.Ready() {
		return
	}
	cause := now.Marks.StopCause
	if cause == model.CauseJobStopped || bypassed(now) || cause == model.CauseNodeDraining && lenient(s, now) {
		return
	}
	for peer := range s.before.InstancesOf(was.Group) {
		node, there := s.before.Nodes.Get(peer.Node)
		stays, still := s.after.Instances.Get(peer.ID)
		if peer.ID != was.ID && peer.Node != was.Node && there && node.Health != model.HealthOffline && still && stays.Desired == model.DesiredRunning &&
			peer.Ready() && peer.Status.Facts[model.FactInSync] == "true" {
			return
		}
	}
	f.add("S6: instance %s of %s was told to stop for %s, and no other copy is in sync", now.ID, now.Group, cause)
}

// lenient reports whether a drain's policy does not care for the copy.
func lenient(s step, i *fsm.Instance) bool {
	d, ok := drainOf(s, i)
	if !ok {
		return false
	}
	policy := d.Options.Policy
	if policy == "" {
		policy = s.before.Settings.NodeDrainPolicy
	}
	return d.Options.Force || policy == string(model.PolicyAlwaysAllow)
}
