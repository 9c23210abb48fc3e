package daemon

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outspan/outspan/agent"
	"github.com/outspan/outspan/agent/driver"
)

// Each group has three series. What the kernel does not tell has none.
func TestUsageMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newUsage(func() []agent.GroupUse {
		return []agent.GroupUse{
			{Group: "web/http", CPU: 1500 * time.Millisecond, MemoryBytes: 4096, Processes: 3},
			{Group: "db/main", CPU: driver.Unknown, MemoryBytes: driver.Unknown, Processes: 1},
		}
	}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue() // one of them is 0
			got = append(got, fmt.Sprintf("%s %s %s=%s %s=%s %v", f.GetType(), f.GetName(), m.GetLabel()[0].GetName(),
				m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetName(), m.GetLabel()[1].GetValue(), value))
		}
	}
	want := []string{
		"COUNTER outspan_group_cpu_seconds_total group=http job=web 1.5",
		"GAUGE outspan_group_memory_bytes group=http job=web 4096",
		"GAUGE outspan_group_processes group=http job=web 3",
		"GAUGE outspan_group_processes group=main job=db 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
