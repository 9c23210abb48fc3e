package bubble

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outspan/outspan/fsm"
)

const mib = 1 << 20

// group is a group of programs in memory.
func group(name string, count int, memory int64) fsm.GroupSpec {
	return fsm.GroupSpec{Name: name, Count: count, Exec: fsm.ExecSpec{Command: "/program"}, Resources: fsm.Resources{MemoryBytes: memory}}
}

func amount(n int) *fsm.Amount { return &fsm.Amount{N: n} }

// submit makes a job the wanted one.
func (w *world) submit(name string, groups ...fsm.GroupSpec) error {
	_, err := w.send("/v1/jobs", map[string]any{"job": fsm.JobSpec{Name: fsm.JobName(name), Groups: groups}})
	return err
}

// run submits a job and waits until all of it is ready. It returns its first group.
func (w *world) run(name string, groups ...fsm.GroupSpec) fsm.GroupID {
	w.t.Helper()
	must(w.t, w.submit(name, groups...))
	for _, g := range groups {
		w.ready(fsm.NewGroupID(fsm.JobName(name), g.Name), g.Count, time.Minute)
	}
	return fsm.NewGroupID(fsm.JobName(name), groups[0].Name)
}

// ready waits until so many instances of a group are ready.
func (w *world) ready(id fsm.GroupID, count int, limit time.Duration) time.Duration {
	w.t.Helper()
	return w.eventually(limit, fmt.Sprintf("%d of %s ready", count, id), func() bool {
		st := w.state()
		g, ok := st.Groups.Get(id)
		return ok && g.Ready == count
	})
}

// choices are those of a drain that tests make.
type choices struct {
	Nodes    []string     `json:"nodes"`
	Deadline fsm.Duration `json:"deadline,omitempty"`
}

// drain starts a drain and returns its id.
func (w *world) drain(c choices) (fsm.DrainID, error) {
	raw, err := w.send("/v1/drains", c)
	if err != nil {
		return "", err
	}
	var reply struct {
		Drain fsm.DrainID `json:"drain"`
	}
	if err := json.Unmarshal(raw, &reply); err != nil || reply.Drain == "" {
		return "", fmt.Errorf("the answer %s names no drain: %w", raw, err)
	}
	return reply.Drain, nil
}

// part is one node's part of a drain.
func (w *world) part(id fsm.DrainID, n *node) fsm.DrainNode {
	w.t.Helper()
	st := w.state()
	d, ok := st.Drains.Get(id)
	if !ok {
		w.t.Fatalf("there is no drain %s\n%s", id, w.picture())
	}
	part, _ := d.Node(n.id)
	return part
}

// members are the instances of a group that are desired running, by id.
func (w *world) members(id fsm.GroupID) map[fsm.InstanceID]fsm.Instance {
	st := w.state()
	out := map[fsm.InstanceID]fsm.Instance{}
	for i := range st.InstancesOf(id) {
		if i.Desired == fsm.DesiredRunning {
			out[i.ID] = *i
		}
	}
	return out
}

// on lists the nodes by name on which a group has members.
func (w *world) on(id fsm.GroupID) map[string]int {
	st := w.state()
	out := map[string]int{}
	for _, i := range w.members(id) {
		out[nodeName(st, i.Node)]++
	}
	return out
}

// node finds a machine.
func (w *world) node(id fsm.NodeID) *node {
	for _, n := range w.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// get reads through the API.
func (w *world) get(path string, into any) {
	w.t.Helper()
	raw, _, err := w.cli.Do(w.t.Context(), "GET", path, nil, nil)
	must(w.t, err)
	must(w.t, json.Unmarshal(raw, into))
}
