package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
)

// A trimmed report leads to the same state as the whole report without its repetitions.
func TestTrimmedReportSaysTheSame(t *testing.T) {
	trimmed, repeated := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		h := newRandomLog(t)
		for _, seed := range seeds(40).Draw(t, "steps") {
			h.step(seed, map[string]int{})
			w := newWorld(seed, &h.first, &h.seq)
			c, ok := w.nodeReport().(*NodeReport)
			if !ok {
				continue
			}
			if c.Full && w.bool() {
				c.Incarnation = h.first.Incarnation
				for _, id := range []model.InstanceID{"x2", "x1", w.instance().ID, "x1"} {
					c.Holds = append(c.Holds, model.Holding{ID: id, Group: w.instance().Group, Spec: "s"})
				}
			}
			w.repeat(c)
			c.Instances = append(c.Instances,
				model.InstanceStatus{ID: "x1", Generation: 7, Observed: pick(w, model.ObservedReady, model.ObservedStopped)})
			c.Holds = slices.DeleteFunc(c.Holds, func(held model.Holding) bool { // an agent does not hold what has ended
				return held.ID != "x1" && slices.ContainsFunc(c.Instances, func(status model.InstanceStatus) bool {
					return status.ID == held.ID &&
						(status.Observed == model.ObservedStopped || status.Observed == model.ObservedFailed)
				})
			})
			short := *c
			short.Trim(&h.first)
			trimmed += len(c.Instances) + len(c.Transfers) + len(c.Holds) - len(short.Instances) -
				len(short.Transfers) - len(short.Holds)
			// plain has no repetitions: only the newest status of each instance and the last report of each transfer.
			plain := *c
			plain.Instances, plain.Transfers = onlyNewest(c.Instances), onlyLast(c.Transfers)
			repeated += len(c.Instances) + len(c.Transfers) - len(plain.Instances) - len(plain.Transfers)
			if got, want := afterReport(t, h.first, &short), afterReport(t, h.first, &plain); !bytes.Equal(got, want) {
				t.Fatalf("at index %d another state comes of\n%+v than of\n%+v", h.first.Index, short, *c)
			}
		}
	})
	if trimmed == 0 || repeated == 0 {
		t.Errorf("%d items were trimmed, and %d were said twice", trimmed, repeated)
	}
}

// The log gets no more of a container runtime than the state keeps, and the state is the same.
func TestTrimKeepsWhatTheStateKeepsOfARuntime(t *testing.T) {
	s := aloneState(t)
	n, _ := s.Nodes.Get("n1")
	runtime := &model.ContainerRuntime{Version: strings.Repeat("2", 999), Down: strings.Repeat("x", 999), Pulls: true,
		Images: []model.NodeImage{{Digest: "odd", State: model.ImagePresent}, {Digest: digestOf(2), State: "odd"}}}
	for i := range 4 * model.MaxImages {
		runtime.Images = append(runtime.Images, model.NodeImage{Digest: fmt.Sprintf("sha256:%064d", (999-i)/2),
			State: model.ImageFailed, Bytes: int64(i) - 9, Total: -1, Words: strings.Repeat("w", 999)})
	}
	c := &NodeReport{ID: "n1", Epoch: n.Agent.Epoch, Self: &model.SelfReport{Gen: n.Self.Gen + 1, Runtime: runtime}}
	short := *c
	short.Trim(&s)
	got := short.Self.Runtime
	if len(got.Images) != model.MaxImages || len(got.Version) != maxRuntimeVersion || len(got.Down) != maxAgentText {
		t.Errorf("the log gets %d images, and %d and %d bytes", len(got.Images), len(got.Version), len(got.Down))
	}
	for _, image := range got.Images {
		if len(image.Words) > maxAgentText || image.Bytes < 0 || image.Total < 0 {
			t.Errorf("the log gets %+v", image)
		}
	}
	if len(runtime.Images) != 2+4*model.MaxImages || !bytes.Equal(afterReport(t, s, &short), afterReport(t, s, c)) {
		t.Error("a trimmed report leads to another state, or the report itself was changed")
	}
}

// Of two statuses of an unknown instance the newer one counts, also if only the older one says that it has stopped.
func TestTrimKeepsTheNewestOfUnknown(t *testing.T) {
	s := run(t, aloneState(t), 2000, &RestoreMark{})
	s = inventory(t, s, "n1", nil, model.Holding{ID: "x1", Group: aloneGroup})
	for _, list := range [][]model.InstanceStatus{
		{{ID: "x1", Generation: 8, Observed: model.ObservedReady},
			{ID: "x1", Generation: 7, Observed: model.ObservedStopped}},
		{{ID: "x1", Generation: 7, Observed: model.ObservedStopped},
			{ID: "x1", Generation: 8, Observed: model.ObservedReady}},
		{{ID: "x1", Generation: 7, Observed: model.ObservedReady},
			{ID: "x1", Generation: 7, Observed: model.ObservedStopped}},
	} {
		n, _ := s.Nodes.Get("n1")
		c := &NodeReport{ID: "n1", Epoch: n.Agent.Epoch, Instances: list}
		short, plain := *c, *c
		short.Trim(&s)
		plain.Instances = onlyNewest(list)
		if !bytes.Equal(afterReport(t, s, &short), afterReport(t, s, &plain)) {
			t.Errorf("%+v is trimmed to %+v", list, short.Instances)
		}
	}
}

