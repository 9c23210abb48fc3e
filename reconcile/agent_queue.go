package reconcile

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// agentQueue is a work queue for the simulated agents of a rehearsal. It holds the instances whose rows have changed
// since their agent last looked. Agents have no other work. So the cost of a step depends on the number of changes, not
// on the number of instances. With 100,000 instances, a look at every instance would take nine tenths of the time.
type agentQueue struct {
	nodes []model.NodeID // nodes with queued instances, in order
	on    map[model.NodeID][]model.InstanceID
}

// newAgentQueue returns a queue of the instances that are stopping or not ready yet.
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

// put queues an instance for its agent.
func (d *agentQueue) put(inst *fsm.Instance) {
	if len(d.on[inst.Node]) == 0 {
		at, _ := slices.BinarySearch(d.nodes, inst.Node)
		d.nodes = slices.Insert(d.nodes, at, inst.Node)
	}
	d.on[inst.Node] = append(d.on[inst.Node], inst.ID)
}

// take removes what is queued for the first node after the given one and returns it in order of id. Instances queued
// for an earlier node wait for the next round.
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
