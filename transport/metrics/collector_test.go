package metrics_test

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport/httpapi"
	"github.com/outspan/outspan/transport/metrics"
)

// explainer reports that web/http lacks memory, and that each drain is blocked by a replacement that lacks memory and
// by two local volumes.
type explainer struct{}

func (explainer) Why(httpapi.Question, string) (model.WhyResult, error) {
	return model.WhyResult{}, nil
}

func (explainer) Waiting(httpapi.Question) httpapi.Waiting {
	return httpapi.Waiting{Groups: map[model.GroupID]model.Blocker{"web/http": {Code: model.CodeNoMemory}}}
}

func (explainer) DrainStatus(httpapi.Question, model.DrainID) []model.DrainStatus {
	return []model.DrainStatus{{Blockers: []model.Blocker{
		{Code: model.Unschedulable(model.CodeNoMemory)}, {Code: model.CodeVolumeLocal}, {Code: model.CodeVolumeLocal},
	}}}
}

// rig is a machine and a registry with a collector of the machine's metrics.
type rig struct {
	t        testing.TB
	machine  *fsm.Machine
	registry *prometheus.Registry
	passes   model.Duration // time that passes before the next entry
	later    time.Duration  // how far the clock has been put forward
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, machine: fsm.NewMachine(), registry: prometheus.NewRegistry()}
	r.apply(&fsm.ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
	r.apply(&fsm.NodeRegister{ID: "01N1", Name: "n1", Agent: model.AgentInfo{BootID: "b1"},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}, PortMin: 1, PortMax: 9}})
	r.apply(&fsm.NodeReport{ID: "01N1", Epoch: r.epoch("01N1"), Full: true})
	c := metrics.New(metrics.Config{
		Version: "1.2.3", Store: r.machine, Explainer: explainer{}, Now: func() model.Time { return r.machine.State().Now },
		Live:     func() map[model.NodeID]fsm.Liveness { return map[model.NodeID]fsm.Liveness{"01N2": {Age: 2500}} },
		Raft:     func() metrics.Raft { return metrics.Raft{Leader: true, Term: 3, Applied: 9, Lag: 1} },
		Problems: func() map[api.ProblemCode]int { return map[api.ProblemCode]int{api.ProblemServerDisk: 2} },
		Machine: func() metrics.Machine {
			return metrics.Machine{FreeBytes: 5, TotalBytes: 8, Saved: time.Unix(1000, 0)}
		},
	})
	r.registry.MustRegister(c)
	c.ObserveApply(time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return r
}

func (r *rig) apply(group ...fsm.Command) {
	r.t.Helper()
	s := r.machine.State()
	r.later += time.Duration(r.passes) * time.Millisecond
	data, err := fsm.EncodeEntry(fsm.Entry{
		Format: model.CurrentFormat, At: s.Now.Add(r.passes) + 10, Wall: time.Now().Add(r.later).
			UnixMilli() + 1, Actor: "cli:a",
		Groups: [][]fsm.Command{group},
	})
	r.passes = 0
	if err != nil {
		r.t.Fatal(err)
	}
	results, err := r.machine.Apply(s.Index+1, 1, data)
	if err != nil || results[0].Refusal != nil {
		r.t.Fatalf("%T: %v %v", group[0], err, results)
	}
}

// epoch returns the epoch of a node's last registration.
func (r *rig) epoch(id model.NodeID) uint64 {
	n, _ := r.machine.State().Nodes.Get(id)
	return n.Agent.Epoch
}

