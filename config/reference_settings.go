package config

// SettingText describes one of the cluster's settings for people.
type SettingText struct {
	Key     string // the name in the commands "settings get" and "settings set"
	File    string // the name in the block settings of a server's file; empty if the block has no such key
	Type    string
	Unit    string
	Default string // as written in a server's file
	Example string
	Means   string
}

const (
	typeDuration = "duration"
	typeRate     = "rate"
	unitDuration = "ms, s, m, h or d"
	ofPreset     = " Zero: what the preset of `rescheduler` says"
)

// SettingTexts explains every setting, in the order of model.Settings.
func SettingTexts() []SettingText {
	rate := func(key, who string) SettingText {
		return SettingText{
			Key: key, File: key, Type: typeRate, Unit: "stops a window", Default: `"none"`, Example: `"5/1m"`,
			Means: "how many stops " + who + " may begin in a window of time, in the whole cluster",
		}
	}
	duration := func(key, standard, example, means string) SettingText {
		return SettingText{
			Key: key, File: key, Type: typeDuration, Unit: unitDuration, Default: standard, Example: example, Means: means,
		}
	}
	word := func(key, standard, example, means string) SettingText {
		return SettingText{Key: key, File: key, Type: "text", Default: standard, Example: example, Means: means}
	}
	return []SettingText{
		duration("offline_after", `"60s"`, `"90s"`,
			"silence of a node before it is offline and its instances are replaced; 1s to 24h"),
		duration("drain_deadline", `"1h"`, `"2h"`, "how long a drain tries for each node before it ends as failed"),
		word("node_drain_policy", `"block-if-contains-last-replica"`, `"always-allow"`,
			"when a drain may stop copies of replicated volumes: see "+
				"[drain policies](drain-policies.md)"),
		word("rescheduler", `"balanced"`, `"careful"`,
			"how eagerly instances are moved to better nodes: `off`, `careful`, `balanced` or `eager`"),
		word("failure_domain_label", `""`, `"rack"`,
			"the label whose equal value marks nodes that fail together; empty: each node for itself"),
		{
			Key: "place_on_degraded", File: "place_on_degraded", Type: "true or false", Default: "false", Example: "true",
			Means: "place new instances on degraded nodes too, and leave those there that they have",
		},
		word("placement_algorithm", `"spread"`, `"binpack"`, "`spread` fills nodes evenly, `binpack` one after the other"),
		{
			Key: "cpu_overcommit_percent", File: "cpu_overcommit_percent", Type: "whole number", Unit: "percent of a node's CPU",
			Default: "400", Example: "200",
			Means: "how much CPU may be placed on a node; 100 to 1000000",
		},
		{
			Key: "instance_overhead_bytes", File: "instance_overhead", Type: "size",
			Unit: "bytes in `settings set`, a size in a file", Default: `"64MiB"`, Example: `"32MiB"`,
			Means: "memory that each instance counts for beyond its `resources.memory`, for its shim and its checks",
		},
		duration("start_timeout", `"2m"`, `"5m"`, "how long an instance may boot before it counts as failed; at least 1s"),
		{
			Key: "actuation_paused", Type: "true or false", Default: "false", Example: "true",
			Means: "decisions are computed and shown, none is carried out; set by `outspan settings pause actuation`",
		},
		{
			Key: "event_limit", File: "event_limit", Type: "whole number", Unit: "events", Default: "100000", Example: "10000",
			Means: "how many events are kept, of 400 bytes each on average; at least 1000",
		},
		duration("event_age", `"7d"`, `"1d"`, "for how long events are kept; at least 1m"),
		duration("volume_cooling", `"24h"`, `"1h"`, "for how long the old copy of a moved volume is kept; at least 1s"),
		rate("rate_drain", "drains"),
		rate("rate_preemption", "preemption"),
		rate("rate_rescheduler", "the rescheduler"),
		rate("rate_operator", "people"),
		word("evict_on", `"drain"`, `"cordon"`, "what has replicas leave a node: `drain`, or `cordon` already"),
		duration("rescheduler_min_age", `"0s"`, `"10m"`, "the rescheduler leaves younger instances where they are."+ofPreset),
		duration("rescheduler_cooldown", `"0s"`, `"30m"`, "time between two moves of a group by the rescheduler."+ofPreset),
		duration("rescheduler_cycle", `"0s"`, `"5m"`,
			"time in which the rescheduler begins at most `rescheduler_moves`."+ofPreset),
		{
			Key: "rescheduler_moves", File: "rescheduler_moves", Type: "whole number", Unit: "moves a cycle",
			Default: "0", Example: "2",
			Means: "how many moves the rescheduler begins in a cycle." + ofPreset,
		},
		{
			Key: "rescheduler_gain", File: "rescheduler_gain", Type: "whole number", Unit: "points of the score",
			Default: "0", Example: "20",
			Means: "how much better a node must be for a move." + ofPreset,
		},
		word("rescheduler_window", `""`, `"* 1-5 * * *"`,
			"when the rescheduler may begin moves: a cron expression of five fields in UTC; empty: always"),
		duration("rejoin_grace", `"90d"`, `"30d"`, "how long after the end of its certificate the agent of a machine that was "+
			"off returns by itself; at most 365d, `0s`: never. Only with `tls { managed = true }`"),
		{
			Key: "join_approval", File: "join_approval", Type: "true or false", Default: "false", Example: "true",
			Means: "a new machine with a good join token waits until a person approves it: see [approval](join.md#approval)",
		},
	}
}
