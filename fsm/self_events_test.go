package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
)

// An agent's reports on its machine make a limited number of events per hour, so that they don't push out other events.
// Further events are only counted, and the next emitted event contains their number.
func TestSelfReportsMakeFewEvents(t *testing.T) {
	s := run(t, oneNode(t, model.DefaultSettings()), 1000, &JobSubmit{Spec: webSpec()})
	s = run(t, s, 1000, placed("i1", "web/api", 0, "n1", 20000))
	s = run(t, s, 1000, observed("n1", "i1", model.ObservedReady))
	first := s.Events.Len()
	gen := uint64(1)
	report := func(at model.Time) {
		t.Helper()
		gen++
		said := &model.SelfReport{Gen: gen, Measured: true}
		if gen%2 == 0 {
			said.Ports = []model.PortProblem{{Port: 80, Code: model.PortTaken}}
			said.Troubles = []model.Trouble{{Check: model.SelfDiskFull}}
			said.Disk = []model.DiskUse{{ID: "i1", UsedBytes: 2, LimitBytes: 1}}
		}
		s = run(t, s, at, &NodeReport{ID: "n1", Self: said})
	}
	const reports = 1000
	for i := range reports {
		report(2000 + model.Time(i))
	}
	told := s.Events.Len() - first
	if told < selfEvents || told > selfEvents+4 {
		t.Errorf("%d reports made %d events", reports, told)
	}
	n, _ := s.Nodes.Get("n1")
	if made := 4 * reports; n.Self.Events.Emitted != told || n.Self.Events.LeftOut != made-told {
		t.Errorf("%d of %d events are told: %+v", told, made, n.Self.Events)
	}

	s = run(t, s, 5000, &NodeRegister{ID: "n1", Name: n.Name, Shape: n.Shape, Agent: n.Agent})
	before := s.Events.Len()
	report(5000)
	if s.Events.Len() != before {
		t.Error("a new registration has events told again")
	}
	n, _ = s.Nodes.Get("n1")
	report(n.Self.Events.Since.Add(selfWindow))
	var words []string
	for _, e := range s.Events.All() {
		if e.Data["untold"] != "" {
			words = append(words, fmt.Sprintf("%s at %d: %s", e.Type, e.At, e.Data["untold"]))
		}
	}
	want := fmt.Sprintf("instance.disk_changed at %d: %d", s.Now, n.Self.Events.LeftOut)
	if got := strings.Join(words, ", "); got != want {
		t.Errorf("untold: %.200q, want %q", got, want)
	}
	if n, _ = s.Nodes.Get("n1"); n.Self.Events.LeftOut != 0 || n.Self.Events.Emitted != 4 {
		t.Errorf("in the next hour: %+v", n.Self.Events)
	}
	if err := Check(s); err != nil {
		t.Error(err)
	}
}

// Trim limits the size of an agent's report on its own machine, and does not change the effect of the report.
func TestTrimBoundsSelfReports(t *testing.T) {
	long := strings.Repeat("x", 1<<10)
	for _, measured := range []bool{true, false} {
		s := oneNode(t, model.DefaultSettings())
		s = run(t, s, 1500, &NodeReport{ID: "n1", Self: &model.SelfReport{
			Gen: 2, Measured: true, Disk: []model.DiskUse{{ID: "i1", UsedBytes: 2, LimitBytes: 1}},
		}})
		n, _ := s.Nodes.Get("n1")
		c := &NodeReport{ID: "n1", Epoch: n.Agent.Epoch, Self: &model.SelfReport{Gen: 3, Measured: measured}}
		for i := range 5000 {
			c.Self.Troubles = append(c.Self.Troubles, model.Trouble{Check: model.SelfDiskFull, Reason: long},
				model.Trouble{Check: "odd"})
			c.Self.Disk = append(c.Self.Disk,
				model.DiskUse{ID: model.InstanceID(fmt.Sprint("x", i)), UsedBytes: 2, LimitBytes: 1, Dir: long})
		}
		short := *c
		short.Trim(&s)
		size, refusal := GroupSize([]Command{&short})
		if refusal != nil || size > 32<<10 {
			t.Errorf("measured %v: %d bytes are left: %v", measured, size, refusal)
		}
		if len(c.Self.Troubles) != 10000 || len(c.Self.Disk) != 5000 {
			t.Error("the report that was trimmed has changed")
		}
		var got, want bytes.Buffer
		if err := WriteSnapshot(&got, run(t, s, 2000, &short)); err != nil {
			t.Fatal(err)
		}
		if err := WriteSnapshot(&want, run(t, s, 2000, c)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("measured %v: a trimmed report says something else", measured)
		}
	}
}

