package daemon

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outspan/outspan/config"
)

// With telemetry { prometheus = false }, a process has no handler for metrics.
func TestMetricsAreServedUnlessTurnedOff(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newLoopMetrics().collectors()...)
	on := (&process{cfg: &config.Config{Metrics: true}, registry: registry}).metrics()
	if on == nil {
		t.Fatal("there is nothing to serve although telemetry is on")
	}
	got := httptest.NewRecorder()
	on.ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if got.Code != http.StatusOK ||
		!strings.Contains(got.Body.String(), `outspan_apply_refused_total{code="budget_min_ready"} 0`) {
		t.Errorf("got %d:\n%s", got.Code, got.Body)
	}
	if off := (&process{cfg: &config.Config{}, registry: registry}).metrics(); off != nil {
		t.Error("metrics are served although telemetry is off")
	}
}
