package ui

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// rollID is the roll that the broken world has.
const rollID = "01K7QG0000000000000000ROLL"

// more adds what the screens of jobs, rolls, servers and settings read to the answers of a world.
func (w *world) more(all map[string]any) {
	items := func(list any) map[string]any { return map[string]any{"items": decodedList(list)} }
	for _, j := range w.jobs {
		path := "/v1/jobs/" + string(j.Name)
		versions := w.versions(j)
		last := versions[len(versions)-1]
		all[path+"/versions"] = items(versions)
		all[path+"/versions/3/file"] = decoded(api.JobFile{Job: j.Name, Version: 3, Text: jobText(string(j.Name),
			j.Groups[0].Name,
			j.Groups[0].Count)})
		all[path+"/plan"] = decoded(w.plan(j))
		all[path+"/revert"] = decoded(api.RevertReply{Spec: &versions[1].Spec, JobReply: api.JobReply{Changed: true,
			RevertedTo: 2}})
		all["/v1/deployments/"+string(j.DeploymentID)] = decoded(api.Deployment{ID: j.DeploymentID, Job: j.Name, Version: 3,
			Status:    map[bool]model.DeploymentStatus{true: "rolling", false: "succeeded"}[len(w.problems) > 0],
			CreatedAt: last.CreatedAt, Index: 310, Groups: []api.DeploymentGroup{{Name: j.Groups[0].Name,
				Count: j.Groups[0].Count, Current: 2, Ready: 1, Old: j.Groups[0].Count - 2}}})
		all["/v1/budgets/"+string(j.Name)+"/"+j.Groups[0].Name] = decoded(w.budget(j))
		if j.Name == "web" {
			all["/v1/jobs/parse"] = decoded(api.JobFileSpec{Job: versions[1].Spec})
			all["/v1/jobs/validate"] = decoded(api.JobValidation{Job: versions[1].Spec, Budgets: []model.BudgetLine{},
				Warnings: []string{
					"group http has no check: an instance is ready as soon as its program runs"}})
		}
	}
	for _, d := range w.drains {
		d.Lanes = w.lanes(d)
		all["/v1/drains/"+string(d.ID)+"?lanes=true"] = decoded(d)
	}
	all["/v1/members"] = items(w.members())
	all["/v1/settings"] = decoded(api.Settings{Settings: model.DefaultSettings(), Index: 17})
	all["/v1/series"] = w.series()
	all["/v1/events?follow=false&subject=settings&tail=100"] = decodedList([]api.Event{{ID: "17.0",
		Type:    "settings.changed",
		Subject: "settings", Time: w.ago(9 * time.Hour), Index: 17, Actor: "cert:anna",
		Data: map[string]string{"offline_after": "30s -> 1m", "rescheduler": "off -> balanced"}}})
}

// lanes are those of a drain: what has moved, and what is still there.
func (w *world) lanes(d api.Drain) []api.DrainLane {
	lanes := []api.DrainLane{}
	for _, n := range d.Nodes {
		lane := api.DrainLane{Node: n.Node, NodeID: n.NodeID, Group: "web/http", State: model.ObservedStopped, Target: "n7"}
		at := func(seconds int) *time.Time {
			t := d.CreatedAt.Add(time.Duration(seconds) * time.Second)
			return &t
		}
		for i := range n.Moved {
			lane.Slot, lane.Instance, lane.Replacement = i, instanceID(100+i), instanceID(200+i)
			lane.ReservedAt, lane.StartedAt, lane.ReadyAt = at(1+10*i), at(3+10*i), at(12+10*i)
			lane.StoppingAt, lane.StoppedAt = at(14+10*i), at(20+10*i)
			lanes = append(lanes, lane)
		}
		for i, r := range n.Remaining {
			lanes = append(lanes, api.DrainLane{Node: n.Node, NodeID: n.NodeID, Instance: r.Instance, Group: "orders/db",
				Slot:  i,
				State: model.ObservedReady})
		}
	}
	return lanes
}

// jobText is a job file.
func jobText(job, group string, count int) string {
	return fmt.Sprintf(`job %q {
  group %q {
    count = %d
    exec {
      command = "/usr/local/bin/%s"
      args    = ["--listen", "0.0.0.0:${port.http}", "--log", "info"]
    }
    env = {
      DATABASE = "postgres://orders.internal:5432/orders"
    }
    resources {
      cpu    = 250
      memory = "1GiB"
    }
    port "http" {}
  }
}
`, job, group, count, job)
}

