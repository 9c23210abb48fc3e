package model

import (
	"testing"
)

// TestSettingsAreRefused: values outside their bounds are refused, and values just within them are not.
func TestSettingsAreRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(c *Settings)
		says   string
	}{
		{"as they are", func(*Settings) {}, ""},
		{"offline_after below", func(c *Settings) { c.OfflineAfter = Second - 1 }, "offline_after"},
		{"least offline_after", func(c *Settings) { c.OfflineAfter = Second }, ""},
		{"most offline_after", func(c *Settings) { c.OfflineAfter = 24 * Hour }, ""},
		{"offline_after above", func(c *Settings) { c.OfflineAfter = 24*Hour + 1 }, "offline_after"},
		{"drain_deadline", func(c *Settings) { c.DrainDeadline = 0 }, "drain_deadline"},
		{"brief drain_deadline", func(c *Settings) { c.DrainDeadline = 1 }, ""},
		{"node_drain_policy", func(c *Settings) { c.NodeDrainPolicy = "x" }, "node_drain_policy"},
		{"evict_on", func(c *Settings) { c.EvictOn = "x" }, "evict_on"},
		{"rescheduler", func(c *Settings) { c.Rescheduler = "x" }, "rescheduler \"x\""},
		{"algorithm", func(c *Settings) { c.Algorithm = "x" }, "placement_algorithm"},
		{"binpack", func(c *Settings) { c.Algorithm = "binpack" }, ""},
		{"overcommit above", func(c *Settings) { c.CPUOvercommit = 1_000_001 }, "cpu_overcommit_percent"},
		{"most overcommit", func(c *Settings) { c.CPUOvercommit = 1_000_000 }, ""},
		{"least overcommit", func(c *Settings) { c.CPUOvercommit = 100 }, ""},
		{"overcommit below", func(c *Settings) { c.CPUOvercommit = 99 }, "cpu_overcommit_percent"},
		{"overhead above", func(c *Settings) { c.InstanceOverhead = maxAmount + 1 }, "instance_overhead_bytes"},
		{"most overhead", func(c *Settings) { c.InstanceOverhead = maxAmount }, ""},
		{"no overhead", func(c *Settings) { c.InstanceOverhead = 0 }, ""},
		{"overhead below", func(c *Settings) { c.InstanceOverhead = -1 }, "instance_overhead_bytes"},
		{"event_limit below", func(c *Settings) { c.EventLimit = 999 }, "event_limit"},
		{"least event_limit", func(c *Settings) { c.EventLimit = 1000 }, ""},
		{"start_timeout below", func(c *Settings) { c.StartTimeout = Second - 1 }, "start_timeout"},
		{"least start_timeout", func(c *Settings) { c.StartTimeout = Second }, ""},
		{"volume_cooling below", func(c *Settings) { c.VolumeCooling = Second - 1 }, "volume_cooling"},
		{"least volume_cooling", func(c *Settings) { c.VolumeCooling = Second }, ""},
		{"event_age below", func(c *Settings) { c.EventAge = Minute - 1 }, "event_age"},
		{"least event_age", func(c *Settings) { c.EventAge = Minute }, ""},
		{"event_age for ever", func(c *Settings) { c.EventAge = Forever }, "event_age"},
		{"moves below", func(c *Settings) { c.MovesPerCycle = -1 }, "rescheduler_moves"},
		{"moves above", func(c *Settings) { c.MovesPerCycle = 1001 }, "rescheduler_moves"},
		{"most moves", func(c *Settings) { c.MovesPerCycle = 1000 }, ""},
		{"gain below", func(c *Settings) { c.MoveGain = -1 }, "rescheduler_gain"},
		{"gain above", func(c *Settings) { c.MoveGain = 101 }, "rescheduler_gain"},
		{"rejoin_grace below", func(c *Settings) { c.RejoinGrace = -1 }, "rejoin_grace"},
		{"no rejoin_grace", func(c *Settings) { c.RejoinGrace = 0 }, ""},
		{"most rejoin_grace", func(c *Settings) { c.RejoinGrace = 365 * 24 * Hour }, ""},
		{"rejoin_grace above", func(c *Settings) { c.RejoinGrace = 365*24*Hour + 1 }, "rejoin_grace"},
		{"rejoin_grace for ever", func(c *Settings) { c.RejoinGrace = Forever }, "rejoin_grace"},
		{"most gain", func(c *Settings) { c.MoveGain = 100 }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := DefaultSettings()
			tt.change(&c)
			wants(t, c.Check(), tt.says)
		})
	}
}
