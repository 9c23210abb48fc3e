package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// settle is the quiet phase after the faults of a window. It pauses the workload, and records a violation if a
// condition does not become true within its limit.
func (x *chaos) settle(w *window) {
	x.t.Helper()
	began := time.Now()
	x.wait("L1: a leader", 10*chaosElection+5*time.Second, func() error { return x.haveLeader() })
	x.wait("L1: three servers that vote and have caught up", chaosPatience, func() error {
		for _, s := range w.strikes { // a server may exit only now because of a strike
			s.revive()
		}
		x.lookForDead(w)
		return x.c.voters(chaosServers)
	})
	x.judgeHistory(w)
	x.readmitExpired(w)
	x.work.gate.Lock()
	defer x.work.gate.Unlock()
	x.wait("L2: all nodes online, without a hold", chaosPatience, func() error {
		return errors.Join(x.nodesOnline(), x.noHold())
	})
	x.wait("L2: the end of all drains", 30*time.Second+chaosPatience, func() error { return x.noDrain() })
	for _, m := range x.c.agents {
		x.person(http.MethodPost, "/v1/nodes/"+m.Name+"/uncordon", "{}")
	}
	x.renewHeldBack(w)
	x.wait("L2: all that is wanted, ready, and nothing else", chaosPatience, func() error { return x.asWanted() })
	x.judgeAdopted(w)
	x.wait("L2: nothing left behind in the kernel", 30*time.Second, func() error { return x.kernel.leaks() })
	x.wait("L2: each instance as its agent says", 30*time.Second, x.asAgentsSay)
	x.wait("L2: certificates renewed in time", chaosPatience, x.renewed)
	x.judgeThieves("in a quiet phase")
	x.wait("L3: three seconds without a write", chaosPatience, x.unwritten())
	x.wait("S5: the same state on all servers", 30*time.Second, func() error { return x.sameState() })
	if err := x.story.catchUp(x.c.leader(x.t)); err != nil {
		x.book.violate("S4: the history can't be read: %v", err)
	}
	x.work.checkLedger()
	x.work.checkMarks()
	for _, job := range []string{"solo", "base"} {
		for slot := range chaosCounts[job] {
			x.kernel.judgeWitness(fmt.Sprintf("%s.%d", job, slot))
		}
	}
	x.wait("L2: the service at every agent", 30*time.Second, func() error { return x.served() })
	took := time.Since(began)
	x.book.say("%d: settled in %s", w.number, took.Round(100*time.Millisecond))
	x.book.longest("quiet phase", took)
	x.book.count("windows", 1)
}

// judgeHistory checks that the history of the window's clients is linearizable. Then it removes the labels that the
// clients wrote.
func (x *chaos) judgeHistory(w *window) {
	if w.history == nil || !x.book.clean() {
		return
	}
	r := w.history
	x.book.count("histories checked", 1)
	x.book.count("operations in histories", r.judge(x.t).Operations)
	if x.t.Failed() {
		x.book.violate("LIN: the history of window %d (%s) can't be explained", w.number, w.name)
	}
	for _, node := range r.load.Nodes {
		x.person(http.MethodPost, "/v1/nodes/"+node+"/label",
			fmt.Sprintf(`{"labels":{"%[1]s0":"","%[1]s1":""}}`, r.load.Name))
	}
}

// wait waits for a condition, and records a violation if it does not become true in time.
func (x *chaos) wait(what string, limit time.Duration, done func() error) {
	x.t.Helper()
	if !x.book.clean() {
		return // an earlier violation may be the cause
	}
	var missing error
	began := time.Now()
	for deadline := began.Add(limit); ; time.Sleep(100 * time.Millisecond) {
		err := done()
		if err == nil {
			x.book.longest("wait for "+what, time.Since(began))
			if took := time.Since(began); took > 10*time.Second {
				x.book.say("%s took %s; the last that was missing: %.600v", what, took.Round(100*time.Millisecond), missing)
			}
			return
		}
		if time.Now().After(deadline) {
			x.book.violate("%s did not come about within %s: %v", what, limit, err)
			return
		}
		missing = err
	}
}

