package fsm_test

import (
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A repeated DrainStart is accepted and changes nothing. A DrainStart with a used id and other nodes or options is
// refused as a conflict.
func TestDrainAskedAgain(t *testing.T) {
	s := fsm.NewState()
	apply := func(c fsm.Command) *model.Error {
		t.Helper()
		var results []fsm.Result
		s, results = s.Apply(s.Index+1,
			1, fsm.Entry{Format: model.CurrentFormat, Actor: "test", Groups: [][]fsm.Command{{c}}})
		return results[0].Refusal
	}
	for _, name := range []string{"n1", "n2"} {
		refusal := apply(&fsm.NodeRegister{
			ID: model.NodeID("id-" + name), Name: name,
			Agent: model.AgentInfo{BootID: "b", Incarnation: "i", Address: "127.0.0.1", Key: []byte("k")},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}, PortMin: 2000, PortMax: 3000},
		})
		if refusal != nil {
			t.Fatal(refusal)
		}
	}
	options := model.DrainOptions{Deadline: model.Hour}
	if refusal := apply(&fsm.DrainStart{ID: "tuesday", Nodes: []string{"n1", "ghost"}, Options: options}); refusal != nil {
		t.Fatal(refusal)
	}
	first, _ := s.Drains.Get("tuesday")
	for _, again := range [][]string{{"n1", "ghost"}, {"ghost", "id-n1"}} {
		if refusal := apply(&fsm.DrainStart{ID: "tuesday", Nodes: again, Options: options}); refusal != nil {
			t.Errorf("asked again for %v: %v", again, refusal)
		}
	}
	if now, _ := s.Drains.Get("tuesday"); now != first {
		t.Error("asking again changed the drain")
	}
	other := model.DrainOptions{Deadline: model.Minute}
	for _, c := range []*fsm.DrainStart{
		{ID: "tuesday", Nodes: []string{"n1", "n2"}, Options: options},
		{ID: "tuesday", Nodes: []string{"n1"}, Options: options},
		{ID: "tuesday", Nodes: []string{"n1", "ghost"}, Options: other},
	} {
		if refusal := apply(c); refusal == nil || refusal.Code != model.CodeConflict {
			t.Errorf("drain of %v with %v under a used id: %v, want conflict", c.Nodes, c.Options, refusal)
		}
	}
}