// repeat adds repetitions to c at random positions: older, newer and different statuses of the instances in c, and
// further reports on the transfers in c.
func (w world) repeat(c *NodeReport) {
	for _, status := range c.Instances {
		for w.rarely(3) {
			status.Generation += uint64(w.int(0, 4)) - 2
			status.Observed = pick(w, model.ObservedReady, model.ObservedUnready, model.ObservedStopped, model.ObservedFailed)
			at := w.int(0, len(c.Instances))
			c.Instances = slices.Insert(slices.Clone(c.Instances), at, status)
		}
	}
	for _, r := range c.Transfers {
		for w.rarely(3) {
			r.Message = pick(w, "", "again")
			c.Transfers = slices.Insert(slices.Clone(c.Transfers), w.int(0, len(c.Transfers)), r)
		}
	}
}

// onlyNewest keeps one status of each instance: the first with the highest generation, at the position of the
// instance's first status.
func onlyNewest(list []model.InstanceStatus) (left []model.InstanceStatus) {
	for i, status := range list {
		same := func(o model.InstanceStatus) bool { return o.ID == status.ID }
		if slices.ContainsFunc(list[:i], same) {
			continue
		}
		for _, o := range list[i:] {
			if same(o) && o.Generation > status.Generation {
				status = o
			}
		}
		left = append(left, status)
	}
	return left
}

// onlyLast keeps the last report on each transfer, at the position of the transfer's first report.
func onlyLast(list []model.TransferReport) (left []model.TransferReport) {
	for i, r := range list {
		same := func(o model.TransferReport) bool { return o.ID == r.ID }
		if slices.ContainsFunc(list[:i], same) {
			continue
		}
		for _, o := range list[i:] {
			if same(o) {
				r = o
			}
		}
		left = append(left, r)
	}
	return left
}