// If a node reached the limit of events per hour, its last emitted events may show an outdated state. Therefore the
// first entry after the hour, whatever the entry contains, emits events with the present state.
func TestPresentStateIsToldAfterTheHour(t *testing.T) {
	s := oneNode(t, model.DefaultSettings())
	gen := uint64(1)
	report := func(at model.Time, bad bool) {
		t.Helper()
		gen++
		said := &model.SelfReport{Gen: gen, Measured: true}
		if bad {
			said.Ports = []model.PortProblem{{Port: 80, Code: model.PortTaken, Reason: "it is taken"}}
			said.Troubles = []model.Trouble{{Check: model.SelfDiskFull, Reason: "no room"}}
		}
		s = run(t, s, at, &NodeReport{ID: "n1", Self: said})
	}
	// told returns the value After of n1's last event of each type.
	told := func() map[model.EventType]string {
		last := map[model.EventType]string{}
		for _, e := range s.Events.All() {
			if e.Subject == "node/n1" && e.Type != model.EventNodeRegistered {
				last[e.Type] = e.After
			}
		}
		return last
	}
	differs := func() bool {
		n, _ := s.Nodes.Get("n1")
		last := told()
		return last[model.EventNodeState] != string(n.State()) || last[model.EventNodeChecks] != n.Self.checks() ||
			last[model.EventNodePort] != portCodes(n.Self.Ports)
	}
	// mute reports so many changes in the next hour that the last emitted events are outdated. It returns the end of that
	// hour.
	mute := func() model.Time {
		t.Helper()
		n, _ := s.Nodes.Get("n1")
		begin, bad := s.Now.Add(selfWindow), n.Troubled()
		for i := range 200 {
			bad = !bad
			report(begin.Add(model.Duration(i)), bad)
		}
		if !differs() {
			t.Fatal("the last event says what is so: nothing is left out")
		}
		return begin.Add(selfWindow)
	}

	report(2000, true)
	hour := mute()
	before := s.Events.Len()
	s = run(t, s, hour-1, &HoldSet{Active: true, Reason: "another entry"})
	if n := s.Events.Len() - before; n != 1 {
		t.Errorf("%d events within the hour, want only that of the hold", n)
	}
	n, _ := s.Nodes.Get("n1")
	untold := n.Self.Events.LeftOut
	s = run(t, s, hour, &HoldSet{Reason: "another entry"})
	if differs() {
		t.Errorf("after the hour the events say last: %v", told())
	}
	var words []string
	for _, e := range s.Events.All() {
		if e.Key.Index() == s.Index && e.Type != model.EventHold {
			words = append(words, fmt.Sprintf("%s %s %s>%s untold=%s closed=%s reason=%s", e.Actor, e.Type, e.Before, e.After,
				e.Data["untold"], e.Data["closed"], e.Data["reason"]))
		}
	}
	want := []string{
		fmt.Sprintf("agent:%s node.state_changed active>degraded untold=%d closed= reason=no room", n.Name, untold),
		fmt.Sprintf("agent:%s node.checks_changed ok>disk_full untold= closed= reason=no room", n.Name),
		fmt.Sprintf("agent:%s node.port_changed ok>port_taken untold= closed=80 reason=it is taken", n.Name),
	}
	if diff := cmp.Diff(want, words); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	before = s.Events.Len()
	s = run(t, s, hour+1, &HoldSet{Active: true, Reason: "another entry"})
	if n := s.Events.Len() - before; n != 1 {
		t.Errorf("%d events at the next entry, want only that of the hold", n)
	}
	if n, _ := s.Nodes.Get("n1"); n.Self.Events.LeftOut != 0 || n.Self.Events.Emitted != 3 || n.Self.Events.Last != nil {
		t.Errorf("after the hour: %+v", n.Self.Events)
	}

	// If the first entry after the hour is a report of n1 itself, the entry emits the present state too.
	hour = mute()
	n, _ = s.Nodes.Get("n1")
	gen++
	s = run(t, s, hour, &NodeReport{ID: "n1", Self: &model.SelfReport{Gen: gen, Measured: true, Ports: n.Self.Ports}})
	if differs() {
		t.Errorf("with the next event the events say last: %v", told())
	}

	// The event of the cordon shows the present state, so the state need not be emitted again after the hour.
	report(s.Now, false)
	hour = mute()
	n, _ = s.Nodes.Get("n1")
	s = run(t, s, s.Now, &NodeIntent{ID: "n1", Intent: model.IntentCordoned})
	if last := n.Self.Events.Last; last == nil || last.State == "" {
		t.Fatalf("no state was left out: %+v", last)
	}
	if n, _ = s.Nodes.Get("n1"); n.Self.Events.Last != nil && n.Self.Events.Last.State != "" {
		t.Errorf("after a state that is told: %+v", n.Self.Events.Last)
	}
	s = run(t, s, hour, &HoldSet{Reason: "another entry"})
	if differs() {
		t.Errorf("after a cordon the events say last: %v", told())
	}

	// If the node is forgotten, no event follows after the hour.
	s = run(t, s, s.Now, &NodeIntent{ID: "n1", Intent: model.IntentActive})
	hour = mute()
	s = run(t, s, s.Now, offline(s, "n1"), &NodeForget{ID: "n1"})
	before = s.Events.Len()
	s = run(t, s, hour, &HoldSet{Active: true, Reason: "another entry"})
	if n := s.Events.Len() - before; n != 1 {
		t.Errorf("%d events after it was forgotten, want only that of the hold", n)
	}
}