// versions are those of a job, the oldest first.
func (w *world) versions(j api.JobDetail) []api.JobVersion {
	g := j.Groups[0]
	spec := func(count int, env map[string]string, command string) model.JobSpec {
		return model.JobSpec{Name: j.Name, Class: "production", Groups: []model.GroupSpec{{Name: g.Name, Count: count,
			Role: g.Role, Exec: model.ExecSpec{Command: command, Args: []string{"--listen", "0.0.0.0:${port.http}"}},
			Env: env, Resources: model.Resources{CPU: 250, MemoryBytes: gib}}}}
	}
	command := "/usr/local/bin/" + string(j.Name)
	return []api.JobVersion{
		{Job: j.Name, Version: 1, Completed: true, Actor: "cert:anna", Index: 90, CreatedAt: w.ago(400 * time.Hour),
			Spec: spec(2, nil, command)},
		{Job: j.Name, Version: 2, Completed: true, Stable: true, Actor: "cert:ben", Index: 200,
			CreatedAt: w.ago(70 * time.Hour),
			Spec:      spec(g.Count, map[string]string{"LOG": "info"}, command), Message: "more room before the weekend"},
		{Job: j.Name, Version: 3, Current: true, Actor: "token:deploy", Index: 310, CreatedAt: w.ago(3 * time.Hour),
			Spec: spec(g.Count, map[string]string{"LOG": "debug", "CACHE": "/var/cache"}, command)},
	}
}

// plan is what a change of a job would do.
func (w *world) plan(j api.JobDetail) api.JobPlan {
	g := api.PlannedGroup{Group: model.GroupID(string(j.Name) + "/" + j.Groups[0].Name), Created: 3, Destroyed: 2, Kept: 4,
		Excluded: []model.Excluded{}, Budgets: []model.BudgetLine{}, Preempts: []model.InstanceID{}}
	if len(w.problems) > 0 {
		g.Unschedulable, g.Code, g.Message = 1, "no_capacity_memory", "1 node is offline, 4 nodes lack memory (needs 6 GiB)"
		g.Excluded = []model.Excluded{{Code: "no_capacity_memory", Nodes: 4}}
	}
	return api.JobPlan{Job: j.Name, Index: 310, Version: 4, Changes: true, Groups: []api.PlannedGroup{g}}
}

func (w *world) budget(j api.JobDetail) api.Budget {
	g := j.Groups[0]
	b := api.Budget{Name: string(j.Name) + "/" + g.Name, Scope: "group", Want: g.Count, MinReady: g.Count - 1, MaxDown: 1,
		Ready: g.Ready, Allowed: 1, Groups: []model.GroupID{model.GroupID(string(j.Name) + "/" + g.Name)}, Shared: []string{},
		Down: api.BudgetDown{ByCause: map[model.Cause]int{}},
		Text: "all but one must be ready: the default of the class production"}
	if down := g.Count - g.Ready; down > 0 {
		next := w.now.Add(40 * time.Second)
		b.Allowed, b.Down.Involuntary, b.Down.ByCause["failed"] = 0, down, down
		b.Rate = &api.BudgetRate{Max: 1, Window: model.Minute, Used: 1, NextAllowed: &next}
	}
	return b
}

// members are three servers; in a broken world one of them is silent.
func (w *world) members() []api.Member {
	var all []api.Member
	for i := range 3 {
		ends := w.now.Add(80 * 24 * time.Hour)
		all = append(all, api.Member{Name: fmt.Sprint("s", i+1), ID: model.ServerID(fmt.Sprintf("01k7qe5w9yab%014d", i)),
			Address: fmt.Sprintf("10.0.9.%d:7640", i+11), Gossip: fmt.Sprintf("10.0.9.%d:7642", i+11), Role: "voter",
			Voter:  true,
			Leader: i == 0, State: "alive", Answers: true, Version: "v0.1.0", IndexLag: uint64(i),
			MemberMachine: api.MemberMachine{Disk: "enough", FreeBytes: 40 * gib, TotalBytes: 64 * gib, CertificateEnds: &ends}})
	}
	if len(w.problems) > 0 {
		m := &all[1]
		m.State, m.Answers, m.IndexLag, m.Silent, m.Disk, m.FreeBytes = "failed", false, 12000, durationOf(2*time.Minute),
			"low",
			gib
	}
	return all
}

