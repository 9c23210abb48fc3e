package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport/httpapi"
)

// Config says what a Collector reads.
type Config struct {
	// Version is the version of the program.
	Version string
	// Store is the state of this server.
	Store httpapi.Store
	// Live returns the evidence about nodes, and Now returns the cluster time. Explanations need both functions. Live is
	// also used to record how long the detection of an offline node took.
	Live func() map[model.NodeID]fsm.Liveness
	Now  func() model.Time
	// Explainer explains why groups and drains wait. If it is nil, unschedulable and drain_blocked stay at 0.
	Explainer httpapi.Explainer
	// Raft returns what this server knows of raft. If it is nil, Applied is the index of the state, and the other values
	// are 0.
	Raft func() Raft
	// Problems returns how many problems of each kind the status shows. It must not block. If it is nil, the numbers are
	// 0.
	Problems func() map[api.ProblemCode]int
	// Machine returns what this server knows of its own machine. It must not block. If it is nil, the values are 0.
	Machine func() Machine
}

// Raft is what a server knows of raft and of its own place in the log.
type Raft struct {
	Leader  bool
	Term    uint64
	Applied uint64 // index of the last entry in the state
	Lag     uint64 // committed entries that are not yet in the state
}

// Collector implements prometheus.Collector. It counts events only while Run runs. Safe for concurrent use.
type Collector struct {
	cfg    Config
	counts *counts
	gauges gauges
}

// New makes a Collector. Register it with Prometheus once.
func New(cfg Config) *Collector {
	return &Collector{cfg: cfg, counts: newCounts(), gauges: newGauges()}
}

// gauges describes the values that are read at each scrape.
type gauges struct {
	nodes, capacity, allocated, instances *prometheus.Desc
	troubled                              *prometheus.Desc
	desired, ready, allowed               *prometheus.Desc
	drains, blocked, unschedulable        *prometheus.Desc
	drainTime                             *prometheus.Desc
	paused, hold, build                   *prometheus.Desc
	leader, term, applied, lag            *prometheus.Desc
	problems                              problemGauges
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("outspan_"+name, help, labels, nil)
}

func newGauges() gauges {
	return gauges{
		nodes:     desc("nodes", "Nodes by what the operator wants and what the detector found.", "intent", "health"),
		troubled:  desc("nodes_troubled", "Nodes whose agent says that a check of its own machine fails.", "check"),
		capacity:  desc("node_capacity_bytes", "Memory of a node that instances can use.", "node"),
		allocated: desc("node_allocated_bytes", "Memory of a node that instances hold, overhead included.", "node"),
		instances: desc("instances", "Instances that did not end, by observed state.", "job", "group", "state"),
		desired:   desc("group_desired", "Instances that a group should have.", "job", "group"),
		ready:     desc("group_ready", "Ready instances of a group.", "job", "group"),
		allowed:   desc("budget_allowed", "Voluntary stops that a budget allows now.", "budget"),
		drains:    desc("drains", "Kept drains by phase.", "phase"),
		drainTime: desc("node_drain_seconds",
			"How long the last drain that emptied a node took, from the node's turn.", "node"),
		blocked:       desc("drain_blocked", "Instances that running drains can't stop now, by code.", "code"),
		unschedulable: desc("unschedulable", "Groups that lack instances because no node can take them, by code.", "code"),
		paused:        desc("actuation_paused", "1 while decisions are computed and not carried out."),
		hold: desc("mass_offline_hold",
			"1 while so many nodes are silent or degraded that nothing is evicted for it."),
		build:    desc("build_info", "1; the version is the label.", "version"),
		leader:   desc("raft_is_leader", "1 on the server that leads."),
		term:     desc("raft_term", "Current term."),
		applied:  desc("raft_applied_index", "Index of the last entry in the state."),
		problems: newProblemGauges(),
		lag:      desc("raft_fsm_lag", "Committed entries that are not yet in the state."),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	g := c.gauges
	for _, d := range [...]*prometheus.Desc{
		g.nodes, g.troubled, g.capacity, g.allocated, g.instances, g.desired, g.ready, g.allowed, g.drains, g.drainTime,
		g.blocked, g.unschedulable,
		g.paused, g.hold, g.build, g.leader, g.term, g.applied, g.lag,
	} {
		out <- d
	}
	g.problems.describe(out)
	c.counts.describe(out)
}

// Collect implements prometheus.Collector. It reads one published state and blocks nobody.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	state, _ := c.cfg.Store.Watch()
	s := &scrape{out: out, s: &state, g: c.gauges}
	s.nodes()
	s.groups()
	s.drains()
	s.waiting(c.cfg)
	s.flags(c.cfg)
	s.problems(c.gauges.problems, c.cfg)
	c.counts.collect(out, &state)
}

// scrape is one answer to Prometheus.
type scrape struct {
	out chan<- prometheus.Metric
	s   *fsm.State
	g   gauges
}

func (s *scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s *scrape) nodes() {
	counts, troubled := map[[2]string]int{}, map[model.SelfCheck]int{}
	for _, n := range s.s.Nodes.All() {
		counts[[2]string{string(n.Intent), string(n.Shown())}]++
		for _, t := range n.Self.Troubles {
			troubled[t.Check]++
		}
		s.gauge(s.g.capacity, float64(n.Allocatable().MemoryBytes), n.Name)
		s.gauge(s.g.allocated, float64(n.Placed.MemoryBytes), n.Name)
	}
	for _, check := range model.SelfChecks() {
		s.gauge(s.g.troubled, float64(troubled[check]), string(check))
	}
	for _, intent := range [...]model.Intent{model.IntentActive, model.IntentCordoned,
		model.IntentDraining, model.IntentDisabled} {
		for _, health := range [...]model.Health{model.HealthOnline, model.HealthDegraded,
			model.HealthUnreachable, model.HealthOffline} {
			s.gauge(s.g.nodes, float64(counts[[2]string{string(intent), string(health)}]), string(intent), string(health))
		}
	}
}

