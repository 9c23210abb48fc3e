package ui

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// world is a cluster that the page is shown. What its operations answer comes from the types of the API.
type world struct {
	now       time.Time
	nodes     []api.Node
	jobs      []api.JobDetail
	instances []api.Instance
	drains    []api.Drain
	problems  []api.ProblemRow
	events    []api.Event
	blockers  []api.DrainBlocker
}

const gib = int64(1) << 30

func (w *world) ago(d time.Duration) time.Time { return w.now.Add(-d).UTC().Truncate(time.Second) }

func nodeID(i int) model.NodeID { return model.NodeID(fmt.Sprintf("01k7qe5w9yaa%014d", i)) }
func instanceID(i int) model.InstanceID {
	text := strconv.FormatUint(uint64(i)*0x9e3779b97f4a7c15, 36) + strconv.FormatUint(uint64(i)*0x9e3779b9+7e9, 36)
	return model.InstanceID(text[:16])
}

// newWorld makes a cluster in which all is well, with so many nodes in racks of 16, and so many instances.
func newWorld(nodes, instances int) *world {
	w := &world{now: time.Now()}
	for i := range nodes {
		seen := w.ago(time.Second)
		w.nodes = append(w.nodes, api.Node{ID: nodeID(i + 1), Name: fmt.Sprintf("n%d", i+1), State: "active",
			Intent: "active",
			Health: "online", Eligible: true, Labels: map[string]string{"rack": fmt.Sprintf("r%d", i/16+1), "disk": "nvme"},
			Attributes: map[string]string{"arch": "amd64", "kernel": "6.12.0"}, Address: fmt.Sprintf("10.0.%d.%d", i/200,
				i%200+11),
			Version: "v0.1.0", Warnings: []string{}, Capacity: api.Amounts{CPU: 8000, MemoryBytes: 32 * gib},
			Reserved: api.Amounts{CPU: 500, MemoryBytes: gib}, LastSeen: &seen, Acked: []model.InstanceID{},
			Avoid: []api.Avoidance{}, Unknown: []api.UnknownInstance{}, PortProblems: []api.PortProblem{},
			Troubles: []api.Trouble{}})
	}
	for _, j := range []struct {
		name, group string
		role        model.Role
		share       int // of the instances, in percent
	}{{"web", "http", "service", 45}, {"orders", "db", "local", 15}, {"search", "index", "service", 25}, {"logs",
		"ship", "system", 15}} {
		if instances == 0 {
			break
		}
		n := max(1, instances*j.share/100)
		for slot := range n {
			w.place(j.name, j.group, slot)
		}
		w.jobs = append(w.jobs, api.JobDetail{Job: api.Job{Name: model.JobName(j.name), Version: 3, Class: "production",
			Status: api.JobRunning, Stable: 3, DeploymentID: model.DeploymentID(j.name + "-3"),
			Groups: []api.JobGroup{{Name: j.group, Role: j.role, Version: 3, Count: n,
				Ready:  n,
				Placed: n}}}, Avoids: []api.JobAvoidsNode{}})
		last := &w.jobs[len(w.jobs)-1]
		last.Spec = w.versions(*last)[2].Spec
	}
	for i := range min(300, instances*2) {
		in := w.instances[i%len(w.instances)]
		w.events = append(w.events, api.Event{ID: fmt.Sprintf("%d.0", i+40), Type: "instance.state",
			Subject: "instance/" + string(in.ID),
			Time:    w.ago(time.Hour - time.Duration(i)*11*time.Second), Index: uint64(i + 40), Cause: "scale_up",
			Actor: "leader",
			Data:  map[string]string{"before": "booting", "after": "ready", "node": string(in.NodeID)}})
	}
	return w
}

// place puts an instance on the next node.
func (w *world) place(job, group string, slot int) {
	i := len(w.instances)
	n := &w.nodes[i*7%len(w.nodes)]
	started := w.ago(time.Duration(i%90+3) * time.Hour)
	r := api.InstanceResources{CPU: 250, MemoryBytes: gib + int64(i%5)*gib/2}
	w.instances = append(w.instances, api.Instance{ID: instanceID(i + 1), Job: model.JobName(job), Group: group,
		Slot: slot,
		Node: n.Name, NodeID: n.ID, Desired: "running", Observed: "ready", Ready: true, Cause: "scale_up", Version: 3,
		Class: "stateless", Address: n.Address, Ports: map[string]int{"http": 20000 + i%9000}, Resources: r,
		CreatedAt: started.Add(-4 * time.Second), StartedAt: &started, Awaits: []model.InstanceID{},
		Eviction: api.Eviction{WaitingFor: []model.Code{}}})
	n.Instances++
	n.Allocated.CPU += r.CPU
	n.Allocated.MemoryBytes += r.MemoryBytes
}

