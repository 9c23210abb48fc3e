package model

import (
	"slices"
	"strings"
)

// Rescheduling is the policy of the rescheduler: the values of a preset, some of which other settings may override.
type Rescheduling struct {
	On bool // if false, nothing is moved unless an operator asks
	// minimum gain of a move, in points; 100 points are a node's whole memory, or the full weight of an affinity
	Gain     int
	Reserve  int      // percent of a budget's max_down and rate that moves must leave unused
	MinAge   Duration // younger instances are not moved
	Cooldown Duration // minimum time between two moves of instances of one group
	Moves    int      // maximum number of moves that begin within any Cycle
	Cycle    Duration
	Window   string // cron expression in UTC; moves begin only in minutes that match; empty means always
}

// Reschedulers returns the values that the setting rescheduler may have.
func Reschedulers() []string { return []string{"off", "careful", "balanced", "eager"} }

// Rescheduling returns the preset that the setting rescheduler names, with the overrides of the other settings. If the
// setting is "off", On is false and the values are those of the preset balanced. They apply to moves that an operator
// asks for.
func (c *Settings) Rescheduling() Rescheduling {
	r := Rescheduling{On: c.Rescheduler != "off", Gain: 10, Reserve: 50, MinAge: 10 * Minute, Cooldown: 30 * Minute,
		Moves: 5, Cycle: 60 * Second}
	switch c.Rescheduler {
	case "careful":
		r.Gain, r.Reserve, r.MinAge, r.Cooldown, r.Moves = 25, 100, 30*Minute, 2*Hour, 2
	case "eager":
		r.Gain, r.Reserve, r.MinAge, r.Cooldown, r.Moves = 5, 0, 5*Minute, 10*Minute, 10
	}
	override(&r.Gain, c.MoveGain)
	override(&r.MinAge, c.MoveMinAge)
	override(&r.Cooldown, c.MoveCooldown)
	override(&r.Moves, c.MovesPerCycle)
	override(&r.Cycle, c.MoveCycle)
	r.Window = c.MoveWindow
	return r
}

func override[T comparable](value *T, with T) {
	var zero T
	if with != zero {
		*value = with
	}
}

// checkRescheduler returns the first mistake in the settings of the rescheduler, or nil. Of the text of MoveWindow, it
// checks only the length and the number of fields. Callers that set MoveWindow must check that it is a cron expression.
// With an invalid expression, the window never opens.
func (c *Settings) checkRescheduler() *Error {
	for _, d := range [...]struct {
		name  string
		value Duration
	}{{"rescheduler_min_age", c.MoveMinAge}, {"rescheduler_cooldown", c.MoveCooldown},
		{"rescheduler_cycle", c.MoveCycle}} {
		if d.value < 0 || d.value == Forever || d.value > 0 && d.value < 100*Millisecond {
			return Refuse(CodeInvalid, "%s is %s; it must be at least 100ms, or 0s for that of the preset", d.name, d.value)
		}
	}
	switch {
	case c.MovesPerCycle < 0 || c.MovesPerCycle > 1000:
		return Refuse(CodeInvalid, "rescheduler_moves is %d; it must be 1 to 1000, or 0 for that of the preset",
			c.MovesPerCycle)
	case c.MoveGain < 0 || c.MoveGain > 100:
		return Refuse(CodeInvalid, "rescheduler_gain is %d; it must be 1 to 100, or 0 for that of the preset", c.MoveGain)
	case len(c.MoveWindow) > 100 || c.MoveWindow != "" && len(strings.Fields(c.MoveWindow)) != 5:
		return Refuse(CodeInvalid, "rescheduler_window %q is no cron expression of five fields", c.MoveWindow).
			WithHint(`write minute, hour, day, month and weekday in UTC, such as "* 1-5 * * *"; empty = always`)
	}
	return nil
}

