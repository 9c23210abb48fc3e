package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outspan/outspan/config"
)

// With telemetry { prometheus = false } there is no metrics handler, on a server and on an agent.
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

// If the agent of a process can't be opened, the server that was opened before is closed again: a second try gets as
// far as the first one.
func TestServerIsClosedIfTheAgentCantBeOpened(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "both.hcl"), filepath.Join(dir, "api.sock")
	text := fmt.Sprintf("name = \"dev\"\ndata_dir = %q\nserver {\n  bootstrap_expect = 1\n}\n"+
		"agent {\n  allow_root = true\n}\ntls {\n  dir = %q\n}\n"+
		"listen {\n  address = \"127.0.0.1\"\n  port = 0\n  gossip_port = 0\n  socket = %q\n}\n",
		filepath.Join(dir, "data"), filepath.Join(dir, "tls"), socket)
	agentData := filepath.Join(dir, "data-agent")
	for path, content := range map[string]string{file: text, agentData: "this is no directory"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := Program{Version: "test"}.Run(t.Context(), cfg, nil)
		if err == nil || !strings.Contains(err.Error(), agentData) {
			t.Fatalf("got error %v, want one about %s", err, agentData)
		}
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			t.Fatal("the socket of the server is still open")
		}
	}
}

// reloadingPart is a part whose reload fails with err.
type reloadingPart struct{ err error }

func (reloadingPart) run(context.Context) error     { return nil }
func (p reloadingPart) reload(*config.Config) error { return p.err }
func (reloadingPart) release()                      {}

// The log says that the configuration was reloaded only if every part could apply it.
func TestReloadIsLoggedAsWholeOnlyIfItIs(t *testing.T) {
	for name, tt := range map[string]struct {
		parts []part
		want  string
	}{
		"whole": {[]part{reloadingPart{}, reloadingPart{}}, "[INFO]  configuration reloaded\n"},
		"in part": {[]part{reloadingPart{errors.New("bad key")}, reloadingPart{}},
			"[ERROR] configuration only partly reloaded: error=\"bad key\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			log := hclog.New(&hclog.LoggerOptions{Output: &text, DisableTime: true})
			p := &process{cfg: &config.Config{}, parts: tt.parts, log: log}
			p.reload(func() (*config.Config, error) {
				return &config.Config{Log: config.Log{Level: "info"}}, nil
			})
			if text.String() != tt.want {
				t.Errorf("the log is\n%swant\n%s", text.String(), tt.want)
			}
		})
	}
}

// A reload says which changed keys take a restart. Labels, the log level and the limits take none.
func TestReloadSaysWhatTakesARestart(t *testing.T) {
	var text strings.Builder
	running := config.Config{Name: "s1", Agent: &config.Agent{Labels: map[string]string{"rack": "a"}},
		Auth: config.Auth{OIDC: &config.OIDC{Issuer: "https://a"}}}
	p := &process{cfg: &running, log: hclog.New(&hclog.LoggerOptions{Output: &text})}
	reload := func(newer config.Config) string {
		text.Reset()
		p.reload(func() (*config.Config, error) { return &newer, nil })
		return text.String()
	}
	newer := running
	newer.Agent = &config.Agent{Labels: map[string]string{"rack": "b"}}
	newer.Auth.OIDC = &config.OIDC{Issuer: "https://a"}
	newer.Log.Level, newer.Limits.Connections = "info", 5
	if said := reload(newer); !strings.Contains(said, "reloaded") || strings.Contains(said, "restart") {
		t.Errorf("nothing takes a restart: %s", said)
	}
	newer.Audit.File, newer.Auth.Tokens, newer.Log.Level = "/var/log/outspan/other.log", true, "info"
	if said := reload(newer); !strings.Contains(said, "restart") || !strings.Contains(said, `"audit, auth"`) {
		t.Errorf("the audit log and tokens take a restart: %s", said)
	}
}
