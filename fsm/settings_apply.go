package fsm

import (
	"fmt"

	"github.com/outspan/outspan/model"
)

func (c *ClusterInit) apply(s *State) error {
	if s.Cluster.ID != "" {
		return nil
	}
	if refusal := c.Settings.Check(); refusal != nil {
		return refusal
	}
	s.Cluster = ClusterID{ID: c.ID, Name: c.Name}
	s.Settings, s.SettingsIndex = c.Settings, s.Index
	s.touch("settings")
	return nil
}

func (c *FormatRaise) apply(s *State) error {
	if c.Format < s.Format {
		return model.Refuse(model.CodeConflict, "the format is already %d", s.Format)
	}
	if old := s.CantRead(c.Format); old != nil {
		return model.Refuse(model.CodeConflict, "the agent of node %s reads formats up to %d, not %d", old.Name,
			old.Agent.Reads(), c.Format).
			WithHint("upgrade the agent; to go on without it: outspan node drain %s, then: outspan node disable %s; if the "+
				"machine is gone: outspan node confirm-dead %s",
				old.Name, old.Name, old.Name)
	}
	if c.Format > model.CurrentFormat { // can't happen: DecodeEntry stops the server first
		return needsFormat("the cluster", c.Format)
	}
	s.Format = c.Format
	return nil
}

// CantRead returns the first node that holds back a format (see HoldsBack), or nil if there is none.
func (s *fleet) CantRead(format uint16) *Node {
	for _, n := range s.Nodes.All() {
		if n.HoldsBack(format) {
			return n
		}
	}
	return nil
}

// HoldsBack reports whether the cluster must not use a format yet because the node's agent can't read it. Such an agent
// would refuse an assignment with a field that it does not know, and so miss the stops in the assignment. A node that
// needs no assignments holds nothing back: it is offline, or it is disabled, runs nothing, and has no open restore.
// During an open restore, its agent must still learn what happens to instances that the state does not know.
func (n *Node) HoldsBack(format uint16) bool {
	idle := n.Health == model.HealthOffline || n.Intent == model.IntentDisabled &&
		n.Placed.Instances == 0 && !n.Restore.pending()
	return !idle && n.Agent.Reads() < format
}

// SettingsMoved returns the refusal of a change that was made for older settings than the present ones. Code: conflict.
func (s *rules) SettingsMoved() *model.Error {
	return model.Refuse(model.CodeConflict, "the settings changed at index %d", s.SettingsIndex).
		WithHint("read them again and repeat the change")
}

func (c *SettingsSet) apply(s *State) error {
	if c.IfIndex != 0 && c.IfIndex != s.SettingsIndex {
		return s.SettingsMoved()
	}
	if refusal := c.Settings.Check(); refusal != nil {
		return refusal
	}
	if c.Settings == s.Settings {
		return nil
	}
	before := s.Settings
	s.Settings, s.SettingsIndex = c.Settings, s.Index
	s.touch("settings")
	if before.JoinApproval && !c.Settings.JoinApproval {
		s.dropNewcomers(func(*Newcomer) bool { return true })
	}
	if before.OfflineAfter != c.Settings.OfflineAfter {
		s.callAgents() // their assignments include how often to send heartbeats
	}
	s.emit(Event{Type: model.EventSettings, Subject: "settings", Data: settingsDiff(before, c.Settings)})
	return nil
}

func settingsDiff(a, b model.Settings) map[string]string {
	diff := map[string]string{}
	for _, f := range [...]struct{ name, before, after string }{
		{"offline_after", a.OfflineAfter.String(), b.OfflineAfter.String()},
		{"drain_deadline", a.DrainDeadline.String(), b.DrainDeadline.String()},
		{"node_drain_policy", a.NodeDrainPolicy, b.NodeDrainPolicy},
		{"rescheduler", a.Rescheduler, b.Rescheduler},
		{"failure_domain_label", a.FailureDomainLabel, b.FailureDomainLabel},
		{"place_on_degraded", fmt.Sprint(a.PlaceOnDegraded), fmt.Sprint(b.PlaceOnDegraded)},
		{"placement_algorithm", a.Algorithm, b.Algorithm},
		{"cpu_overcommit_percent", fmt.Sprint(a.CPUOvercommit), fmt.Sprint(b.CPUOvercommit)},
		{"instance_overhead_bytes", fmt.Sprint(a.InstanceOverhead), fmt.Sprint(b.InstanceOverhead)},
		{"start_timeout", a.StartTimeout.String(), b.StartTimeout.String()},
		{"actuation_paused", fmt.Sprint(a.Paused), fmt.Sprint(b.Paused)},
		{"event_limit", fmt.Sprint(a.EventLimit), fmt.Sprint(b.EventLimit)},
		{"event_age", a.EventAge.String(), b.EventAge.String()},
		{"rate_drain", a.RateDrain.String(), b.RateDrain.String()},
		{"rate_preemption", a.RatePreemption.String(), b.RatePreemption.String()},
		{"rate_rescheduler", a.RateRescheduler.String(), b.RateRescheduler.String()},
		{"rate_operator", a.RateOperator.String(), b.RateOperator.String()},
		{"volume_cooling", a.VolumeCooling.String(), b.VolumeCooling.String()},
		{"evict_on", string(a.EvictOn), string(b.EvictOn)},
		{"rescheduler_min_age", a.MoveMinAge.String(), b.MoveMinAge.String()},
		{"rescheduler_cooldown", a.MoveCooldown.String(), b.MoveCooldown.String()},
		{"rescheduler_cycle", a.MoveCycle.String(), b.MoveCycle.String()},
		{"rescheduler_moves", fmt.Sprint(a.MovesPerCycle), fmt.Sprint(b.MovesPerCycle)},
		{"rescheduler_gain", fmt.Sprint(a.MoveGain), fmt.Sprint(b.MoveGain)},
		{"rescheduler_window", a.MoveWindow, b.MoveWindow},
		{"rejoin_grace", a.RejoinGrace.String(), b.RejoinGrace.String()},
		{"join_approval", fmt.Sprint(a.JoinApproval), fmt.Sprint(b.JoinApproval)},
	} {
		if f.before != f.after {
			diff[f.name] = f.before + " -> " + f.after
		}
	}
	return diff
}

func (c *HoldSet) apply(s *State) error {
	if c.Calm != nil {
		return asError(s.noteCalm(*c.Calm))
	}
	if s.Hold.Active == c.Active {
		return nil
	}
	before := s.Hold.Active
	s.Hold = Hold{Active: c.Active, Since: s.Now, SinceWall: s.Wall, Reason: c.Reason}
	s.touch("settings")
	s.emit(Event{Type: model.EventHold, Subject: "cluster", Before: fmt.Sprint(before), After: fmt.Sprint(c.Active),
		Data: map[string]string{"reason": c.Reason}})
	return nil
}

// noteCalm records when the reason of the hold went away, so that the next leader measures from the same time. If the
// reason is back, it clears that time. It emits no event, because the hold continues. Code: stale.
func (s *State) noteCalm(calm bool) *model.Error {
	switch {
	case !s.Hold.Active:
		return model.Refuse(model.CodeStale, "no hold is active")
	case !calm:
		s.Hold.Calm = 0
	case s.Hold.Calm == 0:
		s.Hold.Calm = s.Now
	}
	return nil
}
