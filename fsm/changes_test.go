package fsm_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// shownOfNode is what the page's stream shows of a node. Its other fields may change without a touched topic.
type shownOfNode struct {
	name   string
	state  model.NodeState
	can    model.Resources
	placed fsm.Usage
}

func shownNode(n *fsm.Node) (s shownOfNode) {
	if n != nil {
		s = shownOfNode{n.Name, n.State(), n.Allocatable(), n.Placed}
	}
	return s
}

// Every row of an instance that differs between two Takes is among those that entries touched, and so is every node of
// which the page's stream shows a difference, or an instance on that node. The class of a job changes only with the
// job.
func TestChangesHaveWhatChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var changes *fsm.Changes
		var before *fsm.State
		fsm.RandomHistory(t, 120, func(m *fsm.Machine) {
			changes = m.Changes()
			var touched fsm.Touched
			if before, touched = changes.Take(); !touched.All {
				t.Fatal("the first Take does not report everything")
			}
		}, func(m *fsm.Machine) {
			if rapid.IntRange(0, 3).Draw(t, "wait") == 0 {
				return
			}
			after, touched := changes.Take()
			if after != m.Current() {
				t.Fatal("Take returned another state than the published one")
			}
			if !touched.All {
				checkTouched(t, before, after, touched)
			}
			before = after
		})
		changes.Close()
	})
}

func checkTouched(t *rapid.T, before, after *fsm.State, touched fsm.Touched) {
	nodes := map[model.NodeID]bool{}
	for _, id := range touched.Nodes {
		nodes[id] = true
	}
	for _, s := range []*fsm.State{before, after} {
		for _, id := range touched.Instances {
			if i, ok := s.Instances.Get(id); ok {
				nodes[i.Node] = true
			}
		}
		for id, i := range s.Instances.All() {
			was, _ := before.Instances.Get(id)
			is, _ := after.Instances.Get(id)
			if was != is && !slices.Contains(touched.Instances, id) {
				t.Fatalf("instance %s of %s changed, and no entry touched it", id, i.Group)
			}
		}
	}
	for _, s := range []*fsm.State{before, after} {
		for id := range s.Nodes.All() {
			was, _ := before.Nodes.Get(id)
			is, _ := after.Nodes.Get(id)
			if shownNode(was) != shownNode(is) && !nodes[id] {
				t.Fatalf("node %s changed from %+v to %+v, and no entry touched it", id, shownNode(was), shownNode(is))
			}
		}
		for name := range s.Jobs.All() {
			was, had := before.Jobs.Get(name)
			is, has := after.Jobs.Get(name)
			if (had != has || had && was.Class != is.Class) && !slices.Contains(touched.Jobs, name) {
				t.Fatalf("job %s changed, and no entry touched it", name)
			}
		}
	}
}

// Whoever does not collect any more costs nothing, and a Machine without a reader keeps nothing.
func TestChangesEnd(t *testing.T) {
	m := fsm.NewMachine()
	a, b := m.Changes(), m.Changes()
	a.Take()
	b.Take()
	a.Close()
	a.Close()
	apply := func(index uint64, group ...fsm.Command) {
		data, err := fsm.EncodeEntry(fsm.Entry{Format: 1, Groups: [][]fsm.Command{group}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Apply(index, 1, data); err != nil {
			t.Fatal(err)
		}
	}
	apply(1, &fsm.ClusterInit{ID: "01CLUSTER", Name: "test", Settings: model.DefaultSettings()})
	apply(2, &fsm.NodeRegister{ID: "01N1", Name: "n1", Agent: model.AgentInfo{BootID: "b"},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}}})
	if state, touched := b.Take(); state.Index != 2 || touched.All || !slices.Contains(touched.Nodes, "01N1") {
		t.Errorf("at index %d: %+v", state.Index, touched)
	}
	if state, touched := a.Take(); state.Index != 0 || len(touched.Nodes) > 0 {
		t.Errorf("after Close, at index %d: %+v", state.Index, touched)
	}
}