func (x *chaos) haveLeader() error {
	for _, s := range x.c.servers {
		if a, err := s.ask(http.MethodGet, "/readyz?leader=1", "", 2*time.Second); err == nil && a.status == http.StatusOK {
			return nil
		}
	}
	return errors.New("no server leads")
}

// voters returns nil if there are exactly count servers, and all of them vote, run and have caught up.
func (c *cluster) voters(count int) error {
	var l struct{ Items []memberView }
	if err := c.get("/v1/members", &l); err != nil {
		return err
	}
	good := 0
	for _, m := range l.Items {
		good += one(m.Voter && m.State == "alive" && m.IndexLag < 50)
	}
	if good != count || len(l.Items) != count {
		return fmt.Errorf("%+v", l.Items)
	}
	return nil
}

func (c *cluster) waitVotersWithin(t testing.TB, count int, limit time.Duration) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d voters, all alive and up to date", count), limit, func() error { return c.voters(count) })
}

func (x *chaos) noHold() error {
	var s statusView
	if err := x.get("/v1/status", &s); err != nil {
		return err
	}
	if s.Hold.Active {
		return fmt.Errorf("hold: %s", s.Hold.Reason)
	}
	return nil
}

func (x *chaos) noDrain() error {
	var l struct{ Items []drainView }
	if err := x.get("/v1/drains", &l); err != nil {
		return err
	}
	for _, d := range l.Items {
		if d.Phase == "draining" {
			return fmt.Errorf("%+v", d)
		}
		for _, n := range d.Nodes {
			if n.Phase == "failed" && n.LastError == "" {
				x.book.violate("L2: drain %s failed without a reason: %+v", d.ID, d)
			}
		}
	}
	return nil
}

// renewHeldBack replaces the machine of a held-back node if fewer than three nodes take new instances. A node is held
// back from new instances for a while when it was offline too often. The replacement is another strike of the window.
func (x *chaos) renewHeldBack(w *window) {
	var l struct{ Items []nodeView }
	if err := x.get("/v1/nodes", &l); err != nil {
		return
	}
	held := slices.DeleteFunc(l.Items, func(n nodeView) bool { return !strings.Contains(n.Reason, "held back") })
	if len(l.Items)-len(held) >= 3 {
		return
	}
	for _, n := range held {
		if m := x.c.member(n.Name); slices.Index(x.c.agents, m) > 1 {
			s := &strike{x: x, w: w, fault: fault{name: "renew"}}
			x.story.mu.Lock()
			w.strikes = append(w.strikes, s)
			x.story.mu.Unlock()
			x.book.say("%s is held back and replaced", n.Name)
			s.renew(m)
			return
		}
	}
}

// asWanted returns nil if users' wishes, the servers' reports and the kernel's process table agree about all instances.
func (x *chaos) asWanted() error {
	var l struct{ Items []instanceView }
	if err := x.get("/v1/instances", &l); err != nil {
		return err
	}
	want, have, known := x.work.wanted(), map[string]int{}, map[string]bool{}
	for _, i := range l.Items {
		if i.Desired != "running" || !i.Ready {
			return fmt.Errorf("%+v", i)
		}
		have[i.Job]++
		known[i.ID] = true
	}
	if !reflect.DeepEqual(want, have) {
		return fmt.Errorf("wanted %v, ready %v", want, have)
	}
	running := x.kernel.onNode("")
	for _, a := range running {
		if !known[a.id] {
			return fmt.Errorf("the kernel shows %s of %s on %s, which is not wanted", a.id, a.job, a.node)
		}
	}
	if len(running) != len(known) {
		return fmt.Errorf("the kernel shows %d instances, %d are ready", len(running), len(known))
	}
	return nil
}

