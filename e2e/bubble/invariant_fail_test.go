package bubble

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// ruled reports whether the first finding in err is a violation of rule.
func ruled(err error, rule fsm.Invariant) bool {
	found, _ := errors.AsType[fsm.Findings](err)
	return found.First() == rule
}

// smallCluster is the state of a small cluster, made with the product's own commands. It has a node and a job of two
// instances.
type smallCluster struct {
	t     *testing.T
	state fsm.State
}

func newSmallCluster(t *testing.T) *smallCluster {
	d := &smallCluster{t: t, state: fsm.NewState()}
	d.apply(&fsm.ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
	d.apply(&fsm.NodeRegister{
		ID: "n1", Name: "n1", Agent: model.AgentInfo{BootID: "b", Address: "127.0.0.1", Key: []byte("k")},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: 8 << 30}, PortMin: 20000, PortMax: 20999},
	})
	d.apply(&fsm.JobSubmit{Spec: job("web", "", group("http", 2, 64*mib))})
	n, _ := d.state.Nodes.Get("n1")
	d.apply(&fsm.NodeReport{ID: "n1", Epoch: n.Agent.Epoch, Full: true})
	for slot, id := range []model.InstanceID{"w0", "w1"} {
		d.apply(&fsm.InstancePlace{ID: id, Group: "web/http", Slot: slot, Version: 1, Node: "n1", Cause: model.CauseScaleUp})
		d.apply(&fsm.NodeReport{ID: "n1", Epoch: n.Agent.Epoch,
			Instances: []model.InstanceStatus{{ID: id, Generation: 1, Observed: model.ObservedReady}}})
	}
	return d
}

func (d *smallCluster) apply(command fsm.Command) committed {
	d.t.Helper()
	c := d.request("", command)
	if refusal := c.results[0].Refusal; refusal != nil {
		d.t.Fatal(refusal)
	}
	return c
}

// request applies a command under a request id. Unlike apply, it accepts a refusal.
func (d *smallCluster) request(id model.RequestID, command fsm.Command) committed {
	e := fsm.Entry{Format: model.CurrentFormat, At: d.state.Now + 10, Actor: model.ActorLeader, Request: id,
		Groups: [][]fsm.Command{{command}}}
	index := d.state.Index + 1
	after, results := d.state.Apply(index, 1, e)
	d.state = after
	return committed{index, 1, e, results}
}

// unfair finds a violation of S13 if two of three servers heard the node within half the threshold. It finds no
// violation if only one server heard the node, or if the node returned while the entry was being written.
func TestSilenceCanFail(t *testing.T) {
	heard := func(ages ...time.Duration) (all []hearing) {
		for _, age := range ages {
			all = append(all, hearing{"s", age, time.Minute})
		}
		return all
	}
	if err := unfair("n1", 2*model.Second, voters, heard(100*time.Millisecond, 300*time.Millisecond, 5*time.Second)).
		Err(); !ruled(err, fsm.S13) {
		t.Errorf("two of three heard it: %v", err)
	}
	if err := unfair("n1", 2*model.Second, voters, heard(100*time.Millisecond, 3*time.Second, 5*time.Second)).
		Err(); err != nil {
		t.Errorf("one of three heard it: %v", err)
	}
	back := []hearing{{"s1", time.Millisecond, 2 * time.Millisecond}, {"s2", 2 * time.Millisecond, 2 * time.Millisecond}}
	if err := unfair("n1", 2*model.Second, voters, back).Err(); err != nil {
		t.Errorf("it came back while the entry was on its way: %v", err)
	}
}

