package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// oracle answers role checks with what the test sets.
type oracle struct {
	mu    sync.Mutex
	say   facts
	fail  error
	hang  time.Duration
	asked int
}

func (o *oracle) ask(ctx context.Context) (facts, error) {
	o.mu.Lock()
	o.asked++
	say, fail, hang := o.say, o.fail, o.hang
	o.mu.Unlock()
	sleep(ctx, hang, nil)
	return say, fail
}

func (o *oracle) set(say facts, fail error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.say, o.fail = say, fail
}

func takeFacts(w *roleWatch) (f facts, ok bool) {
	synctest.Wait()
	select {
	case f = <-w.out:
		return f, true
	default:
		return nil, false
	}
}

func TestRoleWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &oracle{fail: errors.New("not up yet")}
		w := watchRole(t.Context(), &model.RoleCheckSpec{Interval: 10 * model.Second}, o.ask, hclog.NewNullLogger())
		defer w.stop()
		time.Sleep(time.Second)
		if f, ok := takeFacts(w); ok {
			t.Errorf("told %v before there was an answer", f)
		}
		o.set(facts{"leader": "true"}, nil)
		time.Sleep(2 * time.Second) // the interval is 10 s, but checks are frequent at first
		if f, ok := takeFacts(w); !ok || f["leader"] != "true" {
			t.Errorf("the first answer: %v %v", f, ok)
		}
		time.Sleep(time.Hour)
		if f, ok := takeFacts(w); ok {
			t.Errorf("the same again was told: %v", f)
		}
		o.set(facts{"leader": "false"}, nil)
		time.Sleep(10 * time.Second)
		if f, ok := takeFacts(w); !ok || f["leader"] != "false" {
			t.Errorf("another answer: %v %v", f, ok)
		}
		// The last answered question may be one interval (10 s) ago. Facts are withdrawn three intervals after that
		// question.
		o.set(nil, errors.New("no"))
		time.Sleep(19 * time.Second)
		if f, ok := takeFacts(w); ok {
			t.Errorf("within three intervals: %v", f)
		}
		time.Sleep(12 * time.Second)
		if f, ok := takeFacts(w); !ok || f != nil {
			t.Errorf("after three intervals: %v %v", f, ok)
		}
		time.Sleep(time.Hour)
		if f, ok := takeFacts(w); ok {
			t.Errorf("withdrawn again: %v", f)
		}
	})
}

// If a role check hangs, its facts are withdrawn too. A late answer to an older question does not replace the answer to
// a newer one.
func TestRoleWatchHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &oracle{say: facts{"leader": "true"}}
		w := watchRole(t.Context(), &model.RoleCheckSpec{Interval: model.Second}, o.ask, hclog.NewNullLogger())
		defer w.stop()
		time.Sleep(100 * time.Millisecond)
		if f, ok := takeFacts(w); !ok || f["leader"] != "true" {
			t.Fatalf("%v %v", f, ok)
		}
		o.mu.Lock()
		o.hang = time.Minute
		o.mu.Unlock()
		time.Sleep(3 * time.Second)
		if f, ok := takeFacts(w); !ok || f != nil {
			t.Errorf("while it hangs: %v %v", f, ok)
		}
		o.mu.Lock()
		o.hang, o.say = 0, facts{"leader": "false"}
		o.mu.Unlock()
		if f, err := w.fresh(t.Context()); err != nil || f["leader"] != "false" {
			t.Errorf("asked afresh: %v %v", f, err)
		}
		time.Sleep(time.Second)
		if f, ok := takeFacts(w); !ok || f["leader"] != "false" {
			t.Errorf("what the fresh question found: %v %v", f, ok)
		}
		time.Sleep(2 * time.Minute)
		if f, ok := takeFacts(w); ok && f["leader"] != "false" {
			t.Errorf("the answer to the older question counts: %v", f)
		}
	})
}