// asAgentsSay returns nil if each instance has the same state at the servers as at its agent.
func (x *chaos) asAgentsSay() error {
	var l struct{ Items []instanceView }
	if err := x.get("/v1/instances", &l); err != nil {
		return err
	}
	told := map[string]string{}
	for _, i := range l.Items {
		told[i.ID] = i.Node + " " + i.Observed
	}
	for _, m := range x.c.agents {
		var status struct {
			Instances []struct {
				ID, Observed string
				Reported     bool
			}
		}
		a, err := m.ask(http.MethodGet, "/v1/agent/status", "", 4*time.Second)
		if err == nil {
			err = json.Unmarshal(a.body, &status)
		}
		if err != nil {
			return fmt.Errorf("the agent of %s: %w", m.Name, err)
		}
		for _, i := range status.Instances {
			word, ended := m.Name+" "+i.Observed, i.Observed == "stopped" || i.Observed == "failed"
			if told[i.ID] != word && (told[i.ID] != "" || !ended) || !i.Reported {
				return fmt.Errorf("instance %s is %q, its agent says %q (reported: %t)", i.ID, told[i.ID], word, i.Reported)
			}
			delete(told, i.ID)
		}
	}
	if len(told) > 0 {
		return fmt.Errorf("no agent knows of %v", told)
	}
	return nil
}

// unwritten returns a function that returns nil once the cluster's index has not changed for three seconds.
func (x *chaos) unwritten() func() error {
	var last uint64
	var since time.Time
	return func() error {
		var s statusView
		if err := x.get("/v1/status", &s); err != nil {
			return err
		}
		if s.Index != last {
			last, since = s.Index, time.Now()
		}
		if quiet := time.Since(since); quiet < 3*time.Second {
			return fmt.Errorf("index %d since %s", last, quiet)
		}
		return nil
	}
}

// ages matches values that are not part of the replicated state. Each server computes them for its answer, from its own
// clock or from the heartbeats that it hears. The value "until" is a wall time, computed from the server's cluster
// time. A server that ran while the others were down is ahead of them in cluster time until it leads.
var ages = regexp.MustCompile(`"(last_seen|seen_by|next_allowed|until)":("[^"]*"|null),?|is held back for [0-9a-z.]+`)

// sameState returns an error unless all running servers show the same replicated state from their own copies, and
// "server verify" agrees.
func (x *chaos) sameState() error {
	for _, path := range []string{"/v1/nodes", "/v1/jobs", "/v1/instances?all=true", "/v1/drains", "/v1/budgets",
		"/v1/deployments", "/v1/volumes", "/v1/settings", "/v1/trust/members"} {
		var first, from string
		for _, s := range x.c.servers {
			if !s.Running() {
				continue
			}
			sep := "?"
			if strings.Contains(path, "?") {
				sep = "&"
			}
			a, err := s.ask(http.MethodGet, path+sep+"consistency=stale", "", 5*time.Second)
			if err != nil {
				return err
			}
			if a.status != http.StatusOK {
				return fmt.Errorf("%s of %s: %d %s", path, s.Name, a.status, a.body)
			}
			text := ages.ReplaceAllString(string(a.body), "")
			if first == "" {
				first, from = text, s.Name
			} else if text != first {
				return fmt.Errorf("%s differs:\n%s %s\n%s %s", path, from, first, s.Name, text)
			}
		}
	}
	if r := x.c.cli(x.t, "server", "verify", "--timeout", "10s"); r.code != 0 {
		return fmt.Errorf("%v", r)
	}
	return nil
}

// served returns an error unless each exposed service answers three requests through every agent.
func (x *chaos) served() error {
	for _, m := range x.c.agents {
		for n, ports := 0, x.ports(); n < 3*len(ports); n++ {
			port := strconv.Itoa(ports[n%len(ports)])
			if err := fetch(x.probe.client, "http://"+net.JoinHostPort(m.address, port)+"/"); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMarks checks S4: each label has its last acknowledged value. The caller must have locked the workload's gate, so
// that no worker writes.
func (w *workload) checkMarks() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for label, m := range w.marks {
		var n nodeView
		if err := within(chaosPatience, func() error {
			return w.x.get("/v1/nodes/"+m.node+"?consistency=consistent", &n)
		}); err != nil {
			w.x.book.violate("S4: no consistent read: %v", err)
			return
		}
		if n.Labels[label] != m.acked {
			w.x.book.violate("S4: label %s of %s is %q; %q was acknowledged last", label, m.node, n.Labels[label], m.acked)
		}
	}
}
