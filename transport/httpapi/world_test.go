package httpapi_test

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// node registers a node and reports an empty inventory, as its agent would.
func (r *rig) node(id model.NodeID, name string) {
	r.t.Helper()
	r.apply(&fsm.NodeRegister{ID: id, Name: name,
		Agent: model.AgentInfo{BootID: "b1", Incarnation: "i1", Address: "127.0.0.1", APIAddress: "127.0.0.1:1",
			Key: []byte("very-secret-heartbeat-key")},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: 4 << 30},
			Labels: map[string]string{"rack": "r-" + name}, PortMin: 20000, PortMax: 21000}})
	r.apply(&fsm.NodeReport{ID: id, Epoch: r.epoch(id), Full: true})
}

// epoch returns the epoch of a node's last registration, or 1 if the node is not known.
func (r *rig) epoch(id model.NodeID) uint64 {
	if n, ok := r.machine.State().Nodes.Get(id); ok {
		return n.Agent.Epoch
	}
	return 1
}

// spec returns a job with one group, which has the given count. The job web is also exposed on port 8080.
func spec(name string, count int) model.JobSpec {
	expose := 0
	if name == "web" {
		expose = 8080
	}
	return model.JobSpec{Name: model.JobName(name), Groups: []model.GroupSpec{{
		Name: "http", Count: count, Exec: model.ExecSpec{Command: "/bin/web"}, Env: map[string]string{"TOKEN": "env-secret"},
		Ports: []model.PortSpec{{Name: "http"}}, Services: []model.ServiceSpec{{Name: name, Port: "http", Expose: expose}},
		Budget: &model.BudgetSpec{MinReady: &model.Amount{N: max(count-1, 0)}},
	}}}
}

// place puts an instance of web/http on a node, and reports its observed state unless this is pending.
func (r *rig) place(id model.InstanceID, slot int, node model.NodeID, observed model.Observed) {
	r.t.Helper()
	g, _ := r.machine.State().Groups.Get("web/http")
	r.apply(&fsm.InstancePlace{ID: id, Group: "web/http", Slot: slot, Version: g.Version, Node: node,
		Ports: model.Ports{{Name: "http", Number: 20000 + slot}}, Cause: model.CauseScaleUp})
	if observed == model.ObservedPending {
		return
	}
	n, _ := r.machine.State().Nodes.Get(node)
	status := model.InstanceStatus{ID: id, Generation: 1, Observed: observed}
	if observed == model.ObservedFailed {
		status.Reason = "crash_loop"
	}
	r.apply(&fsm.NodeReport{ID: node, Epoch: n.Agent.Epoch, Instances: []model.InstanceStatus{status}})
}

// world makes two nodes, and the job web of three instances. Two instances are ready on the first node. The third is
// not placed.
func (r *rig) world() {
	r.t.Helper()
	r.node("01N1", "n1")
	r.node("01N2", "n2")
	r.apply(&fsm.JobSubmit{Spec: spec("web", 3)})
	r.place("inst-a", 0, "01N1", model.ObservedReady)
	r.place("inst-b", 1, "01N1", model.ObservedReady)
}

// fillRequests applies the given number of writes in one batch. Each write has its own request id.
func (r *rig) fillRequests(count int, actor model.Actor) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var logged []fsm.Logged
	for n := range count {
		r.index++
		data, err := fsm.EncodeEntry(fsm.Entry{
			Format: model.CurrentFormat, At: r.now(), Wall: r.born.UnixMilli(), Actor: actor,
			Request: model.RequestID(fmt.Sprint("r", n)), Body: "b",
			Groups: [][]fsm.Command{{&fsm.NodeLabel{ID: "01N1", Labels: map[string]string{"a": "b"}}}},
		})
		if err != nil {
			r.t.Fatal(err)
		}
		logged = append(logged, fsm.Logged{Index: r.index, Term: 1, Data: data})
	}
	if _, err := r.machine.ApplyBatch(logged); err != nil {
		r.t.Fatal(err)
	}
}