// afterReport returns a snapshot of the state after a report, or the text of the refusal.
func afterReport(t interface{ Fatal(...any) }, s State, c *NodeReport) []byte {
	draft := s.NewDraft(s.Now)
	if refusal := draft.Try(c); refusal != nil {
		return []byte(refusal.Error())
	}
	var out bytes.Buffer
	if err := WriteSnapshot(&out, *draft.State()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Trim removes statuses and transfers that do not concern the node, repetitions, and unknown instances above a limit.
// It shortens long texts and removes long facts.
func TestTrimBoundsAReport(t *testing.T) {
	s := run(t, aloneState(t), 2000, &RestoreMark{})
	s = inventory(t, s, "n1", []model.InstanceStatus{{ID: "i1", Generation: 5, Observed: model.ObservedReady}},
		model.Holding{ID: "lost", Group: aloneGroup})
	long := strings.Repeat("x", 1<<16)
	c := &NodeReport{ID: "n1", Full: true, Incarnation: s.Incarnation,
		Transfers: []model.TransferReport{{ID: "t", Message: long}}}
	for i := range 3000 {
		id := model.InstanceID(fmt.Sprint("x", i))
		c.Instances = append(c.Instances,
			model.InstanceStatus{ID: id, Generation: 1, Observed: model.ObservedStopped, Reason: long[:200]},
			model.InstanceStatus{ID: "i1", Generation: 6 + uint64(i), Observed: model.ObservedReady, Reason: long[:300],
				Facts: map[string]string{"fact.a": long[:100], "fact.b": "1"}, Hook: &model.HookResult{Message: long}},
		)
		c.Holds = append(c.Holds, model.Holding{ID: id, Group: aloneGroup, Ports: model.Ports{{Name: long[:200], Number: 1}}})
	}
	c.Instances = append(c.Instances, model.InstanceStatus{ID: "lost", Generation: 9, Observed: model.ObservedStopped})
	if !c.NamesUnknown(&s) {
		t.Error("nothing in it is said to be unknown")
	}
	c.Trim(&s)
	if len(c.Instances) != 2 || c.Instances[0].Generation != 3005 || c.Instances[1].ID != "lost" || len(c.Transfers) != 0 {
		t.Errorf("%d instances and %d transfers are left: %.300v", len(c.Instances), len(c.Transfers), c.Instances)
	}
	if got := c.Instances[0]; len(got.Reason) != maxAgentText || len(got.Facts) != 1 ||
		len(got.Hook.Message) != maxHookMessage {
		t.Errorf("of i1 a reason of %d bytes, the facts %v and a message of %d bytes are left", len(got.Reason), got.Facts,
			len(got.Hook.Message))
	}
	if len(c.Holds) != maxHoldings+1 || c.Holds[0].Ports != nil {
		t.Errorf("%d holdings are left, the first has the ports %.100v", len(c.Holds), c.Holds[0].Ports)
	}
	if size, refusal := GroupSize([]Command{c}); refusal != nil || size > 64<<10 {
		t.Errorf("the log is to keep %d bytes, %v", size, refusal)
	}
	if refusal := (&NodeReport{Instances: make([]model.InstanceStatus, MaxReportItems+1)}).CheckSize(); refusal == nil ||
		refusal.Code != model.CodeTooLarge {
		t.Errorf("a report of %d instances: %v", MaxReportItems+1, refusal)
	}
}

// A report names something unknown if it has an instance or a transfer that is not of its node, or holdings of another
// incarnation.
func TestReportNamesUnknown(t *testing.T) {
	s := run(t, aloneState(t), 2000, &RestoreMark{})
	old, now := s.Incarnation-1, s.Incarnation
	holds := []model.Holding{{ID: "x", Group: aloneGroup}}
	of := func(id model.InstanceID) []model.InstanceStatus { return []model.InstanceStatus{{ID: id}} }
	for _, c := range []struct {
		name   string
		report NodeReport
		want   bool
	}{
		{"its instance", NodeReport{ID: "n1", Incarnation: now, Instances: of("i1")}, false},
		{"an instance of another node", NodeReport{ID: "n2", Incarnation: now, Instances: of("i1")}, true},
		{"no such instance", NodeReport{ID: "n1", Incarnation: now, Instances: of("x")}, true},
		{"no such transfer", NodeReport{ID: "n1", Incarnation: now, Transfers: []model.TransferReport{{ID: "t"}}}, true},
		{"holdings", NodeReport{ID: "n1", Incarnation: now, Holds: holds}, false},
		{"holdings of another incarnation", NodeReport{ID: "n1", Incarnation: old, Holds: holds}, true},
		{"nothing, in another incarnation", NodeReport{ID: "n1", Incarnation: old}, false},
	} {
		if got := c.report.NamesUnknown(&s); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// lastReports keeps the last of several reports on a transfer, at the position of the first report.
func TestLastReports(t *testing.T) {
	got := lastReports([]model.TransferReport{{ID: "t1", State: model.SideVerifying}, {ID: "t2", Message: "done"},
		{ID: "t1", State: model.SideVerified}})
	want := []model.TransferReport{{ID: "t1", State: model.SideVerified}, {ID: "t2", Message: "done"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Trim removes unknown instances above the limit from a report. The state still records that the node has more, so the
// agent continues to owe its inventory.
func TestTrimKeepsThatThereAreMore(t *testing.T) {
	s := run(t, aloneState(t), 2000, &RestoreMark{})
	c := &NodeReport{ID: "n3", Full: true, Incarnation: s.Incarnation}
	for i := range 3 * maxHoldings {
		c.Holds = append(c.Holds, model.Holding{ID: model.InstanceID(fmt.Sprintf("x%04d", i)), Group: aloneGroup})
	}
	c.Trim(&s)
	s = run(t, s, 2000, c)
	if n, _ := s.Nodes.Get("n3"); !n.Restore.InventoryOwed || len(n.Restore.Unknown) != maxHoldings {
		t.Errorf("owes %v, %d unknown instances", n.Restore.InventoryOwed, len(n.Restore.Unknown))
	}
}

// A report of unknown instances wakes only the agent that sent the report, and the agents of instances in the same
// slots.
func TestUnknownInstancesCallFewAgents(t *testing.T) {
	s := aloneState(t)
	before := s.Index
	called := func(s State) (ids string) {
		for id, n := range s.Nodes.All() {
			if n.Assigned > before {
				ids += string(id) + " "
			}
		}
		return ids
	}
	s = inventory(t, s, "n3", nil, model.Holding{ID: "x", Group: "other/group"})
	if got := called(s); got != "n3 " {
		t.Errorf("an instance that holds no slot of another node called %s", got)
	}
	before = s.Index
	s = inventory(t, s, "n3", nil, model.Holding{ID: "x", Group: "other/group"}, model.Holding{ID: "y", Group: aloneGroup})
	if got := called(s); got != "n1 n3 " {
		t.Errorf("one in the slot of i1 called %s", got)
	}
	before = s.Index
	s = inventory(t, s, "n3", nil, model.Holding{ID: "x", Group: "other/group"})
	if got := called(s); got != "n1 n3 " {
		t.Errorf("that it has stopped called %s", got)
	}
}

// A repeated status whose facts are all invalid brings no facts back, so it changes nothing.
func TestRepeatedStatusWithInvalidFacts(t *testing.T) {
	s := aloneState(t)
	for inst := range s.InstancesOn("n1") {
		n, _ := s.Nodes.Get("n1")
		status := inst.Status
		status.Facts = map[string]string{"Odd": "x"}
		report := &NodeReport{ID: "n1", Epoch: n.Agent.Epoch, Instances: []model.InstanceStatus{status}}
		if len(inst.Status.Facts) > 0 || !inst.runs() || report.News(&s) {
			t.Errorf("%+v is news", status)
		}
		return
	}
	t.Error("no instance is on n1")
}
