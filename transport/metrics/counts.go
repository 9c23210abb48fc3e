package metrics

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// nodeCause is the key by which evictions and reschedules are counted.
type nodeCause struct {
	node  model.NodeID
	cause model.Cause
}

// counts has the counters and histograms of what has happened since the process began.
type counts struct {
	mu          sync.Mutex
	evictions   map[nodeCause]float64
	reschedules map[nodeCause]float64
	preemptions float64

	evicted, rescheduled, preempted *prometheus.Desc
	drain, detection, apply         prometheus.Histogram
}

func newCounts() *counts {
	seconds := func(name, help string, first float64, n int) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "outspan_" + name, Help: help,
			Buckets: prometheus.ExponentialBuckets(first, 4, n)})
	}
	return &counts{
		evictions: map[nodeCause]float64{}, reschedules: map[nodeCause]float64{},
		evicted: desc("evictions_total", "Instances that were told to leave a node for a cause from outside their job.",
			"node", "cause"),
		rescheduled: desc("reschedules_total",
			"Replacements of instances of a node that were placed, by the cause of the loss.", "node", "cause"),
		preempted: desc("preemptions_total", "Instances that were evicted for the room of a higher class."),
		drain:     seconds("drain_duration_seconds", "From a node's turn in a drain to its end.", 1, 9),
		detection: seconds("offline_detection_seconds",
			"Silence of a node when it was marked offline, as the leader heard it.", 0.5, 7),
		apply: seconds("apply_seconds",
			"Time to apply the entries that were committed together, often one, to the state.", 0.00001, 10),
	}
}

// evictionCauses returns the causes of stops that are counted as evictions. They come from outside an instance's own
// job.
func evictionCauses() []model.Cause {
	return []model.Cause{
		model.CauseNodeDraining, model.CauseNodeDisabled, model.CauseNodeOffline, model.CauseNodeNotReady, model.CauseUser,
		model.CauseRebalance, model.CauseAffinity, model.CausePreempted,
	}
}

// rescheduleCauses returns the causes for which an instance is replaced, mostly on another node.
func rescheduleCauses() []model.Cause {
	return []model.Cause{model.CauseNodeDraining, model.CauseNodeDisabled, model.CauseNodeOffline, model.CauseUser,
		model.CauseCrashLoop, model.CauseStartTimeout, model.CauseOOM, model.CauseCheckFailed,
		model.CauseRebalance, model.CauseAffinity, model.CauseNodeNotReady}
}

func (c *counts) describe(out chan<- *prometheus.Desc) {
	out <- c.evicted
	out <- c.rescheduled
	out <- c.preempted
	for _, h := range [...]prometheus.Histogram{c.drain, c.detection, c.apply} {
		h.Describe(out)
	}
}

// collect sends the counters of every node in the state. A counter without events is 0. It removes the counters of
// nodes that the state does not have any more. It also sends the counters and histograms that have no node.
func (c *counts) collect(out chan<- prometheus.Metric, s *fsm.State) {
	c.mu.Lock()
	for _, counted := range [...]map[nodeCause]float64{c.evictions, c.reschedules} {
		maps.DeleteFunc(counted, func(k nodeCause, _ float64) bool { return !s.Nodes.Has(k.node) })
	}
	evictions, reschedules, preemptions := maps.Clone(c.evictions), maps.Clone(c.reschedules), c.preemptions
	c.mu.Unlock()
	for id, n := range s.Nodes.All() {
		for _, cause := range evictionCauses() {
			out <- prometheus.MustNewConstMetric(c.evicted, prometheus.CounterValue, evictions[nodeCause{id, cause}],
				n.Name, string(cause))
		}
		for _, cause := range rescheduleCauses() {
			out <- prometheus.MustNewConstMetric(c.rescheduled, prometheus.CounterValue, reschedules[nodeCause{id, cause}],
				n.Name, string(cause))
		}
	}
	out <- prometheus.MustNewConstMetric(c.preempted, prometheus.CounterValue, preemptions)
	for _, h := range [...]prometheus.Histogram{c.drain, c.detection, c.apply} {
		h.Collect(out)
	}
}

// ObserveApply records how long a batch of entries took to apply.
func (c *Collector) ObserveApply(d time.Duration) { c.counts.apply.Observe(d.Seconds()) }

// Run counts events until ctx ends, and then returns nil. It does not count events from before the process began, even
// when the log is replayed.
func (c *Collector) Run(ctx context.Context) error {
	begin := time.Now().UnixMilli()
	state, _ := c.cfg.Store.Watch()
	after := fsm.NewEventKey(state.Index+1, 0) - 1
	for {
		woken, cancel := c.cfg.Store.WatchTopic("events")
		state, _ := c.cfg.Store.Watch()
		if newest, _, ok := state.Events.Max(); ok && newest < after {
			after = newest // a snapshot was restored, and all its events are older
		}
		for key, e := range state.Events.From(after + 1) {
			if after = key; e.Wall >= begin {
				c.note(&state, e)
			}
		}
		select {
		case <-woken:
		case <-ctx.Done():
			cancel()
			return nil
		}
		cancel()
	}
}

func (c *Collector) note(s *fsm.State, e *fsm.Event) {
	switch e.Type {
	case model.EventDesired:
		if e.Before == string(model.DesiredRunning) && e.After != e.Before && slices.Contains(evictionCauses(), e.Cause) {
			c.counts.add(c.counts.evictions, model.NodeID(e.Data["node"]), e.Cause)
		}
		if e.Before == string(model.DesiredRunning) && e.Cause == model.CausePreempted {
			c.counts.mu.Lock()
			c.counts.preemptions++
			c.counts.mu.Unlock()
		}
	case model.EventAllocated:
		old, ok := s.Instances.Get(model.InstanceID(e.Data["replaces"]))
		if ok && slices.Contains(rescheduleCauses(), e.Cause) {
			c.counts.add(c.counts.reschedules, old.Node, e.Cause)
		}
	case model.EventDrainPhase:
		c.noteDrain(s, e)
	case model.EventNodeState:
		c.noteOffline(e)
	}
}

func (c *counts) add(to map[nodeCause]float64, node model.NodeID, cause model.Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to[nodeCause{node, cause}]++
}

func (c *Collector) noteDrain(s *fsm.State, e *fsm.Event) {
	d, ok := s.Drains.Get(model.DrainID(strings.TrimPrefix(e.Subject, "drain/")))
	if !ok || e.Before == e.After {
		return
	}
	if n, ok := d.Node(model.NodeID(e.Data["node"])); ok && n.StartedWall > 0 && n.EndedWall >= n.StartedWall {
		c.counts.drain.Observe(float64(n.EndedWall-n.StartedWall) / 1000)
	}
}

// noteOffline records how long the detection of an offline node took. Only the leader records it, because only the
// leader has the evidence.
func (c *Collector) noteOffline(e *fsm.Event) {
	if e.After != string(model.NodeOffline) || c.cfg.Live == nil || c.cfg.Raft == nil || !c.cfg.Raft().Leader {
		return
	}
	if live, ok := c.cfg.Live()[model.NodeID(strings.TrimPrefix(e.Subject, "node/"))]; ok && live.Age != model.Forever {
		c.counts.detection.Observe(float64(live.Age) / 1000)
	}
}