// breakSome gives the world what a person should look at: nodes in each state, failed instances, and a blocked drain.
func (w *world) breakSome() *world {
	set := func(i int, state model.NodeState, intent model.Intent, reason string) {
		n := &w.nodes[i%len(w.nodes)]
		n.State, n.Intent, n.Eligible, n.Reason = state, intent, false, reason
	}
	set(1, "draining", "draining", "it is draining")
	set(2, "offline", "active", "its agent has not been heard for 4 min")
	set(3, "cordoned", "cordoned", "cordoned by cert:anna: disk replaced on Friday")
	set(4, "degraded", "active", "the disk of its data is slow")
	set(5, "unreachable", "active", "its agent was not heard for 22 s")
	late := w.ago(4 * time.Minute)
	w.nodes[2].LastSeen, w.nodes[1].DrainID = &late, "01K7QG00000000000000DRAIN1"
	w.nodes[1].DrainPhase = model.PhaseDraining
	w.nodes[4].Troubles = []api.Trouble{{Check: "disk_slow", Reason: "a write to /var/lib/outspan took 1.9 s"}}
	var db model.InstanceID
	for i := range w.instances {
		in := &w.instances[i]
		switch {
		case in.Node == "n3":
			in.Observed, in.Ready, in.Reason = "lost", false, "its node n3 is offline"
		case in.Job == "orders" && db == "":
			db, in.Node, in.NodeID, in.Class = in.ID, "n2", w.nodes[1].ID, "stateful"
		case i%17 == 5:
			in.Observed, in.Ready, in.Restarts, in.Reason = "unready", false, 4, "check http: connection refused"
		}
	}
	w.jobs[0].Status, w.jobs[0].Groups[0].Ready = api.JobStarting, w.jobs[0].Groups[0].Ready-2
	w.jobs[1].Status, w.jobs[1].Groups[0].Pending = api.JobPending, 1
	w.jobs[1].Groups[0].Message = "1 node is offline, 4 nodes lack memory (needs 6 GiB)"
	w.blockers = []api.DrainBlocker{{Code: "budget_min_ready", Instance: db,
		Message: "the budget of orders/db allows no more " +
			"to be away: 2 of 3 are ready and 2 have to be",
		Unblock: "wait until one more is ready, or outspan budget set orders-db " +
			"--min-ready 1"}}
	deadline := w.now.Add(42 * time.Minute)
	started := w.ago(3 * time.Minute)
	w.drains = []api.Drain{{ID: "01K7QG00000000000000DRAIN1", Phase: "draining", Actor: "cert:anna",
		Message: "kernel 6.12.4",
		Options: model.DrainOptions{Deadline: durationOf(time.Hour)}, Rejected: []model.DrainRefusal{}, CreatedAt: started,
		Nodes: []api.DrainNode{{Node: "n2", NodeID: w.nodes[1].ID, Phase: "draining", Turn: true, StartedAt: &started,
			Deadline: &deadline, Moved: 3, Remaining: []api.DrainRemaining{{Instance: db, Class: "stateful", State: "ready",
				Blocker: "budget_min_ready"}}, Blockers: w.blockers}}}}
	for i := range 3 {
		begun := w.ago(time.Duration(i*9+20) * time.Hour)
		w.drains = append(w.drains, api.Drain{ID: model.DrainID(fmt.Sprintf("01K7QG00000000000000DRAIN%d", i+2)),
			Phase: []model.DrainPhase{"drained", "canceled", "failed"}[i], Actor: "cert:anna", CreatedAt: begun,
			Rejected: []model.DrainRefusal{}, Nodes: []api.DrainNode{{Node: fmt.Sprintf("n%d", i+7), Phase: "drained",
				Moved:     6 - i,
				Remaining: []api.DrainRemaining{}, Blockers: []api.DrainBlocker{}}}})
	}
	w.problems = []api.ProblemRow{
		{Code: api.ProblemNodeOffline, Subject: "node/n3",
			Message: "its agent has not been heard for 4 min; 2 instances ran there",
			Next:    "look at the machine; if it is off for good: outspan node dead n3"},
		{Code: api.ProblemDrainBlocked, Subject: "drain/01K7QG00000000000000DRAIN1", Message: w.blockers[0].Message,
			Next: "outspan drain status 01K7QG00000000000000DRAIN1"},
		{Code: api.ProblemNodeDegraded, Subject: "node/n5", Message: "a write to /var/lib/outspan took 1.9 s",
			Next: "outspan why n5"},
		{Code: api.ProblemUnplaced, Subject: "group/orders/db", Message: w.jobs[1].Groups[0].Message,
			Next: "outspan why orders"},
		{Code: api.ProblemBackup, Subject: "cluster", Message: "the last backup of the state is 9 d old",
			Next: "outspan snapshot save FILE"},
		{Code: api.ProblemServerSilent, Subject: "server/s2", Message: "it has not answered the leader for 2 min",
			Next: "look at the machine: outspan server members"},
	}
	w.roll()
	return w
}