// Settings are the replicated policy of the cluster. A server's configuration file sets them only for a new cluster.
// Later, log entries change them.
type Settings struct {
	// how long a node is silent before it is offline (P23); default 60s
	OfflineAfter  Duration `json:"offline_after" cbor:"1,keyasint"`
	DrainDeadline Duration `json:"drain_deadline" cbor:"2,keyasint"` // for each node; default 1h
	// default block-if-contains-last-replica
	NodeDrainPolicy string `json:"node_drain_policy" cbor:"3,keyasint"`
	// off | careful | balanced (default) | eager
	Rescheduler        string `json:"rescheduler" cbor:"4,keyasint"`
	FailureDomainLabel string `json:"failure_domain_label" cbor:"5,keyasint,omitempty"` // such as "rack"
	PlaceOnDegraded    bool   `json:"place_on_degraded" cbor:"6,keyasint,omitempty"`    // default false
	Algorithm          string `json:"placement_algorithm" cbor:"7,keyasint"`            // spread (default) | binpack
	CPUOvercommit      int64  `json:"cpu_overcommit_percent" cbor:"8,keyasint"`         // default 400
	InstanceOverhead   int64  `json:"instance_overhead_bytes" cbor:"9,keyasint"`        // default 64 MiB
	// how long an instance may take to become ready before it is treated as failed; default 2m
	StartTimeout Duration `json:"start_timeout" cbor:"10,keyasint"`
	// if true, decisions are computed and shown, but not proposed
	Paused bool `json:"actuation_paused" cbor:"11,keyasint,omitempty"`
	// how many events are kept; together they take at most 400 bytes times this number; default 100000
	EventLimit int `json:"event_limit" cbor:"12,keyasint"`
	// how long events are kept, in cluster time; default 7d
	EventAge Duration `json:"event_age" cbor:"13,keyasint"`
	// how long the old copy of a moved volume is kept; default 24h
	VolumeCooling Duration `json:"volume_cooling" cbor:"25,keyasint"`

	// Rate limits of stops in the whole cluster, for each StopOrigin. The default is the zero value, which means no limit.
	RateDrain       ActorRate `json:"rate_drain" cbor:"15,keyasint,omitempty"`
	RatePreemption  ActorRate `json:"rate_preemption" cbor:"16,keyasint,omitempty"`
	RateRescheduler ActorRate `json:"rate_rescheduler" cbor:"17,keyasint,omitempty"`
	RateOperator    ActorRate `json:"rate_operator" cbor:"18,keyasint,omitempty"`
	// what triggers the eviction of members of groups with replicated volumes: drain (default) | cordon
	EvictOn EvictOn `json:"evict_on" cbor:"14,keyasint"`

	// These override the values of the rescheduler's preset. The zero value means the value of the preset.
	MoveMinAge Duration `json:"rescheduler_min_age" cbor:"19,keyasint,omitempty"` // younger instances are not moved
	// minimum time between two moves of instances of one group
	MoveCooldown Duration `json:"rescheduler_cooldown" cbor:"20,keyasint,omitempty"`
	// length of a cycle, within which at most MovesPerCycle moves begin
	MoveCycle     Duration `json:"rescheduler_cycle" cbor:"21,keyasint,omitempty"`
	MovesPerCycle int      `json:"rescheduler_moves" cbor:"22,keyasint,omitempty"`
	// minimum gain of a move, in points; see Rescheduling.Gain
	MoveGain int `json:"rescheduler_gain" cbor:"23,keyasint,omitempty"`
	// when moves may begin: a cron expression in UTC; empty means always
	MoveWindow string `json:"rescheduler_window,omitempty" cbor:"24,keyasint,omitempty"`

	// how long after the end of its certificate an agent may return by itself; default 90d, and 0 means never. Only
	// DefaultSettings has this default. Settings from before this field lack it, and there it means never.
	RejoinGrace Duration `json:"rejoin_grace" cbor:"26,keyasint,omitempty"`

	// if true, a newcomer with a good join token waits until a person approves it; default false
	JoinApproval bool `json:"join_approval" cbor:"27,keyasint,omitempty"`
}

// DefaultSettings returns the settings of a new cluster.
func DefaultSettings() Settings {
	return Settings{
		OfflineAfter: 60 * Second, DrainDeadline: Hour, NodeDrainPolicy: "block-if-contains-last-replica",
		Rescheduler: "balanced",
		Algorithm:   "spread", CPUOvercommit: 400, InstanceOverhead: 64 << 20, StartTimeout: 2 * Minute, EventLimit: 100_000,
		EventAge: 7 * 24 * Hour, VolumeCooling: 24 * Hour, EvictOn: EvictOnDrain, RejoinGrace: 90 * 24 * Hour,
	}
}

// Check returns the first mistake in the settings, or nil. Code: invalid.
func (c *Settings) Check() *Error {
	switch {
	case c.OfflineAfter < Second || c.OfflineAfter > 24*Hour:
		return Refuse(CodeInvalid, "offline_after is %s; it must be 1s to 24h", c.OfflineAfter)
	case c.DrainDeadline <= 0:
		return Refuse(CodeInvalid, "drain_deadline is %s; it must be above 0s, or none", c.DrainDeadline)
	case !slices.Contains(DrainPolicies(), c.NodeDrainPolicy):
		return Refuse(CodeInvalid, "node_drain_policy %q is unknown", c.NodeDrainPolicy).
			WithHint("use one of: %s", strings.Join(DrainPolicies(), ", "))
	case !c.EvictOn.Valid():
		return Refuse(CodeInvalid, "evict_on %q is unknown", c.EvictOn).WithHint("use drain or cordon")
	case !slices.Contains(Reschedulers(), c.Rescheduler):
		return Refuse(CodeInvalid, "rescheduler %q is unknown", c.Rescheduler).
			WithHint("use one of: %s", strings.Join(Reschedulers(), ", "))
	case c.Algorithm != "spread" && c.Algorithm != "binpack":
		return Refuse(CodeInvalid, "placement_algorithm %q is unknown", c.Algorithm).WithHint("use spread or binpack")
	case c.CPUOvercommit > 1_000_000 || c.InstanceOverhead > maxAmount:
		return Refuse(CodeInvalid, "cpu_overcommit_percent is at most 1000000, instance_overhead_bytes %d", maxAmount)
	case c.CPUOvercommit < 100 || c.InstanceOverhead < 0 || c.EventLimit < 1000 || c.StartTimeout < Second:
		return Refuse(CodeInvalid,
			"cpu_overcommit_percent must be at least 100, instance_overhead_bytes 0, event_limit 1000, start_timeout 1s")
	case c.VolumeCooling < Second:
		return Refuse(CodeInvalid, "volume_cooling is %s; it must be at least 1s", c.VolumeCooling)
	case c.EventAge < Minute || c.EventAge == Forever:
		return Refuse(CodeInvalid, "event_age is %s; it must be at least 1m", c.EventAge)
	case c.RejoinGrace < 0 || c.RejoinGrace > 365*24*Hour:
		return Refuse(CodeInvalid, "rejoin_grace is %s; it must be 0s to 365d", c.RejoinGrace).
			WithHint("0s lets no machine return without a token")
	}
	if refusal := c.checkRates(); refusal != nil {
		return refusal
	}
	return c.checkRescheduler()
}
