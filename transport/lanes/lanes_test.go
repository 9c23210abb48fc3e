package lanes_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport/lanes"
)

// world is a state with two nodes and the job web, of which each entry is written a second after the one before.
type world struct {
	t       *testing.T
	machine *fsm.Machine
	second  int // of the last entry
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, machine: fsm.NewMachine()}
	w.apply(&fsm.ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
	for _, name := range []string{"n1", "n2"} {
		w.apply(&fsm.NodeRegister{ID: model.NodeID("01" + name), Name: name, Agent: model.AgentInfo{BootID: "b1"},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}, PortMin: 1, PortMax: 9}})
		w.apply(&fsm.NodeReport{ID: model.NodeID("01" + name), Epoch: w.epoch(model.NodeID("01" + name)), Full: true})
	}
	spec := model.JobSpec{Name: "web", Groups: []model.GroupSpec{{Name: "http", Count: 2,
		Exec: model.ExecSpec{Command: "/bin/web"}}}}
	w.apply(&fsm.JobSubmit{Spec: spec})
	w.place("old-a", 0, "01n1", "")
	w.place("old-b", 1, "01n1", "")
	w.report("01n1", "old-a", model.ObservedReady)
	w.report("01n1", "old-b", model.ObservedReady)
	return w
}

func (w *world) apply(c fsm.Command) {
	w.t.Helper()
	w.second++
	s := w.machine.State()
	data, err := fsm.EncodeEntry(fsm.Entry{Format: model.CurrentFormat, At: s.Now + 1000,
		Wall: int64(w.second) * 1000, Actor: "cli:a", Groups: [][]fsm.Command{{c}}})
	if err != nil {
		w.t.Fatal(err)
	}
	results, err := w.machine.Apply(s.Index+1, 1, data)
	if err != nil || results[0].Refusal != nil {
		w.t.Fatalf("%T: %v %v", c, err, results)
	}
}

func (w *world) epoch(id model.NodeID) uint64 {
	n, _ := w.machine.State().Nodes.Get(id)
	return n.Agent.Epoch
}

func (w *world) place(id model.InstanceID, slot int, node model.NodeID, replaces model.InstanceID) {
	w.t.Helper()
	g, _ := w.machine.State().Groups.Get("web/http")
	w.apply(&fsm.InstancePlace{ID: id, Group: "web/http", Slot: slot, Version: g.Version, Node: node, Replaces: replaces,
		Cause: model.CauseNodeDraining})
}

func (w *world) report(node model.NodeID, id model.InstanceID, observed model.Observed) {
	w.t.Helper()
	w.apply(&fsm.NodeReport{ID: node, Epoch: w.epoch(node),
		Instances: []model.InstanceStatus{{ID: id, Generation: uint64(w.second), Observed: observed, Reason: "told"}}})
}

// want compares the lanes of the drain d1 with lines: node, instance, state, replacement, target, and the seconds at
// which its room was claimed, the replacement began and was ready, and the stop began and ended.
func (w *world) want(lines ...string) {
	w.t.Helper()
	s := w.machine.State()
	d, _ := s.Drains.Get("d1")
	at := func(t *time.Time) string {
		if t == nil {
			return "-"
		}
		return fmt.Sprint(t.Unix())
	}
	var got []string
	for _, l := range lanes.Of(&s, d, time.Unix(int64(w.second), 0)) {
		got = append(got, fmt.Sprintf("%s %s %s, %s on %s: %s %s %s, %s %s", l.Node, l.Instance, l.State, l.Replacement,
			l.Target, at(l.ReservedAt), at(l.StartedAt), at(l.ReadyAt), at(l.StoppingAt), at(l.StoppedAt)))
	}
	if fmt.Sprint(got) != fmt.Sprint(lines) {
		w.t.Errorf("lanes:\n%q\nwant:\n%q", got, lines)
	}
}

// The lanes of a drain have the times of each step, from the first instance that leaves to the last that has stopped.
func TestLanes(t *testing.T) {
	w := newWorld(t)
	w.apply(&fsm.DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
	begun := w.second
	w.want("n1 old-a ready,  on : - - -, - -", "n1 old-b ready,  on : - - -, - -")

	w.place("new-a", 0, "01n2", "old-a")
	w.report("01n2", "new-a", model.ObservedBooting)
	w.want(fmt.Sprintf("n1 old-a ready, new-a on n2: %d %d -, - -", begun+1, begun+2), "n1 old-b ready,  on : - - -, - -")

	w.report("01n2", "new-a", model.ObservedReady)
	w.apply(&fsm.InstanceStop{ID: "old-a", Cause: model.CauseNodeDraining, By: "d1"})
	w.report("01n1", "old-a", model.ObservedStopped)
	a := fmt.Sprintf("n1 old-a stopped, new-a on n2: %d %d %d, %d %d", begun+1, begun+2, begun+3, begun+4, begun+5)
	w.want(a, "n1 old-b ready,  on : - - -, - -")

	// What happens to the replacement once it was ready is none of the drain.
	w.report("01n2", "new-a", model.ObservedFailed)
	w.want(a, "n1 old-b ready,  on : - - -, - -")

	// A drain that has ended shows what it did, and not what came to its node afterwards.
	w.apply(&fsm.DrainCancel{ID: "d1", Uncordon: true})
	w.want(a, "n1 old-b ready,  on : - - -, - -")
	w.place("newer-a", 0, "01n1", "new-a")
	w.apply(&fsm.InstanceStop{ID: "newer-a", Cause: model.CauseUser, By: "ann", Bypass: true})
	w.want(a, "n1 old-b ready,  on : - - -, - -")
}

// A replacement that fails before it is ready gives its lane to the next one.
func TestLaneOfASecondReplacement(t *testing.T) {
	w := newWorld(t)
	w.apply(&fsm.DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
	w.place("bad", 0, "01n2", "old-a")
	w.report("01n2", "bad", model.ObservedBooting)
	w.report("01n2", "bad", model.ObservedFailed)
	w.apply(&fsm.InstanceStop{ID: "bad", Cause: model.CauseScaleDown, By: "failed"})
	w.place("good", 0, "01n2", "old-a")
	at := w.second
	w.report("01n2", "good", model.ObservedReady)
	w.want(fmt.Sprintf("n1 old-a ready, good on n2: %d %d %d, - -", at, at+1, at+1), "n1 old-b ready,  on : - - -, - -")
}

// What stays because somebody acknowledged it says so.
func TestAcknowledgedLane(t *testing.T) {
	w := newWorld(t)
	w.apply(&fsm.DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
	w.apply(&fsm.NodeAck{ID: "01n1", Instances: []model.InstanceID{"old-b"}})
	s := w.machine.State()
	d, _ := s.Drains.Get("d1")
	var acked []model.InstanceID
	for _, l := range lanes.Of(&s, d, time.Unix(0, 0)) {
		if l.Acked {
			acked = append(acked, l.Instance)
		}
	}
	if len(acked) != 1 || acked[0] != "old-b" {
		t.Errorf("acknowledged: %v", acked)
	}
}

// The lanes stand in the order in which the nodes have their turns.
func TestLanesInTurn(t *testing.T) {
	w := newWorld(t)
	w.place("other", 0, "01n2", "old-a")
	w.apply(&fsm.DrainStart{ID: "d1", Nodes: []string{"n2", "n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
	s := w.machine.State()
	d, _ := s.Drains.Get("d1")
	got := lanes.Of(&s, d, time.Unix(0, 0))
	if len(got) != 3 || got[0].Instance != "other" || got[0].Node != "n2" {
		t.Errorf("the node whose turn is first comes first: %+v", got)
	}
}