func TestAsker(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/role/3":
			fmt.Fprint(w, `{"leader":true}`)
		case "/long":
			fmt.Fprint(w, `{"leader":true}`+strings.Repeat(" ", maxFactsText))
		case "/hang":
			<-r.Context().Done()
		default:
			http.Error(w, `{"leader":true}`, http.StatusServiceUnavailable)
		}
	}))
	defer srv.Close()
	as := transport.Assignment{Slot: 3, Ports: map[string]int{"http": srv.Listener.Addr().(*net.TCPAddr).Port}}
	v := values{node: nodeFacts{address: "127.0.0.1"}, slot: 3}
	run := func(_ context.Context, c driver.Command) (int, error) {
		fmt.Fprint(c.Stdout, c.Argv[1])
		fmt.Fprint(c.Stderr, "a word on stderr\n")
		return len(c.Argv) - 2, nil
	}
	tests := []struct {
		spec model.RoleCheckSpec
		want string
	}{
		{model.RoleCheckSpec{Port: "http", Path: "/role/${slot}"}, ""},
		{model.RoleCheckSpec{Port: "http", Path: "/nothing"}, "status 503"},
		{model.RoleCheckSpec{Port: "http", Path: "/long"}, "longer than 4096 bytes"},
		{model.RoleCheckSpec{Port: "http", Path: "/hang"}, "no answer within 200ms"},
		{model.RoleCheckSpec{Port: "none"}, "no port"},
		{model.RoleCheckSpec{Exec: []string{"facts", `{"leader":true}`}}, ""},
		{model.RoleCheckSpec{Exec: []string{"facts", `{"leader":true}`, "fails"}}, `exit code 1 ("a word on stderr")`},
		{model.RoleCheckSpec{Exec: []string{"facts", `{"leader":true}` + strings.Repeat(" ", maxFactsText)}}, "longer than"},
		{model.RoleCheckSpec{Exec: []string{"facts", "${node.nothing}"}}, "unknown variable"},
		{model.RoleCheckSpec{Exec: []string{"facts", "hello"}}, "not a JSON object"},
	}
	for _, tt := range tests {
		tt.spec.Timeout = 200 * model.Millisecond
		as.Spec = &model.GroupSpec{RoleCheck: &tt.spec}
		got, err := newAsker(v, as, run)(t.Context())
		if tt.want == "" && (err != nil || got["leader"] != "true") || tt.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v %v, want %q", tt.spec, got, err, tt.want)
		}
	}
	as.Spec = &model.GroupSpec{}
	if newAsker(v, as, run) != nil {
		t.Error("a group without a role check is asked")
	}
}

// withRole returns an alteration that gives every instance the role check c.
func withRole(c model.RoleCheckSpec) func(*transport.Assignment) {
	return func(a *transport.Assignment) {
		spec := *a.Spec
		spec.RoleCheck = &c
		a.Spec = &spec
	}
}

// say replaces a file atomically, so that a reader sees the old or the new content.
func say(t testing.TB, file, text string) {
	t.Helper()
	must(t, os.WriteFile(file+".new", []byte(text), 0o644))
	must(t, os.Rename(file+".new", file))
}