// series returns the value of each sample by its name and labels, as in "name[label=value]". The value of a histogram
// is its count. The histogram's sum has the suffix _sum after the name.
func (r *rig) series() map[string]float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "outspan_") || f.GetHelp() == "" {
			r.t.Errorf("metric %s without prefix or help", f.GetName())
		}
		for _, m := range f.GetMetric() {
			all[f.GetName()+labels(m)] = value(f.GetType(), m)
			if f.GetType() == dto.MetricType_HISTOGRAM {
				all[f.GetName()+"_sum"+labels(m)] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return all
}

func labels(m *dto.Metric) string {
	var parts []string
	for _, l := range m.GetLabel() {
		parts = append(parts, l.GetName()+"="+l.GetValue())
	}
	sort.Strings(parts)
	return fmt.Sprint(parts)
}

func value(kind dto.MetricType, m *dto.Metric) float64 {
	switch kind {
	case dto.MetricType_COUNTER:
		return m.GetCounter().GetValue()
	case dto.MetricType_HISTOGRAM:
		return float64(m.GetHistogram().GetSampleCount())
	}
	return m.GetGauge().GetValue()
}

func (r *rig) want(want map[string]float64) {
	r.t.Helper()
	var got map[string]float64
	deadline := time.Now().Add(10 * time.Second)
	for { // counters follow the events with a delay
		got = r.series()
		same := true
		for k, v := range want {
			have, ok := got[k]
			same = same && ok && have == v
		}
		if same {
			return
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	for k, v := range want {
		if have, ok := got[k]; !ok || have != v {
			r.t.Errorf("%s is %v (there: %v), want %v", k, have, ok, v)
		}
	}
}

// All series exist from the start, even those that are 0.
// proves P32
func TestSeriesFromTheStart(t *testing.T) {
	r := newRig(t)
	r.want(map[string]float64{
		"outspan_nodes[health=online intent=active]": 1, "outspan_nodes[health=offline intent=draining]": 0,
		"outspan_node_capacity_bytes[node=n1]": 1 << 30, "outspan_node_allocated_bytes[node=n1]": 0,
		"outspan_drains[phase=draining]": 0, "outspan_drains[phase=failed]": 0,
		"outspan_drain_blocked[code=volume_local]":                                 0,
		"outspan_drain_blocked[code=replacement_unschedulable:no_capacity_memory]": 0,
		"outspan_unschedulable[code=no_capacity_memory]":                           0,
		"outspan_evictions_total[cause=node_draining node=n1]":                     0,
		"outspan_reschedules_total[cause=node_offline node=n1]":                    0,
		"outspan_reschedules_total[cause=rebalance node=n1]":                       0,
		"outspan_evictions_total[cause=affinity node=n1]":                          0,
		"outspan_preemptions_total[]":                                              0,
		"outspan_drain_duration_seconds[]":                                         0,
		"outspan_offline_detection_seconds[]":                                      0,
		"outspan_apply_seconds[]":                                                  1,
		"outspan_actuation_paused[]":                                               0,
		"outspan_nodes_troubled[check=disk_full]":                                  0,
		"outspan_mass_offline_hold[]":                                              0,
		"outspan_problems[code=server_disk]":                                       2,
		"outspan_problems[code=node_certificate]":                                  0,
		"outspan_disk_free_bytes[]":                                                5,
		"outspan_disk_total_bytes[]":                                               8,
		"outspan_snapshot_saved_timestamp_seconds[]":                               1000,
		"outspan_build_info[version=1.2.3]":                                        1,
		"outspan_raft_is_leader[]":                                                 1,
		"outspan_raft_term[]":                                                      3,
		"outspan_raft_applied_index[]":                                             9,
		"outspan_raft_fsm_lag[]":                                                   1,
	})
}

// The counters count events. When a node is forgotten, its series disappear.
// proves P32
func TestCounts(t *testing.T) {
	r := newRig(t)
	r.apply(&fsm.NodeRegister{ID: "01N2", Name: "n2", Agent: model.AgentInfo{BootID: "b2"},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}, PortMin: 1, PortMax: 9}})
	r.apply(&fsm.NodeReport{ID: "01N2", Epoch: r.epoch("01N2"), Full: true})
	r.apply(
		&fsm.JobSubmit{
			Spec: model.JobSpec{Name: "web",
				Groups: []model.GroupSpec{{Name: "http", Count: 2, Exec: model.ExecSpec{Command: "/x"}}}}})
	r.apply(&fsm.InstancePlace{ID: "a", Group: "web/http", Version: 1, Node: "01N1", Cause: model.CauseScaleUp})
	r.apply(&fsm.NodeReport{ID: "01N1", Epoch: r.epoch("01N1"),
		Instances: []model.InstanceStatus{{ID: "a", Generation: 1, Observed: model.ObservedReady}}})
	r.want(map[string]float64{
		"outspan_instances[group=http job=web state=ready]": 1, "outspan_instances[group=http job=web state=failed]": 0,
		"outspan_group_desired[group=http job=web]": 2, "outspan_group_ready[group=http job=web]": 1,
		"outspan_budget_allowed[budget=web/http]":              0,
		"outspan_unschedulable[code=no_capacity_memory]":       1,
		"outspan_evictions_total[cause=node_draining node=n1]": 0,
	})
	self := &model.SelfReport{Gen: 1, Troubles: []model.Trouble{{Check: model.SelfDiskFull, Reason: "no room"}}}
	r.apply(&fsm.NodeReport{ID: "01N2", Epoch: r.epoch("01N2"), Self: self})
	r.want(map[string]float64{"outspan_nodes_troubled[check=disk_full]": 1,
		"outspan_nodes[health=degraded intent=active]": 1})
	r.apply(&fsm.NodeReport{ID: "01N2", Epoch: r.epoch("01N2"), Self: &model.SelfReport{Gen: 2}})
	r.want(map[string]float64{"outspan_nodes_troubled[check=disk_full]": 0,
		"outspan_nodes[health=degraded intent=active]": 0})
	r.apply(&fsm.DrainStart{ID: "d1", Nodes: []string{"n1"},
		Options: model.DrainOptions{Deadline: model.Hour, AcceptDowntime: []string{"*"}, Force: true}})
	r.want(map[string]float64{"outspan_nodes[health=online intent=draining]": 1,
		"outspan_nodes[health=online intent=disabled]": 0})
	r.apply(&fsm.NodeIntent{ID: "01N2", Intent: model.IntentDisabled})
	r.want(map[string]float64{"outspan_nodes[health=online intent=disabled]": 1})
	r.apply(&fsm.NodeIntent{ID: "01N2", Intent: model.IntentActive})
	r.want(map[string]float64{"outspan_drains[phase=draining]": 1,
		"outspan_drain_blocked[code=replacement_unschedulable:no_capacity_memory]": 1})
	r.want(map[string]float64{"outspan_drain_blocked[code=volume_local]": 2})
	r.apply(&fsm.InstanceStop{ID: "a", Cause: model.CauseNodeDraining, By: "d1", Bypass: true})
	r.apply(&fsm.InstancePlace{ID: "b", Group: "web/http", Version: 1, Node: "01N2", Replaces: "a",
		Cause: model.CauseNodeDraining})
	r.apply(&fsm.DrainCancel{ID: "d1"})
	n, _ := r.machine.State().Nodes.Get("01N2")
	r.apply(&fsm.NodeHealth{ID: "01N2", Health: model.HealthOffline, BootID: "b2", Epoch: n.Agent.Epoch})
	r.want(map[string]float64{
		"outspan_evictions_total[cause=node_draining node=n1]":   1,
		"outspan_reschedules_total[cause=node_draining node=n1]": 1,
		"outspan_drains[phase=canceled]":                         1, "outspan_drain_duration_seconds[]": 1,
		"outspan_nodes[health=offline intent=active]": 1,
		"outspan_offline_detection_seconds[]":         1,
	})
	r.apply(&fsm.NodeIntent{ID: "01N2", Intent: model.IntentActive})
	r.apply(&fsm.NodeConfirmDead{ID: "01N2", Force: true})
	r.apply(&fsm.DrainStart{ID: "d2", Nodes: []string{"n2"}, Options: model.DrainOptions{Deadline: model.Hour}})
	r.apply(&fsm.DrainTurn{ID: "d2", Node: "01N2"})
	before := r.series()["outspan_drain_duration_seconds_sum[]"]
	r.passes = 90 * model.Second
	r.apply(&fsm.DrainEnd{ID: "d2", Node: "01N2", Phase: model.PhaseDrained})
	r.want(map[string]float64{"outspan_drain_duration_seconds[]": 2, "outspan_drain_blocked[code=volume_local]": 0})
	if took := r.series()["outspan_node_drain_seconds[node=n2]"]; took < 90 {
		t.Errorf("the drain of a node took at least 90 s, and is told as %v s", took)
	}
	if took := r.series()["outspan_drain_duration_seconds_sum[]"] - before; took < 90 {
		t.Errorf("a drain of at least 90 s is counted as %v s", took)
	}
	if _, ok := r.series()["outspan_node_capacity_bytes[node=n2]"]; !ok {
		t.Error("an offline node has no capacity")
	}
	r.apply(&fsm.NodeConfirmDead{ID: "01N2"})
	r.apply(&fsm.NodeForget{ID: "01N2"})
	for name := range r.series() {
		if strings.Contains(name, "node=n2") {
			t.Errorf("%s outlived its node", name)
		}
	}
}