// If the last emitted event shows other closed ports than the present ones, an event after the hour shows the present
// ports, even if their code is the same.
func TestPresentPortsAreToldAfterTheHour(t *testing.T) {
	s := oneNode(t, model.DefaultSettings())
	gen := uint64(1)
	report := func(at model.Time, ports ...int) {
		t.Helper()
		gen++
		said := &model.SelfReport{Gen: gen, Measured: true}
		for _, port := range ports {
			said.Ports = append(said.Ports, model.PortProblem{Port: port, Code: model.PortTaken})
		}
		s = run(t, s, at, &NodeReport{ID: "n1", Self: said})
	}
	for range selfEvents / 2 {
		report(2000, 80)
		report(2000)
	}
	report(2000, 81)
	n, _ := s.Nodes.Get("n1")
	if n.Self.Events.Last == nil {
		t.Fatalf("nothing is left out: %+v", n.Self.Events)
	}
	last := func() string {
		_, e, _ := s.Events.Max()
		return fmt.Sprintf("%s %s>%s closed=%s", e.Type, e.Before, e.After, e.Data["closed"])
	}
	hour := n.Self.Events.Since.Add(selfWindow)
	s = run(t, s, hour, &HoldSet{Active: true})
	if got, want := last(), "node.port_changed ok>port_taken closed=81"; got != want {
		t.Fatalf("after the first hour the last event says %q, want %q", got, want)
	}

	for range selfEvents / 2 {
		report(hour, 80)
		report(hour)
	}
	report(hour, 82)
	n, _ = s.Nodes.Get("n1")
	if n.Self.Events.Last == nil || n.Self.Events.Last.Ports != "port_taken" {
		t.Fatalf("the last event does not say that a port is closed: %+v", n.Self.Events)
	}
	s = run(t, s, n.Self.Events.Since.Add(selfWindow), &HoldSet{})
	if got, want := last(), "node.port_changed port_taken>port_taken closed=82"; got != want {
		t.Errorf("after the second hour the last event says %q, want %q", got, want)
	}

	// The last emitted event says that all ports are open, and they are open again after the hour.
	report(s.Now)
	third := s.Now.Add(selfWindow)
	for range selfEvents/2 + 1 {
		report(third, 80)
		report(third)
	}
	n, _ = s.Nodes.Get("n1")
	if n.Self.Events.Last == nil || n.Self.Events.Last.Ports != "ok" {
		t.Fatalf("the last event does not say that all ports are open: %+v", n.Self.Events)
	}
	s = run(t, s, n.Self.Events.Since.Add(selfWindow), &HoldSet{Active: true})
	if got, want := last(), "hold.changed false>true closed="; got != want {
		t.Errorf("after the third hour the last event says %q, want %q", got, want)
	}
}