func lines(file string) []string {
	text, _ := os.ReadFile(file)
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// A role check runs in the instance's environment, and its facts are reported only when they change. Facts that no
// answer confirms are withdrawn. A restarted agent reports no facts before its first role check. Each new generation of
// the facts is passed to the heartbeats at once.
func TestFacts(t *testing.T) {
	b := newBench(t, allowRoot)
	b.stopAgent()
	v := newVotes()
	b.beats = v
	b.start()
	file, asked := filepath.Join(b.dir, "facts"), filepath.Join(b.dir, "asked")
	say(t, file, `{"leader":true,"index":1}`)
	b.alter(withRole(model.RoleCheckSpec{
		Exec: []string{"sh", "-c", `test "$OUTSPAN_SLOT" = ${slot} && cat ` + file + ` && echo x >> ` + asked},
		// The facts are withdrawn after three intervals without an answer, so the interval allows for slow answers.
		Interval: model.Second, Timeout: 10 * model.Second,
	}))
	id := b.run("db", sh("exec sleep 1000"), nil)
	want := func(what string, f facts) fsm.Instance {
		t.Helper()
		eventually(t, what, func() bool { return cmp.Equal(b.instance(id).Status.Facts, f) })
		return b.instance(id)
	}
	want("the facts", facts{"leader": "true", "index": "1"})
	b.await(id, model.ObservedReady)
	before, generation := b.instance(id).Status.Generation, b.lastFacts()
	n := len(lines(asked))
	eventually(t, "more questions", func() bool { return len(lines(asked)) > n+2 })
	if got := b.instance(id).Status.Generation; got != before {
		t.Errorf("reported again without a change: generation %d, then %d", before, got)
	}
	say(t, file, `{"leader":false,"index":1}`)
	want("the change", facts{"leader": "false", "index": "1"})
	if got := b.lastFacts(); got != generation+1 || !slices.Contains(v.told(), [2]uint64{b.nodeRow().Agent.Epoch, got}) {
		t.Errorf("generation %d after %d; heartbeats were told %v", got, generation, v.told())
	}
	say(t, file, `{"leader":maybe}`)
	want("the facts to be withdrawn", nil)
	if i := b.instance(id); !i.Ready() {
		t.Errorf("a role check is no check: %+v", i.Status)
	}
	say(t, file, `{"leader":true}`)
	want("the facts to be back", facts{"leader": "true"})
	// After a new registration the servers know no facts until the inventory arrives. Generations begin at 1 again.
	b.agent.SetLabels(map[string]string{"rack": "r1"})
	eventually(t, "another epoch", func() bool { n := b.nodeRow(); return n.Registrations == 3 && !n.Return.Recovering })
	want("the facts after it", facts{"leader": "true"})
	if n := b.nodeRow(); n.FactsGen != 1 {
		t.Errorf("generation %d of the new epoch, want 1", n.FactsGen)
	}

	b.stopAgent()
	say(t, file, "nothing")
	b.start()
	if got := v.told(); got[len(got)-1] != [2]uint64{b.nodeRow().Agent.Epoch, 1} {
		t.Errorf("heartbeats of the new epoch were told %v", got)
	}
	want("nothing to be known after a restart", nil)
	say(t, file, `{"leader":true}`)
	want("the facts after the restart", facts{"leader": "true"})
	if got := b.lastFacts(); got != 2 {
		t.Errorf("generation %d, want 2 in the new epoch", got)
	}
	// The facts of a program are withdrawn when it exits.
	say(t, file, "nothing")
	b.apply(&fsm.InstanceRestart{ID: id})
	eventually(t, "a restart", func() bool { i := b.instance(id); return i.Ready() && i.Status.Restarts == 1 })
	want("nothing to be known of the new program", nil)
}

// Facts of a program that is not ready yet are reported too. Here the role check uses HTTP.
func TestFactsWhileBooting(t *testing.T) {
	b := newBench(t, allowRoot)
	port, file := freePort(t, "127.0.0.1"), filepath.Join(b.dir, "facts")
	say(t, file, `{"in_sync":false}`)
	g := sh("exec " + os.Args[0] + " program http :${port.http} db " + file)
	g.Ports = []model.PortSpec{{Name: "http"}}
	g.Checks = []model.CheckSpec{{Name: "never", Kind: model.CheckExec, Command: []string{"false"},
		Interval: 100 * model.Millisecond, Timeout: 5 * model.Second, Grace: model.Hour}}
	b.alter(withRole(model.RoleCheckSpec{Port: "http", Path: "/facts", Interval: 100 * model.Millisecond}))
	id := b.run("db", g, model.Ports{{Name: "http", Number: port}})
	eventually(t, "the facts", func() bool { return b.instance(id).Status.Facts["in_sync"] == "false" })
	if i := b.instance(id); i.Status.Observed != model.ObservedBooting {
		t.Errorf("it is %s", i.Status.Observed)
	}
}

// If changes need several reports, only the last of these has the newest facts generation.
func TestFactsOfManyInstances(t *testing.T) {
	var sent []transport.ReportRequest
	r := newReporter("n", func(_ context.Context, q transport.ReportRequest) (transport.ReportReply, error) {
		sent = append(sent, q)
		return transport.ReportReply{}, nil
	}, testLog(t))
	first := registration{1, 7}
	r.newRegistration(first)
	r.begin(first, 0)
	flush := func() {
		for more := true; more; {
			var err error
			more, err = r.flush(t.Context(), hclog.Warn)
			must(t, err)
		}
	}
	flush()
	for i := range reportBatch + 1 {
		r.set(model.InstanceStatus{ID: model.InstanceID(fmt.Sprintf("i%05d", i)), Generation: 1,
			Observed: model.ObservedReady, Facts: facts{"leader": "true"}})
	}
	flush()
	var got []uint64
	for _, q := range sent {
		got = append(got, q.FactsGen)
	}
	if want := []uint64{1, 1, reportBatch + 2}; !slices.Equal(got, want) {
		t.Errorf("generations %d, want %d", got, want)
	}
	// After the next registration, generations begin at 1 again, and the first report has all instances.
	r.suspend()
	r.set(model.InstanceStatus{ID: "i00000", Generation: 2, Observed: model.ObservedReady})
	second := registration{2, 7} // the same epoch again: a restored state may lack the first registration
	r.newRegistration(second)
	r.begin(second, 0)
	flush()
	if last := sent[len(sent)-1]; !last.Full || last.FactsGen != 1 || len(last.Instances) != reportBatch+1 {
		t.Errorf("full %v, generation %d, %d instances", last.Full, last.FactsGen, len(last.Instances))
	}
}

// No report exceeds half of transport.DefaultMaxBody, however many facts the instances have. In the end the servers
// have all facts.
func TestReportsHaveABound(t *testing.T) {
	told := map[model.InstanceID]model.InstanceStatus{}
	full, largest := 0, 0
	r := newReporter("n", func(_ context.Context, q transport.ReportRequest) (transport.ReportReply, error) {
		raw, err := transport.EncodeCBOR(q)
		must(t, err)
		largest = max(largest, len(raw))
		if q.Full {
			full = len(q.Instances)
			clear(told) // at a registration the servers drop the facts
		}
		for _, s := range q.Instances {
			told[s.ID] = s
		}
		return transport.ReportReply{}, nil
	}, testLog(t))
	const count = 1500
	said := facts{}
	for i := range maxFacts {
		said[fmt.Sprintf("fact_%02d", i)] = strings.Repeat("x", 60)
	}
	for epoch := range uint64(2) {
		now := registration{epoch + 1, 7}
		r.suspend()
		r.newRegistration(now)
		for i := range count {
			r.set(model.InstanceStatus{ID: model.InstanceID(fmt.Sprintf("i%05d", i)), Generation: 1,
				Observed: model.ObservedReady, Facts: said})
		}
		r.begin(now, 0)
		for more := true; more; {
			var err error
			more, err = r.flush(t.Context(), hclog.Warn)
			must(t, err)
		}
		withFacts := 0
		for _, s := range told {
			if len(s.Facts) == maxFacts {
				withFacts++
			}
		}
		if full != count || withFacts != count {
			t.Errorf("registration %d: the inventory has %d instances of %d, the servers know the facts of %d",
				epoch, full, count, withFacts)
		}
	}
	if most := transport.DefaultMaxBody / 2; largest > most {
		t.Errorf("the largest report has %d bytes, want at most %d", largest, most)
	}
}
