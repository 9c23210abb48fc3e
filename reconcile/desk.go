package reconcile

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// desk holds, for the agents of a rehearsal, the instances whose rows have changed since their agent looked: nothing
// else can have become work for it. So a step costs what the drain touches and not a look at every instance: with
// 100,000 of them the rest would be nine tenths of it.
type desk struct {
	nodes []model.NodeID // that have something on it, in order
	on    map[model.NodeID][]model.InstanceID
}

// newDesk begins with what is not at rest.
func newDesk(s *fsm.State) desk {
	d := desk{on: map[model.NodeID][]model.InstanceID{}}
	for inst := range s.Departing() {
		d.put(inst)
	}
	for id, g := range s.Unsettled() {
		if g.Ready == g.Running {
			continue
		}
		for inst := range s.InstancesOf(id) {
			if !inst.Ready() {
				d.put(inst)
			}
		}
	}
	return d
}

// put lays an instance before its agent.
func (d *desk) put(inst *fsm.Instance) {
	if len(d.on[inst.Node]) == 0 {
		at, _ := slices.BinarySearch(d.nodes, inst.Node)
		d.nodes = slices.Insert(d.nodes, at, inst.Node)
	}
	d.on[inst.Node] = append(d.on[inst.Node], inst.ID)
}

// take gives the agent of the first node after another one what lies there for it, in order of id. What comes for a
// node that had its turn waits for the next round.
func (d *desk) take(after model.NodeID) (node model.NodeID, all []model.InstanceID, ok bool) {
	at, found := slices.BinarySearch(d.nodes, after)
	if found {
		at++
	}
	if at == len(d.nodes) {
		return "", nil, false
	}
	node = d.nodes[at]
	all = d.on[node]
	delete(d.on, node)
	d.nodes = slices.Delete(d.nodes, at, at+1)
	slices.Sort(all)
	return node, slices.Compact(all), true
}