// status is what the world answers to GET /v1/status.
func (w *world) status() map[string]any {
	s := api.Status{Cluster: "harbour", Leader: "s1", Index: 4711, Format: 1, Version: "v0.1.0", Time: w.now,
		Nodes: map[string]int{"total": len(w.nodes)}, Instances: map[string]int{},
		Jobs:     map[string]int{"total": len(w.jobs)},
		Problems: w.problems, Drains: []api.Drain{}}
	for _, n := range w.nodes {
		s.Nodes[string(n.State)]++
	}
	for _, i := range w.instances {
		s.Instances[string(i.Observed)]++
	}
	for _, d := range w.drains {
		if d.Phase == "draining" {
			s.Drains = append(s.Drains, d)
		}
	}
	if s.Problems == nil {
		s.Problems = []api.ProblemRow{}
	}
	return decoded(s)
}

// answers returns what the world's operations answer, by path, or by path and query where that matters.
func (w *world) answers() map[string]any {
	items := func(list any) map[string]any { return map[string]any{"items": decodedList(list)} }
	all := map[string]any{"/v1/auth/whoami": map[string]any{"subject": "cert:anna", "verbs": []string{}, "local": true},
		"/v1/auth/can-i": map[string]any{"allowed": true}, "/v1/status": w.status(), "/v1/nodes": items(w.nodes),
		"/v1/jobs": items(w.jobs), "/v1/instances": items(w.instances), "/v1/drains": items(w.drains),
		"/v1/events": decodedList(w.events), "/v1/why": decoded(w.why())}
	for i := range min(20, len(w.nodes)) {
		n := w.nodes[i]
		all["/v1/nodes/"+n.Name] = decoded(n)
		all["/v1/instances?node="+url.QueryEscape(
			n.Name)] = items(w.of(func(i api.Instance) bool { return i.Node == n.Name }))
	}
	for _, j := range w.jobs {
		all["/v1/jobs/"+string(j.Name)] = decoded(j)
		all["/v1/instances?job="+url.QueryEscape(
			string(j.Name))] = items(w.of(func(i api.Instance) bool { return i.Job == j.Name }))
	}
	for _, i := range w.instances[:min(50, len(w.instances))] {
		all["/v1/instances/"+string(i.ID)] = decoded(i)
	}
	for _, d := range w.drains {
		all["/v1/drains/"+string(d.ID)] = decoded(d)
	}
	w.more(all)
	return all
}

func (w *world) of(fits func(api.Instance) bool) []api.Instance {
	found := []api.Instance{}
	for _, i := range w.instances {
		if fits(i) {
			found = append(found, i)
		}
	}
	return found
}

func (w *world) why() api.Why {
	score := int64(71)
	return api.Why{State: "ready", Blockers: w.blockers, Next: "outspan drain status n2", Chain: []api.WhyLink{
		{Index: 311, Time: w.ago(3 * time.Hour), Cause: "scale_up", Actor: "cert:anna",
			Text: "wanted: web has 18 instances"},
		{Index: 312, Time: w.ago(3 * time.Hour), Cause: "scale_up", Actor: "leader", Text: "placed on " + string(nodeID(2))},
		{Index: 340, Time: w.ago(3*time.Hour - 4*time.Second), Cause: "scale_up", Actor: "agent:n2",
			Text: "booting -> ready"},
	}, Considered: []api.WhyConsidered{{Node: "n2", NodeID: nodeID(2), Score: &score},
		{Node: "n3", NodeID: nodeID(3), ExcludedBy: "no_capacity_memory"}}}
}

// forecast is what POST /v1/drains answers to a dry run for the node n2, and to the start.
func (w *world) forecast(dry bool) map[string]any {
	r := api.DrainReply{Started: []string{"n2"}, Rejected: []model.DrainRefusal{}, Forecast: []api.DrainForecast{}}
	if !dry {
		r.Drain = "01K7QG00000000000000DRAIN1"
	}
	for k, i := range w.of(func(i api.Instance) bool { return i.Node == "n2" }) {
		f := api.DrainForecast{Node: "n2", NodeID: i.NodeID, Instance: i.ID, Group: model.GroupID(string(i.Job) + "/" +
			i.Group),
			Class: i.Class, Action: "move", Target: fmt.Sprintf("n%d", 7+k),
			After: durationOf(time.Duration(k*6+9) * time.Second)}
		if i.Job == "orders" && len(w.blockers) > 0 {
			f.Action, f.Blocker, f.Message, f.Unblock = "wait", w.blockers[0].Code, w.blockers[0].Message, w.blockers[0].Unblock
		}
		r.Forecast = append(r.Forecast, f)
	}
	return decoded(r)
}

// decoded returns a value as JSON decodes it, so that tests can change what they like.
func decoded(v any) (m map[string]any) { recode(v, &m); return m }

func decodedList(v any) (l []any) {
	if recode(v, &l); l == nil {
		l = []any{}
	}
	return l
}

func recode(v, into any) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		panic(err) // the types of the API can be written and read
	}
}

// serve makes a cluster that answers as the world does.
func (w *world) serve(t *testing.T) *cluster {
	t.Helper()
	c := newCluster()
	clear(c.answers)
	c.set(w.answers())
	c.answers["/v1/jobs/web/logs"] = w.logs()
	c.started, c.dry, c.quiet = w.forecast(false), w.forecast(true), true
	return c
}

func durationOf(d time.Duration) model.Duration { return model.Duration(d.Milliseconds()) }