// durable and allThere find violations of S4: an acknowledged write that is in no entry, that its entry refused, or
// that is not in the state, and a refused write that was carried out. Answers that agree with the log are no
// violations, and neither is an unknown outcome.
func TestReceiptsCanFail(t *testing.T) {
	d := newSmallCluster(t)
	cordon := func() fsm.Command { return &fsm.NodeIntent{ID: "n1", Intent: model.IntentCordoned} }
	log := []committed{
		d.request("done", cordon()),
		d.request("refused", &fsm.NodeIntent{ID: "n9", Intent: model.IntentCordoned}),
		d.apply(cordon()), // the entry gets a request id below that the state does not have
	}
	if log[1].results[0].Refusal == nil {
		t.Fatal("a node that does not exist was cordoned")
	}
	log[2].Request = "forgotten"
	judged := func(id model.RequestID, told answered) error {
		r := newReceipts()
		r.all[id] = receipt{"a write", told, nil}
		return r.durable(log, d.state)
	}
	for id, test := range map[model.RequestID]struct {
		told answered
		want string
	}{
		"lost":      {answeredDone, "no entry holds it"},
		"refused":   {answeredDone, "refused it"},
		"forgotten": {answeredDone, "is not remembered"},
		"done":      {answeredRefused, "carried it out"},
	} {
		if err := judged(id, test.told); !ruled(err, fsm.S4) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s, answered %s: %v, want S4: %s", id, test.told, err, test.want)
		}
	}
	for id, told := range map[model.RequestID]answered{
		"done": answeredDone, "refused": answeredRefused, "lost": answeredUnknown,
	} {
		if err := judged(id, told); err != nil {
			t.Errorf("%s, answered %s: %v", id, told, err)
		}
	}
	if err := allThere([]model.RequestID{"done", "lost"}, d.state); !ruled(err, fsm.S4) {
		t.Errorf("a leader without what was acknowledged: %v", err)
	}
	if err := allThere([]model.RequestID{"done"}, d.state); err != nil {
		t.Errorf("a leader with what was acknowledged: %v", err)
	}
}

// silentReasons gives no reason for anything.
type silentReasons struct{}

func (silentReasons) Pending(model.GroupID) *model.Error       { return nil }
func (silentReasons) Waiting(model.InstanceID) []model.Blocker { return nil }

// missingReasons finds violations of S14: a group that lacks an instance, or an eviction that makes no progress, if no
// reason is given.
func TestReasonsCanFail(t *testing.T) {
	d := newSmallCluster(t)
	if err := missingReasons(d.state, silentReasons{}); err != nil {
		t.Errorf("nothing is missing: %v", err)
	}
	d.apply(&fsm.JobScale{Job: "web", Group: "http", Count: 3})
	if err := missingReasons(d.state, silentReasons{}); !ruled(err, fsm.S14) {
		t.Errorf("an instance is missing: %v", err)
	}
	d.apply(&fsm.JobScale{Job: "web", Group: "http", Count: 2})
	w0, _ := d.state.Instances.Get("w0")
	w0.Eviction = fsm.Eviction{Requested: true, Cause: model.CauseUser}
	if err := missingReasons(d.state, silentReasons{}); !ruled(err, fsm.S14) {
		t.Errorf("an eviction goes nowhere: %v", err)
	}
}

// mayBegin judges a start by the programs that already run. It finds too little memory (S1) and a second holder of a
// slot (S2). It also finds a fencing epoch that goes back, even if the earlier holder has ended (S2).
func TestTruthCanFail(t *testing.T) {
	begin := func(change func(*program)) error {
		tr := newTruth(t)
		tr.alive["a"] = &program{instance: "a", group: "db/g", slot: "0", node: "n1", fenced: true, memory: nodeMemory / 2}
		before := &program{instance: "c", group: "db/g", slot: "1", node: "n2", fenced: true, epoch: 5}
		if err := tr.mayBegin(before); err != nil {
			t.Fatal(err)
		}
		p := &program{instance: "b", group: "db/g", slot: "1", node: "n1", fenced: true, memory: nodeMemory / 2, epoch: 6}
		change(p)
		return tr.mayBegin(p)
	}
	if err := begin(func(*program) {}); err != nil {
		t.Errorf("a good start: %v", err)
	}
	for name, test := range map[string]struct {
		id     fsm.Invariant
		change func(*program)
	}{
		"memory": {fsm.S1, func(p *program) { p.memory++ }},
		"holder": {fsm.S2, func(p *program) { p.slot, p.node = "0", "n2" }},
		"epoch":  {fsm.S2, func(p *program) { p.epoch = 4 }},
	} {
		if err := begin(test.change); !ruled(err, test.id) {
			t.Errorf("%s: %v, want %s", name, err, test.id)
		}
	}
}
