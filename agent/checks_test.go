package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// patient answers each probe with the next error of script, and repeats the last error.
type patient struct {
	mu     sync.Mutex
	script []error
	asked  int
}

func (p *patient) probe(context.Context, model.CheckSpec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.script[min(p.asked, len(p.script)-1)]
	p.asked++
	return err
}

func (p *patient) say(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script, p.asked = []error{err}, 0
}

func take(w *readiness) (v verdict, ok bool) {
	synctest.Wait()
	select {
	case v = <-w.out:
		return v, true
	default:
		return verdict{}, false
	}
}

func running() bool { return true }

// An instance is not ready while its program does not run, even if its checks pass. Another program may be answering
// them.
func TestReadinessOfTheDead(t *testing.T) {
	spec := model.CheckSpec{Name: "c", Kind: model.CheckTCP, Interval: model.Second, Timeout: model.Second, Failures: 3}
	synctest.Test(t, func(t *testing.T) {
		for _, checks := range [][]model.CheckSpec{nil, {spec}} {
			var alive atomic.Bool
			w := watchReadiness(t.Context(), checks, (&patient{script: []error{nil}}).probe, alive.Load, false)
			time.Sleep(time.Minute)
			if v, ok := take(w); ok && v.ready {
				t.Errorf("%d checks: ready without a program", len(checks))
			}
			alive.Store(true)
			time.Sleep(2 * time.Second)
			if v, ok := take(w); !ok || !v.ready {
				t.Errorf("%d checks: %+v %v with one", len(checks), v, ok)
			}
			w.stop()
		}
	})
}

func TestReadiness(t *testing.T) {
	sick := errors.New("sick")
	spec := model.CheckSpec{Name: "c", Kind: model.CheckTCP, Interval: 10 * model.Second, Timeout: 2 * model.Second,
		Grace: 30 * model.Second, Successes: 2, Failures: 3}
	synctest.Test(t, func(t *testing.T) {
		p := &patient{script: []error{sick, sick, nil}}
		w := watchReadiness(t.Context(), []model.CheckSpec{spec}, p.probe, running, false)
		defer w.stop()
		time.Sleep(time.Second) // the interval is 10 s, but checks are frequent at first
		if v, ok := take(w); !ok || !v.ready {
			t.Errorf("after a second: %+v %v", v, ok)
		}
		p.say(sick)
		time.Sleep(25 * time.Second)
		if v, ok := take(w); ok {
			t.Errorf("after two failures: %+v", v)
		}
		time.Sleep(10 * time.Second)
		if v, ok := take(w); !ok || v.ready || v.reason != "c: sick" {
			t.Errorf("after three failures: %+v %v", v, ok)
		}
		time.Sleep(time.Hour)
		if v, ok := take(w); ok {
			t.Errorf("the same again was told: %+v", v)
		}
		p.say(nil)
		time.Sleep(10 * time.Second)
		if v, ok := take(w); ok {
			t.Errorf("after one success of two: %+v", v)
		}
		time.Sleep(10 * time.Second)
		if v, ok := take(w); !ok || !v.ready {
			t.Errorf("after two successes: %+v %v", v, ok)
		}
	})
}

// The time of restart_after begins again with each failure. A restart that was late before is none for the next one.
func TestReadinessOverdueAgain(t *testing.T) {
	sick := errors.New("sick")
	spec := model.CheckSpec{Name: "c", Kind: model.CheckTCP, Interval: model.Second, Timeout: model.Second, Failures: 1,
		RestartAfter: 30 * model.Second}
	synctest.Test(t, func(t *testing.T) {
		p := &patient{script: []error{nil}}
		w := watchReadiness(t.Context(), []model.CheckSpec{spec}, p.probe, running, false)
		defer w.stop()
		for i, step := range []struct {
			answer  error
			after   time.Duration
			overdue bool
		}{{nil, 10 * time.Second, false}, {sick, time.Minute, true}, {nil, 10 * time.Second, false},
			{sick, 10 * time.Second, false}, {sick, time.Minute, true}} {
			p.say(step.answer)
			time.Sleep(step.after)
			if v, ok := take(w); !ok || v.ready != (step.answer == nil) || (v.overdue != "") != step.overdue {
				t.Errorf("step %d: %+v %v", i, v, ok)
			}
		}
	})
}

func TestReadinessGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := model.CheckSpec{Name: "c", Interval: model.Second, Timeout: model.Second,
			Grace: 30 * model.Second, Failures: 3}
		w := watchReadiness(t.Context(), []model.CheckSpec{spec},
			(&patient{script: []error{errors.New("sick")}}).probe, running, false)
		defer w.stop()
		time.Sleep(29 * time.Second)
		if v, ok := take(w); ok {
			t.Errorf("within the grace: %+v", v)
		}
		time.Sleep(10 * time.Second)
		if v, ok := take(w); !ok || v.ready || v.reason == "" {
			t.Errorf("after the grace: %+v %v", v, ok)
		}
	})
}

// A program that was ready under an earlier agent stays ready until a check has failed Failures times in a row. The
// grace of the check does not apply.
func TestReadinessAssumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := model.CheckSpec{Name: "c", Interval: model.Second, Timeout: model.Second, Grace: model.Minute, Failures: 3}
		p := &patient{script: []error{nil}}
		good := watchReadiness(t.Context(), []model.CheckSpec{spec}, p.probe, running, true)
		defer good.stop()
		bad := watchReadiness(t.Context(), []model.CheckSpec{spec},
			(&patient{script: []error{errors.New("sick")}}).probe, running, true)
		defer bad.stop()
		time.Sleep(1500 * time.Millisecond)
		if v, ok := take(bad); ok {
			t.Errorf("after two failures: %+v", v)
		}
		time.Sleep(time.Second)
		if v, ok := take(bad); !ok || v.ready {
			t.Errorf("after three failures, in spite of the grace: %+v %v", v, ok)
		}
		if v, ok := take(good); ok {
			t.Errorf("one that passes: %+v", v)
		}
	})
}

// All checks must pass. The reason names the first check that does not.
func TestReadinessOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		specs := []model.CheckSpec{
			{Name: "a", Interval: model.Second, Timeout: model.Second, Failures: 1},
			{Name: "b", Interval: model.Second, Timeout: model.Second, Failures: 1},
		}
		a, b := &patient{script: []error{nil}}, &patient{script: []error{nil}}
		w := watchReadiness(t.Context(), specs, func(ctx context.Context, c model.CheckSpec) error {
			if c.Name == "a" {
				return a.probe(ctx, c)
			}
			return b.probe(ctx, c)
		}, running, false)
		defer w.stop()
		time.Sleep(100 * time.Millisecond)
		if v, ok := take(w); !ok || !v.ready {
			t.Errorf("%+v %v", v, ok)
		}
		b.say(errors.New("ill"))
		time.Sleep(1100 * time.Millisecond)
		if v, ok := take(w); !ok || v.ready || v.reason != "b: ill" {
			t.Errorf("%+v %v", v, ok)
		}
	})
}