func (s *scrape) groups() {
	for id, g := range s.s.Groups.All() {
		if g.Removed && g.Alive == 0 {
			continue
		}
		name, group := id.Split()
		job := string(name)
		counts := map[model.Observed]int{}
		for i := range s.s.InstancesOf(id) {
			if !i.Terminal() {
				counts[i.Status.Observed]++
			}
		}
		for _, state := range [...]model.Observed{
			model.ObservedPending, model.ObservedBooting, model.ObservedReady, model.ObservedUnready, model.ObservedDraining,
			model.ObservedFailed, model.ObservedLost,
		} {
			s.gauge(s.g.instances, float64(counts[state]), job, group, string(state))
		}
		s.gauge(s.g.desired, float64(g.Want()), job, group)
		s.gauge(s.g.ready, float64(g.Ready), job, group)
		own := s.s.GroupLedger(g)
		s.gauge(s.g.allowed, float64(own.Allowed(s.s.Now)), string(id))
	}
	for name, b := range s.s.Budgets.All() {
		l := s.s.SharedLedger(b)
		s.gauge(s.g.allowed, float64(l.Allowed(s.s.Now)), string(name))
	}
}

func (s *scrape) drains() {
	counts := map[model.DrainPhase]int{}
	last := map[model.NodeID]fsm.DrainNode{}
	for _, d := range s.s.Drains.All() {
		counts[d.Phase()]++
		for _, part := range d.Nodes {
			if part.Phase == model.PhaseDrained && part.EndedWall > last[part.Node].EndedWall {
				last[part.Node] = part
			}
		}
	}
	for id, part := range last {
		if n, ok := s.s.Nodes.Get(id); ok {
			s.gauge(s.g.drainTime, float64(part.EndedWall-part.StartedWall)/1000, n.Name)
		}
	}
	for _, phase := range [...]model.DrainPhase{model.PhaseDraining, model.PhaseDrained,
		model.PhaseFailed, model.PhaseCanceled} {
		s.gauge(s.g.drains, float64(counts[phase]), string(phase))
	}
}

// waiting sends, by code, how many groups lack instances, and how many instances running drains can't stop. To explain
// the codes takes a whole decision, so waiting only does it while instances are missing or a drain runs.
func (s *scrape) waiting(cfg Config) {
	unschedulable, blocked := map[model.Code]int{}, map[model.Code]int{}
	for _, code := range unschedulableCodes() {
		unschedulable[code] = 0
	}
	for _, code := range blockerCodes() {
		blocked[code] = 0
	}
	if cfg.Explainer != nil && cfg.Live != nil && cfg.Now != nil {
		q := httpapi.Question{State: *s.s, Live: cfg.Live(), Now: cfg.Now()}
		if s.incomplete() {
			for _, why := range cfg.Explainer.Waiting(q).Groups {
				unschedulable[why.Code]++
			}
		}
		for id, d := range s.s.Drains.All() {
			if d.Phase() != model.PhaseDraining {
				continue
			}
			for _, status := range cfg.Explainer.DrainStatus(q, id) {
				for _, b := range status.Blockers {
					blocked[b.Code]++
				}
			}
		}
	}
	for code, n := range unschedulable {
		s.gauge(s.g.unschedulable, float64(n), string(code))
	}
	for code, n := range blocked {
		s.gauge(s.g.blocked, float64(n), string(code))
	}
}

// incomplete reports whether any group has fewer running or fewer ready instances than its count.
func (s *scrape) incomplete() bool {
	for _, g := range s.s.Groups.All() {
		if g.Running < g.Count || g.Ready < g.Count {
			return true
		}
	}
	return false
}

func unschedulableCodes() []model.Code {
	return []model.Code{
		model.CodeNoMemory, model.CodeNoPorts, model.CodeNoNodes, model.CodeNoRuntime, model.CodeRuntimeDown,
		model.CodeNoNetwork, model.CodeConstraint, model.CodeVolumeNoNode,
		model.CodeVolumeInUse, model.CodeAntiAffinity,
		model.CodeRetryLimit, model.CodeVolumeOffline, model.QuotaExceeded("memory"), model.QuotaExceeded("instances"),
	}
}

func blockerCodes() []model.Code {
	codes := []model.Code{
		model.CodeVolumeLocal, model.CodeRoleNever, model.CodeBudgetMinReady, model.CodeBudgetRate, model.CodeActorRate,
		model.CodeReplacementPending, model.CodeNodeOffline,
		model.CodeAckRequired, model.CodePaused, model.CodeHold, model.CodeStopping, model.CodeBackupRunning,
	}
	for _, code := range unschedulableCodes() {
		codes = append(codes, model.Unschedulable(code))
	}
	return codes
}

func (s *scrape) flags(cfg Config) {
	s.gauge(s.g.paused, number(s.s.Settings.Paused))
	s.gauge(s.g.hold, number(s.s.Hold.Active))
	s.gauge(s.g.build, 1, cfg.Version)
	raft := Raft{Applied: s.s.Index}
	if cfg.Raft != nil {
		raft = cfg.Raft()
	}
	s.gauge(s.g.leader, number(raft.Leader))
	s.gauge(s.g.term, float64(raft.Term))
	s.gauge(s.g.applied, float64(raft.Applied))
	s.gauge(s.g.lag, float64(raft.Lag))
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