// series is an hour of every series that the page may ask for.
func (w *world) series() map[string]any {
	begin := w.now.Add(-time.Hour).Truncate(time.Minute).UTC()
	newest := begin.Add(time.Hour)
	s := api.Series{Server: "s1", From: begin, Step: model.Minute, Length: 61, Newest: &newest,
		Marks: []api.SeriesMark{{Time: begin.Add(20 * time.Minute), Term: 7, Server: "s1"}}}
	column := func(name, unit string, of func(i float64) float64) {
		c := api.SeriesColumn{Name: name, Unit: unit}
		for i := range s.Length {
			v := float32(of(float64(i)))
			if c.Values = append(c.Values, &v); i >= 20 && i < 24 {
				c.Values[i] = nil // during the election
			}
		}
		s.Items = append(s.Items, c)
	}
	nodes, instances := float64(len(w.nodes)), float64(len(w.instances))
	flat := func(v float64) func(float64) float64 { return func(float64) float64 { return v } }
	wave := func(mean, part float64) func(float64) float64 {
		return func(i float64) float64 { return mean * (1 + part*math.Sin(i/7)) }
	}
	for _, scope := range []string{"", "node_"} {
		column(scope+"memory_allocated", "bytes", wave(instances*float64(gib)*1.6, .05))
		column(scope+"memory_used", "bytes", wave(instances*float64(gib)*1.1, .1))
		column(scope+"cpu_allocated", "shares", wave(instances*250, .05))
		column(scope+"cpu_used", "shares", wave(instances*120, .4))
	}
	column("memory_capacity", "bytes", flat(nodes*32*float64(gib)))
	column("cpu_capacity", "shares", flat(nodes*8000))
	column("nodes_active", "", flat(nodes-min(nodes, 5)))
	column("nodes_draining", "", flat(min(nodes, 1)))
	for _, name := range []string{"nodes_cordoned", "nodes_offline", "instances_lost"} {
		column(name, "", flat(0))
	}
	for _, name := range []string{"instances_ready", "instances_wanted", "job_ready", "job_wanted", "job_running"} {
		column(name, "", flat(instances))
	}
	column("instances_ending", "", func(i float64) float64 { return float64(int(i) / 20) })
	column("raft_entries", "per_second", wave(30, .5))
	column("raft_silence", "seconds", wave(.4, .2))
	column("sync_mean", "seconds", wave(.002, .3))
	column("sync_max", "seconds", wave(.02, .6))
	column("apply_max", "seconds", wave(.004, .6))
	column("server_memory", "bytes", wave(180e6, .1))
	column("server_heap", "bytes", wave(90e6, .2))
	return decoded(s)
}

// logs are what the job web prints.
func (w *world) logs() string {
	var text strings.Builder
	for i := range 40 {
		line := fmt.Sprintf("GET /orders/%d 200 %d ms", 4000+i*17, i%40)
		if i%9 == 4 {
			line = `{"level":"error","msg":"no answer","url":"http://10.0.0.12:8080/v1/charge?account=` +
				strings.Repeat("0123456789abcdef", 4) + `","took":"2.004s"}`
		}
		fmt.Fprintf(&text, "http[%d] 01AAAAAA | %s %s\n", i%12, w.ago(time.Duration(40-i)*time.Second).Format(time.RFC3339),
			line)
	}
	return text.String()
}

// roll adds a roll of n9 to n13, with a node in each column of its board.
func (w *world) roll() {
	plan := &model.Roll{ID: rollID, Parallel: 2}
	for i := range 5 {
		n := &w.nodes[i+8]
		plan.Nodes = append(plan.Nodes, n.Name)
		n.BootID = "before"
		if i == 4 {
			break // its turn comes
		}
		begun := w.ago(time.Duration(50-10*i) * time.Minute)
		part := api.DrainNode{Node: n.Name, NodeID: n.ID, Phase: []model.DrainPhase{"drained", "drained", "draining",
			"failed"}[i],
			Turn: true, BootID: "before", Moved: 4 - i, StartedAt: &begun, Remaining: []api.DrainRemaining{},
			Blockers: []api.DrainBlocker{}}
		switch i {
		case 0:
			n.BootID = "after"
		case 3:
			part.LastError = "the deadline passed: orders/db allows no more to be away"
			fallthrough
		default:
			n.Intent, n.State, n.Eligible, n.Reason = "draining", "draining", false, "it is draining"
		}
		if i == 2 {
			part.Remaining = append(part.Remaining, api.DrainRemaining{Instance: instanceID(3), Class: "stateless",
				State: "ready"})
		}
		w.drains = append(w.drains, api.Drain{ID: model.DrainID(fmt.Sprintf("%s.%d.1", rollID, i+1)), Phase: part.Phase,
			Actor: "cert:anna", Message: "kernel 6.12.5", Index: uint64(i + 1), CreatedAt: begun, Nodes: []api.DrainNode{part},
			Options: model.DrainOptions{Deadline: durationOf(time.Hour), Roll: plan}, Rejected: []model.DrainRefusal{}})
	}
	for i := range w.drains {
		if w.drains[i].Options.Roll != nil {
			w.drains[i].Options.Roll = plan // with all nodes
		}
	}
}
