package daemon

import (
	"errors"
	"fmt"
	"slices"

	armon "github.com/armon/go-metrics"
	armonprom "github.com/armon/go-metrics/prometheus"
	hashicorp "github.com/hashicorp/go-metrics"
	hashicorpprom "github.com/hashicorp/go-metrics/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
	"github.com/outspan/outspan/transport/httpapi"
	"github.com/outspan/outspan/transport/metrics"
	"github.com/outspan/outspan/trust"
)

// newRegistry makes the Prometheus registry of this process. raft and memberlist report to hashicorp's go-metrics, and
// raft-boltdb to armon's go-metrics, its predecessor. newRegistry may be called only once, because each go-metrics
// library has one global sink. The metrics keep the names raft_* and memberlist_*.
func newRegistry() (*prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	sink, err := hashicorpprom.NewPrometheusSinkFrom(hashicorpprom.PrometheusOpts{Registerer: registry, Name: "hashicorp"})
	if err != nil {
		return nil, fmt.Errorf("bridge raft's metrics: %w", err)
	}
	config := hashicorp.DefaultConfig("")
	config.EnableHostname, config.EnableRuntimeMetrics = false, false
	if _, err := hashicorp.NewGlobal(config, sink); err != nil {
		return nil, fmt.Errorf("bridge raft's metrics: %w", err)
	}

	older, err := armonprom.NewPrometheusSinkFrom(armonprom.PrometheusOpts{Registerer: registry, Name: "armon"})
	if err != nil {
		return nil, fmt.Errorf("bridge the log store's metrics: %w", err)
	}
	olderConfig := armon.DefaultConfig("")
	olderConfig.EnableHostname, olderConfig.EnableRuntimeMetrics = false, false
	if _, err := armon.NewGlobal(olderConfig, older); err != nil {
		return nil, fmt.Errorf("bridge the log store's metrics: %w", err)
	}
	return registry, nil
}

type loopMetrics struct {
	decide  prometheus.Histogram
	apply   *prometheus.CounterVec
	refused *prometheus.CounterVec
	skipped prometheus.Counter
}

func newLoopMetrics() loopMetrics {
	m := loopMetrics{
		decide: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "outspan_decide_seconds", Help: "Time of one decision over the whole state.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8),
		}),
		apply: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outspan_apply_refused_total", Help: "Planned groups of commands that the log refused, by code.",
		}, []string{"code"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outspan_evictions_refused_total", Help: "Evictions that a decision wanted and a rule refused, by code.",
		}, []string{"code"}),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outspan_plan_skipped_total",
			Help: "Planned groups of commands that were left out because no log entry can hold them.",
		}),
	}
	for _, code := range stopCodes() {
		m.apply.WithLabelValues(string(code))
		m.refused.WithLabelValues(string(code))
	}
	return m
}

// refusals is the counter of requests that were refused before they were processed.
type refusals struct{ *prometheus.CounterVec }

func newRefusals() refusals {
	r := refusals{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outspan_requests_refused_total", Help: "Requests that were refused before they were looked at, by code.",
	}, []string{"code"})}
	for _, code := range refusalCodes() {
		r.WithLabelValues(string(code))
	}
	return r
}

// refusalCodes returns the codes of the refusals that are counted: no identity, no permission, too many requests, a
// request that is too large, and a malformed request.
func refusalCodes() []model.Code {
	return []model.Code{model.CodeUnauthenticated, model.CodeForbidden, model.CodeRateLimited, model.CodeBusy,
		model.CodeTooLarge, model.CodeInvalid, model.CodeMediaType}
}

// count adds 1 for the code of err, if the code is one of refusalCodes.
func (r refusals) count(err error) {
	if refusal, ok := errors.AsType[*model.Error](err); ok && slices.Contains(refusalCodes(), refusal.Code) {
		r.WithLabelValues(string(refusal.Code)).Inc()
	}
}

// beyondShares is the counter of requests that were refused because their callers had used up a share.
type beyondShares struct{ *prometheus.CounterVec }

func newBeyondShares() beyondShares {
	b := beyondShares{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outspan_share_refused_total",
		Help: "Requests that were refused because their caller had used up its share, by share.",
	}, []string{"share"})}
	for _, share := range httpapi.Shares() {
		b.WithLabelValues(string(share))
	}
	return b
}

// count adds 1 for a share.
func (b beyondShares) count(share httpapi.Share) { b.WithLabelValues(string(share)).Inc() }

// joinRefusals is the counter of refused joins.
type joinRefusals struct{ *prometheus.CounterVec }

func newJoinRefusals() joinRefusals {
	r := joinRefusals{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outspan_joins_refused_total", Help: "Requests to join that this server refused, by code.",
	}, []string{"code"})}
	for _, code := range trust.JoinRefusals() {
		r.WithLabelValues(string(code))
	}
	return r
}

// count adds 1 for a code.
func (r joinRefusals) count(code model.Code) { r.WithLabelValues(string(code)).Inc() }

// stopCodes returns the codes with which the state refuses a stop that the leader's loop planned.
func stopCodes() []model.Code {
	return []model.Code{model.CodeBudgetMinReady, model.CodeBudgetRate, model.CodeRoleNever, model.CodeVolumeLocal,
		model.CodeReplacementPending, model.CodeStale}
}

func (m loopMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.decide, m.apply, m.refused, m.skipped}
}

// note adds one report of the leader's loop to the metrics.
func (m loopMetrics) note(r reconcile.Report) {
	if r.Took > 0 {
		m.decide.Observe(r.Took.Seconds())
	}
	m.skipped.Add(float64(len(r.Skipped) + len(r.Plan.Skipped)))
	for _, refusal := range r.Refused {
		m.apply.WithLabelValues(string(refusal.Code)).Inc()
	}
	for _, refusal := range r.Plan.Refused {
		if slices.Contains(stopCodes(), refusal.Code) {
			m.refused.WithLabelValues(string(refusal.Code)).Inc()
		}
	}
}

// compareMetrics are the metrics of the comparisons of this server's state with the states of other servers.
type compareMetrics struct {
	results *prometheus.CounterVec
	differs prometheus.Gauge
}

func newCompareMetrics() compareMetrics {
	m := compareMetrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outspan_state_comparisons_total",
			Help: "Comparisons of this server's state with the other servers', by what came of them.",
		}, []string{"result"}),
		differs: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outspan_state_differs", Help: "1 while the last comparison showed servers with different states.",
		}),
	}
	for _, result := range cluster.ComparisonResults() {
		m.results.WithLabelValues(result.String())
	}
	return m
}

func (m compareMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.results, m.differs}
}

// note counts one comparison. It sets the gauge, unless too few servers could be compared.
func (m compareMetrics) note(r cluster.ComparisonResult) {
	m.results.WithLabelValues(r.String()).Inc()
	switch {
	case r.Differs():
		m.differs.Set(1)
	case r == cluster.StatesEqual:
		m.differs.Set(0)
	}
}

// Collectors returns outspan's own collectors of servers and agents, without values. The reference documentation of the
// metrics is generated from them.
func Collectors() []prometheus.Collector {
	others := []prometheus.Collector{newRefusals(), newBeyondShares(), newJoinRefusals(), newCertificateEnd(),
		metrics.New(metrics.Config{}), newUsage(nil)}
	return slices.Concat(newLoopMetrics().collectors(), newCompareMetrics().collectors(), newAuditMetrics().collectors(),
		others)
}
