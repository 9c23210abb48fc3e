package reconcile

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// agentQueue is a work queue for the simulated agents of a rehearsal. It contains the instances whose rows have changed
// since their agent last worked, because an agent has nothing to do for other instances. Without the queue, looking at
// each of 100,000 instances would take nine tenths of a rehearsal's time.
type agentQueue struct {
	nodes []model.NodeID // nodes with queued instances, in order
	on    map[model.NodeID][]model.InstanceID
}

// newAgentQueue returns a queue of the instances that are stopping, that should stop, or that are not ready.
func newAgentQueue(s *fsm.State) agentQueue {
	d := agentQueue{on: map[model.NodeID][]model.InstanceID{}}
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

func (d *agentQueue) put(inst *fsm.Instance) {
	if len(d.on[inst.Node]) == 0 {
		at, _ := slices.BinarySearch(d.nodes, inst.Node)
		d.nodes = slices.Insert(d.nodes, at, inst.Node)
	}
	d.on[inst.Node] = append(d.on[inst.Node], inst.ID)
}

// take removes and returns the instances of the first queued node whose id is greater than after, in order of id. If
// after is "", it takes the first node. ok is false if the queue has no such node.
func (d *agentQueue) take(after model.NodeID) (node model.NodeID, all []model.InstanceID, ok bool) {
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
