package fsm

// Settings are the replicated policy of the cluster. A server's file seeds them once; later changes are log entries.
type Settings struct {
	OfflineAfter       Duration `json:"offline_after" cbor:"1,keyasint"`                  // default 60s: silence before a node is offline (P23)
	DrainDeadline      Duration `json:"drain_deadline" cbor:"2,keyasint"`                 // default 1h, per node
	NodeDrainPolicy    string   `json:"node_drain_policy" cbor:"3,keyasint"`              // default block-if-contains-last-replica
	Rescheduler        string   `json:"rescheduler" cbor:"4,keyasint"`                    // off | careful | balanced (default) | eager
	FailureDomainLabel string   `json:"failure_domain_label" cbor:"5,keyasint,omitempty"` // such as "rack"
	PlaceOnDegraded    bool     `json:"place_on_degraded" cbor:"6,keyasint,omitempty"`    // default false
	Algorithm          string   `json:"placement_algorithm" cbor:"7,keyasint"`            // spread (default) | binpack
	CPUOvercommit      int64    `json:"cpu_overcommit_percent" cbor:"8,keyasint"`         // default 400
	InstanceOverhead   int64    `json:"instance_overhead_bytes" cbor:"9,keyasint"`        // default 64 MiB
	StartTimeout       Duration `json:"start_timeout" cbor:"10,keyasint"`                 // default 2m: a booting instance that isn't ready by then failed
	Paused             bool     `json:"actuation_paused" cbor:"11,keyasint,omitempty"`    // decisions are computed and shown, none is proposed
	EventLimit         int      `json:"event_limit" cbor:"12,keyasint"`                   // default 100000: how many events are kept, and with 400 bytes for each how much they may take in all
	EventAge           Duration `json:"event_age" cbor:"13,keyasint"`                     // default 7d of cluster time: for how long
	VolumeCooling      Duration `json:"volume_cooling" cbor:"25,keyasint"`                // default 24h: how long the old copy of a moved volume is kept

	// Stops that each kind of actor may begin, in the whole cluster; the zero value is no limit, the default.
	RateDrain       ActorRate `json:"rate_drain" cbor:"15,keyasint,omitempty"`
	RatePreemption  ActorRate `json:"rate_preemption" cbor:"16,keyasint,omitempty"`
	RateRescheduler ActorRate `json:"rate_rescheduler" cbor:"17,keyasint,omitempty"`
	RateOperator    ActorRate `json:"rate_operator" cbor:"18,keyasint,omitempty"`
	EvictOn         EvictOn   `json:"evict_on" cbor:"14,keyasint"` // drain (default) | cordon: what sets the eviction of replicas off

	// What the rescheduler's preset is overridden by; zero = the preset's.
	MoveMinAge    Duration `json:"rescheduler_min_age" cbor:"19,keyasint,omitempty"`          // younger instances stay
	MoveCooldown  Duration `json:"rescheduler_cooldown" cbor:"20,keyasint,omitempty"`         // between two moves of a group
	MoveCycle     Duration `json:"rescheduler_cycle" cbor:"21,keyasint,omitempty"`            // in which at most rescheduler_moves begin
	MovesPerCycle int      `json:"rescheduler_moves" cbor:"22,keyasint,omitempty"`            // moves a cycle
	MoveGain      int      `json:"rescheduler_gain" cbor:"23,keyasint,omitempty"`             // least gain of a move, in points
	MoveWindow    string   `json:"rescheduler_window,omitempty" cbor:"24,keyasint,omitempty"` // cron expression in UTC; empty = always
}

// DefaultSettings are those of a new cluster.
func DefaultSettings() Settings {
	return Settings{
		OfflineAfter: 60 * Second, DrainDeadline: Hour, NodeDrainPolicy: "block-if-contains-last-replica", Rescheduler: "balanced",
		Algorithm: "spread", CPUOvercommit: 400, InstanceOverhead: 64 << 20, StartTimeout: 2 * Minute, EventLimit: 100_000, EventAge: 7 * 24 * Hour, VolumeCooling: 24 * Hour, EvictOn: EvictOnDrain,
	}
}

// Hold is the brake against mass eviction: while it is active no involuntary rescheduling happens.
type Hold struct {
	Active    bool   `cbor:"1,keyasint,omitempty"`
	Since     Time   `cbor:"2,keyasint,omitempty"`
	SinceWall int64  `cbor:"3,keyasint,omitempty"`
	Reason    string `cbor:"4,keyasint,omitempty"`
	Calm      Time   `cbor:"5,keyasint,omitempty"` // since when its reason has been gone; 0: it is not
}

// SettingsSet replaces the settings. IfIndex other than 0 must be the index of their last change (conflict). Code: invalid.
type SettingsSet struct {
	Settings Settings `cbor:"1,keyasint"`
	IfIndex  uint64   `cbor:"2,keyasint,omitempty"`
}

// HoldSet begins or ends the hold. With Calm it only notes of the one that is active whether its reason is gone. Code: stale (with Calm, and none is active).
type HoldSet struct {
	Active bool   `cbor:"1,keyasint"`
	Reason string `cbor:"2,keyasint,omitempty"`
	Calm   *bool  `cbor:"3,keyasint,omitempty"`
}

// ClusterInit is the first entry of a cluster: it names it and seeds the settings. Later ones change nothing.
type ClusterInit struct {
	ID       string   `cbor:"1,keyasint"`
	Name     string   `cbor:"2,keyasint"`
	Settings Settings `cbor:"3,keyasint"`
}

// FormatRaise raises the format once every server supports it.
type FormatRaise struct {
	Format uint16 `cbor:"1,keyasint"`
}

// RestoreMark is written after a snapshot was restored by an operator: it raises the state's incarnation, so that agents stop nothing that they
// don't know until the operator confirms (Confirm).
type RestoreMark struct {
	Confirm bool `cbor:"1,keyasint,omitempty"`
	// Lineages are those of the servers that write it; see ClusterID. Empty: they were never recovered.
	Lineages string `cbor:"2,keyasint,omitempty"`
}
