package series

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A Recorder samples the state and the server. What it does not know is a gap, also while it has no contact.
func TestSample(t *testing.T) {
	r := newRig("s1")
	r.cluster(t, 2)
	r.local = Local{Applied: 10, Goroutines: 5, Apply: Times{Count: 2, Sum: 4 * time.Second, Most: 3 * time.Second}}
	r.tick(t)
	r.apply(t, &fsm.NodeIntent{ID: "01N00001", Intent: model.IntentCordoned})
	r.uses["01N00000"] = Use{CPU: 1500, MemoryBytes: 1 << 30}
	r.uses["01N00001"] = Use{CPU: 7, Age: 2 * time.Minute} // old
	r.local = Local{Applied: 40, Lag: 3, Leads: true}
	r.tick(t)
	r.silence = 20 * time.Second
	r.tick(t)
	r.now = r.now.Add(Step) // nobody samples
	r.silence = 0
	r.tick(t)
	for name, want := range map[string][]float32{
		"nodes_active": {2, 1, -1, -1, 1}, "nodes_cordoned": {0, 1, -1, -1, 1}, "nodes_measured": {0, 1, -1, -1, 1},
		"cpu_used": {-1, 1500, -1, -1, 1500}, "memory_capacity": {16 << 30, 16 << 30, -1, -1, 16 << 30},
		"raft_entries": {-1, 3, 0, -1, 0}, "raft_lag": {0, 3, 3, -1, 3}, "raft_leads": {0, 1, 1, -1, 1},
		"apply_mean": {2, -1, -1, -1, -1}, "apply_max": {3, -1, -1, -1, -1},
		"server_goroutines": {5, 0, 0, -1, 0}, "server_heap": {-1, -1, -1, -1, -1},
	} {
		if got := r.values(t, name, 5); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// A group that lacks ready instances ages. Nobody knows the age of one that was short before the server began.
func TestPendingAge(t *testing.T) {
	r := newRig("s1")
	r.cluster(t, 1)
	r.tick(t)
	r.submit(t, "web", 3)
	r.tick(t)
	r.tick(t)
	for name, want := range map[string][]float32{"groups_short": {0, 1, 1}, "pending_age": {0, 0, 10},
		"instances_wanted": {0, 3, 3}} {
		if got := r.values(t, name, 3); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	r.fresh = false
	r.tick(t)
	r.fresh = true
	r.tick(t)
	if got := r.values(t, "pending_age", 2); !slices.Equal(got, []float32{-1, -1}) {
		t.Errorf("after a time without contact: %v", got)
	}
}

// What blocks drains is looked for only while one runs.
func TestBlocked(t *testing.T) {
	r := newRig("s1")
	r.cluster(t, 1)
	r.stuck = 4
	r.tick(t)
	r.apply(t, &fsm.DrainStart{ID: "01D1", Nodes: []string{"n0"}, Options: model.DrainOptions{Deadline: model.Hour}})
	r.tick(t)
	r.looked.took = time.Second // so that the next look is due after 100 s
	r.tick(t)
	for range 3 {
		r.tick(t)
	}
	if got := r.values(t, "blocked", 6); !slices.Equal(got, []float32{0, 4, 4, 4, -1, -1}) {
		t.Errorf("blocked: %v after %d looks", got, r.looks)
	}
	if r.looks != 1 {
		t.Errorf("it looked %d times", r.looks)
	}
	for name, want := range map[string][]float32{"drains": {0, 1}, "drain_nodes": {0, 1}, "nodes_draining": {0, 1}} {
		if got := r.values(t, name, 6)[:2]; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// An election is a mark at the earliest time that is known.
func TestMarks(t *testing.T) {
	r := newRig("s1")
	r.cluster(t, 1)
	r.apply(t, &fsm.LeaderBegin{Term: 1, Server: "01S1", Name: "s1"})
	begin := r.now
	r.tick(t)
	r.tick(t)
	r.addMark(mark{At: begin.Add(time.Minute).UnixMilli(), Term: 2, Server: "s2"})
	r.addMark(mark{At: begin.Add(30 * time.Second).UnixMilli(), Term: 2, Server: "s2"})
	got, err := r.Read(Query{Names: []string{"drains"}, From: begin, To: begin.Add(5 * time.Minute)})
	if err != nil || len(got.Marks) != 2 || !got.Marks[0].Time.Equal(begin) || got.Marks[0].Server != "s1" ||
		!got.Marks[1].Time.Equal(begin.Add(30*time.Second)) || got.Marks[1].Term != 2 {
		t.Errorf("marks %+v (%v)", got.Marks, err)
	}
	sent := r.copyOf(copyQuery{}) // it is encoded without the lock, while the marks change
	r.addMark(mark{At: begin.Add(time.Second).UnixMilli(), Term: 2, Server: "s2"})
	if sent.Marks[1].At != begin.Add(30*time.Second).UnixMilli() {
		t.Errorf("marks that were sent to another server: %+v", sent.Marks)
	}
	for term := range uint64(2 * marksKept) {
		r.addMark(mark{Term: 10 + term})
	}
	if len(r.marks) != marksKept || r.marks[0].Term != 10+marksKept {
		t.Errorf("%d marks, the first of term %d", len(r.marks), r.marks[0].Term)
	}
}

// Jobs have a sample a minute, nodes one each two minutes.
func TestJobsAndNodes(t *testing.T) {
	r := newRig("s1")
	r.cluster(t, 1)
	r.submit(t, "web", 3)
	r.uses["01N00000"] = Use{CPU: 1500, MemoryBytes: 1 << 30}
	begin := r.now
	for range 19 {
		r.tick(t)
	}
	for _, c := range []struct {
		q    Query
		want []float32
	}{
		{Query{Job: "web", Names: []string{"job_wanted"}}, []float32{3, 3, 3, 3}},
		{Query{Node: "01N00000", Names: []string{"node_cpu_used"}}, []float32{1500, 1500}},
	} {
		c.q.From, c.q.To = begin, begin.Add(3*time.Minute)
		got, err := r.Read(c.q)
		if err != nil {
			t.Fatal(err)
		}
		var all []float32
		for _, v := range got.Items[0].Values {
			all = append(all, *v)
		}
		if !slices.Equal(all, c.want) {
			t.Errorf("%+v: %v", c.q, all)
		}
	}
}

// What can't be answered says why.
func TestReadRefuses(t *testing.T) {
	r := newRig("s1")
	r.cluster(t, 1)
	r.tick(t)
	to := r.now
	for want, q := range map[string]Query{
		"there is no series \"x\"":   {Names: []string{"x"}, From: to.Add(-time.Hour)},
		"named twice":                {Names: []string{"drains", "drains"}, From: to.Add(-time.Hour)},
		"from must be before":        {From: to.Add(time.Hour)},
		"more than 24h10m0s apart":   {From: to.Add(-48 * time.Hour)},
		"step must be a multiple":    {From: to.Add(-time.Hour), Step: 15 * time.Second},
		"at most 555":                {From: to.Add(-20 * time.Hour), Step: Step},
		"there is no series \"drai":  {Job: "x", Names: []string{"drains"}, From: to.Add(-time.Hour)},
		"step must be a multiple of": {From: to.Add(-time.Hour), Step: -Step},
	} {
		q.To = to
		got, err := r.Read(q)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v %v, want %s", q, len(got.Items), err, want)
		}
	}
	for _, span := range []time.Duration{time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour} {
		got, err := r.Read(Query{From: to.Add(-span), To: to})
		if err != nil || got.Length*len(got.Items) > maxValues || got.Length < 2 {
			t.Errorf("%s: %d of %d (%v)", span, len(got.Items), got.Length, err)
		}
	}
}

// Of a job or node without samples no value is known, and the answer says what a server keeps.
func TestReadOfNothing(t *testing.T) {
	r := newRig("s1")
	r.cluster(t, 1)
	to := r.now
	for note, q := range map[string]Query{
		"the 50 largest jobs": {Job: "x", Names: []string{"job_wanted"}},
		"of 200 nodes":        {Node: "x", Names: []string{"node_cpu_used"}},
	} {
		q.From, q.To = to.Add(-time.Hour), to
		got, err := r.Read(q)
		if err != nil || !strings.Contains(got.Note, note) || len(got.Items) != 1 ||
			slices.ContainsFunc(got.Items[0].Values, func(v *float32) bool { return v != nil }) {
			t.Errorf("%+v: %+v (%v)", q, got, err)
		}
	}
	if got, err := r.Read(Query{From: to.Add(-time.Hour), To: to}); err != nil || got.Note != "" {
		t.Errorf("of the cluster: %q (%v)", got.Note, err)
	}
}

// A server that starts gets what the others sampled of the cluster, and nothing of what they are themselves. It asks
// the next one for what the first does not know.
func TestBackfill(t *testing.T) {
	old, other, fresh := newRig("s1"), newRig("s2"), newRig("s3")
	for _, r := range []*rig{old, other, fresh} {
		r.cluster(t, 1)
		r.submit(t, "web", 3)
	}
	old.apply(t, &fsm.LeaderBegin{Term: 1, Server: "01S1", Name: "s1"})
	begin := old.now
	for i := range 30 {
		old.local.Goroutines = i
		if i == 10 {
			old.silence = time.Minute
		}
		if i == 12 {
			old.silence = 0
		}
		old.tick(t)
		other.now = old.now
		if i >= 9 && i < 13 {
			other.now = other.now.Add(-Step)
			other.tick(t)
		}
	}
	fresh.now = old.now
	fresh.tick(t)
	fresh.peers = map[string]*rig{"s1": old, "s2": other, "s4": nil}
	since := fixedLayout.slot(begin)
	if !fresh.fill(t.Context(), since) {
		t.Fatal("nobody answered")
	}
	want := slices.Repeat([]float32{1}, 31)
	if got := fresh.values(t, "nodes_active", 31); !slices.Equal(got, want) {
		t.Errorf("nodes_active: %v", got)
	}
	if got := fresh.values(t, "server_goroutines", 31); slices.ContainsFunc(got[:30],
		func(v float32) bool { return v != -1 }) {
		t.Errorf("the goroutines of another server: %v", got)
	}
	if len(fresh.marks) != 1 || fresh.marks[0].At != begin.UnixMilli() {
		t.Errorf("marks %+v", fresh.marks)
	}
	got, err := fresh.Read(Query{Job: "web", Names: []string{"job_wanted"}, From: begin, To: begin.Add(4 * time.Minute)})
	if err != nil || got.Items[0].Values[0] == nil || *got.Items[0].Values[0] != 3 {
		t.Errorf("of the job: %+v (%v)", got, err)
	}
	node, err := fresh.Read(Query{Node: "01N00000", Names: []string{"node_cpu_allocated"}, From: begin,
		To: begin.Add(4 * time.Minute)})
	if err != nil || node.Items[0].Values[0] == nil {
		t.Errorf("of the node: %+v (%v)", node, err)
	}
	fresh.peers = map[string]*rig{"s4": nil}
	if fresh.fill(t.Context(), since) {
		t.Error("a server that does not answer has answered")
	}
}

// A day takes several questions, and each answer is bounded.
func TestBackfillOfADay(t *testing.T) {
	old, fresh := newRig("s1"), newRig("s2")
	old.cluster(t, 1)
	fresh.cluster(t, 1)
	begin := old.now
	for slot := range fixedLayout.size() {
		old.fixed.set(fixedLayout.slot(begin)+slot, nodesActive, float32(slot))
	}
	old.now = begin.Add(24 * time.Hour)
	old.tick(t)
	fresh.now, fresh.peers = old.now, map[string]*rig{"s1": old}
	fresh.tick(t)
	for i := range max(jobsKept, nodesKept) {
		for _, r := range []*rig{old, fresh} {
			job, node := newRing(jobLayout), newRing(nodeLayout)
			if i < jobsKept {
				r.jobs.rings[model.JobName(fmt.Sprintf("j%03d", i))] = &job
			}
			r.nodes.rings[model.NodeID(fmt.Sprintf("n%03d", i))] = &node
		}
	}
	if !fresh.fill(t.Context(), fixedLayout.slot(begin)) {
		t.Fatal("nobody answered")
	}
	t.Logf("%d questions, %d bytes of answers", fresh.asked, fresh.got)
	for slot := range fixedLayout.size() {
		if got := fresh.fixed.get(fixedLayout.slot(begin)+slot, nodesActive); got != float32(slot) {
			t.Fatalf("step %d has %v", slot, got)
		}
	}
	if fresh.asked < 4 || fresh.asked > 30 {
		t.Errorf("it took %d questions", fresh.asked)
	}
	a := old.copyOf(copyQuery{From: 0, To: 1 << 60})
	if len(a.Values) > 4*copyValues {
		t.Errorf("one answer has %d bytes", len(a.Values))
	}
	if err := fresh.take(tableFixed, copyReply{To: 5, Keys: []string{""}, Names: []string{"drains"}}); err == nil {
		t.Error("an answer that is too short was taken")
	}
}

// Another server answers a query about itself.
func TestReadOf(t *testing.T) {
	a, b := newRig("s1"), newRig("s2")
	a.cluster(t, 1)
	b.cluster(t, 1)
	a.peers = map[string]*rig{"s2": b}
	b.local.Goroutines = 77
	b.tick(t)
	a.tick(t)
	q := Query{Names: []string{"server_goroutines"}, From: a.now.Add(-20 * time.Second), To: a.now.Add(-10 * time.Second)}
	got, err := a.ReadOf(t.Context(), "s2", q)
	if err != nil || got.Server != "s2" || got.Length != 2 || got.Items[0].Values[0] != nil ||
		*got.Items[0].Values[1] != 77 ||
		!got.From.Equal(q.From) || got.Step != model.Duration(Step.Milliseconds()) {
		t.Errorf("%+v (%v)", got, err)
	}
	if got, err := a.ReadOf(t.Context(), "s1", q); err != nil || got.Server != "s1" {
		t.Errorf("%+v (%v)", got, err)
	}
	if _, err := a.ReadOf(t.Context(), "s9", q); !errors.Is(err, &model.Error{Code: model.CodeNotFound}) {
		t.Errorf("of no server: %v", err)
	}
}

// Run samples each 10 s, fills what it lacks once a server answers, and ends with its context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, r := newRig("s1"), newRig("s2")
		old.cluster(t, 1)
		r.cluster(t, 1)
		r.cfg.Wall = time.Now
		old.now = time.Now().Add(-time.Minute).Truncate(Step)
		for range 6 {
			old.tick(t)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		r.peers = map[string]*rig{"s1": nil} // it does not answer yet
		go func() { done <- r.Run(ctx) }()
		time.Sleep(25 * time.Second)
		synctest.Wait()
		r.now = time.Now().Add(Step)
		if got := r.values(t, "nodes_active", 3); !slices.Equal(got, []float32{1, 1, 1}) {
			t.Errorf("samples %v", got)
		}
		r.meet(map[string]*rig{"s1": old})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		r.now = time.Now().Add(Step)
		if got := r.values(t, "nodes_active", 9); slices.Contains(got, -1) {
			t.Errorf("after another server answered: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkSample measures a sample of 5,000 nodes and 1,000 jobs.
func BenchmarkSample(b *testing.B) {
	r := newRig("s1")
	r.cluster(b, 5000)
	for i := range 1000 {
		r.submit(b, model.JobName("job-"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+time.Duration(i).String()), 10)
	}
	for id := range r.machine.Current().Nodes.All() {
		r.uses[id] = Use{CPU: 100, MemoryBytes: 1 << 30}
	}
	b.ReportAllocs()
	for b.Loop() {
		r.tick(b)
	}
	b.ReportMetric(float64(r.Bytes()), "bytes-kept")
}
