package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// However often an agent says something else of its own machine, the events of others are kept. Those that are left out
// are counted, and the next one that is told says how many they were.
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
	if made := 4 * reports; n.Self.Events.Told != told || n.Self.Events.Untold != made-told {
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
	want := fmt.Sprintf("instance.disk_changed at %d: %d", s.Now, n.Self.Events.Untold)
	if got := strings.Join(words, ", "); got != want {
		t.Errorf("untold: %.200q, want %q", got, want)
	}
	if n, _ = s.Nodes.Get("n1"); n.Self.Events.Untold != 0 || n.Self.Events.Told != 4 {
		t.Errorf("in the next hour: %+v", n.Self.Events)
	}
	if err := Check(s); err != nil {
		t.Error(err)
	}
}

// What is trimmed off an agent's word on its own machine has a bound and changes nothing.
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
			c.Self.Troubles = append(c.Self.Troubles, model.Trouble{Check: model.SelfDiskFull, Reason: long}, model.Trouble{Check: "odd"})
			c.Self.Disk = append(c.Self.Disk, model.DiskUse{ID: model.InstanceID(fmt.Sprint("x", i)), UsedBytes: 2, LimitBytes: 1, Dir: long})
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
