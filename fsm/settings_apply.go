package fsm

import (
	"fmt"
	"slices"
	"strings"
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
		return Refuse(CodeConflict, "the format is already %d", s.Format)
	}
	if old := s.CantRead(c.Format); old != nil {
		return Refuse(CodeConflict, "the agent of node %s reads formats up to %d, not %d", old.Name, old.Agent.Reads(), c.Format).
			WithHint("upgrade the agent; to go on without it: outspan node drain %s, then: outspan node disable %s; if the machine is gone: outspan node confirm-dead %s",
				old.Name, old.Name, old.Name)
	}
	if c.Format > CurrentFormat { // DecodeEntry stops the server before it comes to this
		return needsFormat("the cluster", c.Format)
	}
	s.Format = c.Format
	return nil
}

// CantRead is a node whose agent can't read a format; nil if there is none. An agent refuses an assignment with a field that it does not know,
// and what it is told to stop with it. Nodes that are offline, or that a person has disabled and that run nothing, don't count: they are assigned nothing.
func (s *State) CantRead(format uint16) *Node {
	for _, n := range s.Nodes.All() {
		if n.HoldsBack(format) {
			return n
		}
	}
	return nil
}

// HoldsBack reports whether a format can't be raised because of the node's agent.
func (n *Node) HoldsBack(format uint16) bool {
	idle := n.Health == HealthOffline || n.Intent == IntentDisabled && n.Placed.Instances == 0
	return !idle && n.Agent.Reads() < format
}

// Check returns what is wrong with the settings. Code: invalid.
func (c *Settings) Check() *Error {
	switch {
	case c.OfflineAfter < Second || c.OfflineAfter > 24*Hour:
		return Refuse(CodeInvalid, "offline_after is %s; it must be 1s to 24h", c.OfflineAfter)
	case c.DrainDeadline <= 0:
		return Refuse(CodeInvalid, "drain_deadline is %s; it must be above 0s, or none", c.DrainDeadline)
	case !slices.Contains(DrainPolicies(), c.NodeDrainPolicy):
		return Refuse(CodeInvalid, "node_drain_policy %q is unknown", c.NodeDrainPolicy).WithHint("use one of: %s", strings.Join(DrainPolicies(), ", "))
	case !c.EvictOn.Valid():
		return Refuse(CodeInvalid, "evict_on %q is unknown", c.EvictOn).WithHint("use drain or cordon")
	case !slices.Contains(Reschedulers(), c.Rescheduler):
		return Refuse(CodeInvalid, "rescheduler %q is unknown", c.Rescheduler).WithHint("use one of: %s", strings.Join(Reschedulers(), ", "))
	case c.Algorithm != "spread" && c.Algorithm != "binpack":
		return Refuse(CodeInvalid, "placement_algorithm %q is unknown", c.Algorithm).WithHint("use spread or binpack")
	case c.CPUOvercommit > 1_000_000 || c.InstanceOverhead > maxAmount:
		return Refuse(CodeInvalid, "cpu_overcommit_percent is at most 1000000, instance_overhead_bytes %d", maxAmount)
	case c.CPUOvercommit < 100 || c.InstanceOverhead < 0 || c.EventLimit < 1000 || c.StartTimeout < Second:
		return Refuse(CodeInvalid, "cpu_overcommit_percent must be at least 100, instance_overhead_bytes 0, event_limit 1000, start_timeout 1s")
	case c.VolumeCooling < Second:
		return Refuse(CodeInvalid, "volume_cooling is %s; it must be at least 1s", c.VolumeCooling)
	case c.EventAge < Minute || c.EventAge == Forever:
		return Refuse(CodeInvalid, "event_age is %s; it must be at least 1m", c.EventAge)
	}
	if refusal := c.checkRates(); refusal != nil {
		return refusal
	}
	return c.checkRescheduler()
}

func (c *SettingsSet) apply(s *State) error {
	if c.IfIndex != 0 && c.IfIndex != s.SettingsIndex {
		return Refuse(CodeConflict, "the settings changed at index %d", s.SettingsIndex).WithHint("read them again and repeat the change")
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
	if before.OfflineAfter != c.Settings.OfflineAfter {
		s.callAgents() // with what they must run they are told how often they must be heard
	}
	s.emit(Event{Type: EventSettings, Subject: "settings", Data: settingsDiff(before, c.Settings)})
	return nil
}

func settingsDiff(a, b Settings) map[string]string {
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
	s.emit(Event{Type: EventHold, Subject: "cluster", Before: fmt.Sprint(before), After: fmt.Sprint(c.Active), Data: map[string]string{"reason": c.Reason}})
	return nil
}

// noteCalm notes since when the reason of the hold has been gone, so that the next leader goes on counting, or that it is there again. It is no event: the hold goes on.
func (s *State) noteCalm(calm bool) *Error {
	switch {
	case !s.Hold.Active:
		return Refuse(CodeStale, "no hold is active")
	case !calm:
		s.Hold.Calm = 0
	case s.Hold.Calm == 0:
		s.Hold.Calm = s.Now
	}
	return nil
}
