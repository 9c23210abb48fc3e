package bubble

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const mib = 1 << 20

// group returns a group whose programs are simulated in memory.
func group(name string, count int, memory int64) model.GroupSpec {
	return model.GroupSpec{Name: name, Count: count, Exec: model.ExecSpec{Command: "/program"},
		Resources: model.Resources{MemoryBytes: memory}}
}

func amount(n int) *model.Amount { return &model.Amount{N: n} }

func (w *world) submit(name string, groups ...model.GroupSpec) error {
	_, err := w.send("/v1/jobs", map[string]any{"job": model.JobSpec{Name: model.JobName(name), Groups: groups}})
	return err
}

// run submits a job and waits until all of its instances are ready. It returns the id of the job's first group.
func (w *world) run(name string, groups ...model.GroupSpec) model.GroupID {
	w.t.Helper()
	must(w.t, w.submit(name, groups...))
	for _, g := range groups {
		w.ready(model.NewGroupID(model.JobName(name), g.Name), g.Count, time.Minute)
	}
	return model.NewGroupID(model.JobName(name), groups[0].Name)
}

// ready waits until the given number of a group's instances are ready, and returns how long that took.
func (w *world) ready(id model.GroupID, count int, limit time.Duration) time.Duration {
	w.t.Helper()
	return w.eventually(limit, fmt.Sprintf("%d of %s ready", count, id), func() bool {
		st := w.state()
		g, ok := st.Groups.Get(id)
		return ok && g.Ready == count
	})
}

// choices is the body of a request for a drain, with those options that tests use.
type choices struct {
	Nodes    []string       `json:"nodes"`
	Deadline model.Duration `json:"deadline,omitempty"`
}

func (w *world) drain(c choices) (model.DrainID, error) {
	raw, err := w.send("/v1/drains", c)
	if err != nil {
		return "", err
	}
	var reply struct {
		Drain model.DrainID `json:"drain"`
	}
	if err := json.Unmarshal(raw, &reply); err != nil || reply.Drain == "" {
		return "", fmt.Errorf("the answer %s names no drain: %w", raw, err)
	}
	return reply.Drain, nil
}

// part returns one node's part of a drain.
func (w *world) part(id model.DrainID, n *node) fsm.DrainNode {
	w.t.Helper()
	st := w.state()
	d, ok := st.Drains.Get(id)
	if !ok {
		w.t.Fatalf("there is no drain %s\n%s", id, w.picture())
	}
	part, _ := d.Node(n.id)
	return part
}

// members returns the instances of a group that should run, by id.
func (w *world) members(id model.GroupID) map[model.InstanceID]fsm.Instance {
	st := w.state()
	out := map[model.InstanceID]fsm.Instance{}
	for i := range st.InstancesOf(id) {
		if i.Desired == model.DesiredRunning {
			out[i.ID] = *i
		}
	}
	return out
}

// on returns how many instances of a group should run on each node, by the node's name.
func (w *world) on(id model.GroupID) map[string]int {
	st := w.state()
	out := map[string]int{}
	for _, i := range w.members(id) {
		out[nodeName(st, i.Node)]++
	}
	return out
}

// node returns the machine with this node id, or nil if there is none.
func (w *world) node(id model.NodeID) *node {
	for _, n := range w.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// get reads the object at a path of the API, and decodes its JSON.
func (w *world) get(path string, into any) {
	w.t.Helper()
	raw, _, err := w.cli.Do(w.t.Context(), "GET", path, nil, nil)
	must(w.t, err)
	must(w.t, json.Unmarshal(raw, into))
}