func TestProbe(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slot/3":
		case "/away":
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		case "/hang":
			<-r.Context().Done()
		default:
			http.Error(w, "no", http.StatusTeapot)
		}
	}))
	defer srv.Close()
	open := srv.Listener.Addr().(*net.TCPAddr).Port
	closed := freePort(t, "127.0.0.1")
	v := values{node: nodeFacts{address: "127.0.0.1"}, slot: 3}
	as := transport.Assignment{Ports: map[string]int{"open": open, "closed": closed}}
	run := func(_ context.Context, c driver.Command) (int, error) {
		if c.Argv[1] != "3" {
			return 0, errors.New("not expanded: " + c.Argv[1])
		}
		if c.Argv[0] == "fail" {
			_, err := io.WriteString(c.Stderr, "it is\nbroken")
			return 3, err
		}
		return 0, nil
	}
	tests := []struct {
		spec model.CheckSpec
		want string
	}{
		{model.CheckSpec{Kind: model.CheckTCP, Port: "open"}, ""},
		{model.CheckSpec{Kind: model.CheckTCP, Port: "closed"}, "connection refused"},
		{model.CheckSpec{Kind: model.CheckTCP, Port: "none"}, "no port"},
		{model.CheckSpec{Kind: model.CheckHTTP, Port: "open", Path: "/slot/${slot}"}, ""},
		{model.CheckSpec{Kind: model.CheckHTTP, Port: "open", Path: "/away"}, ""},
		{model.CheckSpec{Kind: model.CheckHTTP, Port: "open", Path: "/nothing"}, "status 418"},
		{model.CheckSpec{Kind: model.CheckHTTP, Port: "open", Path: "/hang"}, "no answer within 200ms"},
		{model.CheckSpec{Kind: model.CheckHTTP, Port: "closed", Path: "/"}, "connection refused"},
		{model.CheckSpec{Kind: model.CheckExec, Command: []string{"pass", "${slot}"}}, ""},
		{model.CheckSpec{Kind: model.CheckExec, Command: []string{"fail", "${slot}"}}, `exit code 3 ("it is")`},
		{model.CheckSpec{Kind: model.CheckExec, Command: []string{"pass", "${node.nothing}"}}, "unknown variable"},
		{model.CheckSpec{Kind: "smell"}, "unknown"},
	}
	for _, tt := range tests {
		tt.spec.Timeout = 200 * model.Millisecond
		err := ask(t.Context(), tt.spec, newProber(v, as, run))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want %q", tt.spec, err, tt.want)
		}
	}
}

// A check that flaps takes the instance out of its service and back, and does not restart the program.
func TestCheckFlaps(t *testing.T) {
	b := newBench(t, allowRoot)
	port, health := freePort(t, "127.0.0.1"), filepath.Join(b.dir, "healthy")
	pidFile := filepath.Join(b.dir, "pid")
	g := sh("echo $$ > " + pidFile + "; exec " + os.Args[0] + " program http :${port.http} web " + health)
	g.Ports = []model.PortSpec{{Name: "http"}}
	g.Services = []model.ServiceSpec{{Name: "web", Port: "http"}}
	g.Checks = []model.CheckSpec{
		{Name: "alive", Kind: model.CheckHTTP, Port: "http", Path: "/health", Interval: 100 * model.Millisecond,
			Timeout: 5 * model.Second, Failures: 2},
		{Name: "inside", Kind: model.CheckExec, Command: []string{"/bin/sh", "-c", `test "$OUTSPAN_SLOT" = ${slot}`},
			Interval: 100 * model.Millisecond, Timeout: 5 * model.Second},
	}
	id := b.run("web", g, model.Ports{{Name: "http", Number: port}})
	b.await(id, model.ObservedBooting)
	pid := pidOf(t, pidFile)
	for range 2 {
		must(t, os.WriteFile(health, nil, 0o644))
		b.await(id, model.ObservedReady)
		if n := len(b.services().Services[0].Backends); n != 1 {
			t.Errorf("%d backends while ready", n)
		}
		must(t, os.Remove(health))
		b.await(id, model.ObservedUnready)
		if n := len(b.services().Services[0].Backends); n != 0 {
			t.Errorf("%d backends while not ready", n)
		}
	}
	if pidOf(t, pidFile) != pid || !alive(pid) {
		t.Error("it was restarted")
	}
	want := []string{"ready", "unready check_failed: alive: status 503"}
	got := b.history(id)
	if !slices.Equal(got[len(got)-4:], append(slices.Clone(want), want...)) {
		t.Errorf("history %q", got)
	}
}
