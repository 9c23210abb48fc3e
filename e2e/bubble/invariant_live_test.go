package bubble

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/model"
)

const (
	leaderWithin   = 10 * electionTimeout // L1: time until there is a leader
	drainSlack     = 5 * time.Second      // L2: time after the deadline until the entry that ends the drain
	quietAfter     = 10 * time.Second     // L3: time until work in progress has finished
	quietFor       = 20 * time.Second     // L3: time in which nothing may be written
	detectionSlack = 2 * time.Second      // L4: time beyond offline_after and two heartbeats
)

// leadsAgain checks L1: if a majority of servers can communicate, there is a leader within ten election timeouts. It
// returns how long that took.
func (w *world) leadsAgain() time.Duration {
	w.t.Helper()
	return w.eventually(leaderWithin, "L1: a majority that can talk has a leader", func() bool { return w.leads() != nil })
}

// drainsEnd checks L2: each node's part of a drain gets its turn, and ends within drainSlack of its deadline. Parts
// without a deadline are ignored. Drains can't end without a leader or while decisions are paused. So if a deadline
// passed before this call, drainSlack begins with the call.
func (w *world) drainsEnd() {
	w.t.Helper()
	w.leader()
	began := w.now()
	w.eventually(10*time.Minute, "L2: drains end", func() bool {
		st, now, going := w.state(), w.now(), false
		for id, d := range st.Drains.All() {
			for _, n := range d.Nodes {
				if n.Phase != model.PhaseDraining || n.Deadline == model.Never {
					continue
				}
				going = true
				if n.Turn && now > max(n.Deadline, began).Add(model.Duration(drainSlack.Milliseconds())) {
					w.t.Errorf("L2: drain %s goes on at %d on node %s, its deadline was %d", id, now, nodeName(st, n.Node), n.Deadline)
					return true
				}
			}
		}
		return !going
	})
}

// now returns the leader's cluster time. Without a leader it returns the time of the latest state.
func (w *world) now() model.Time {
	if leader := w.leads(); leader != nil {
		return leader.cluster.Now()
	}
	return w.state().Now
}

// quiet checks L3: a settled cluster writes nothing. It first gives work in progress time to finish.
func (w *world) quiet() {
	w.t.Helper()
	time.Sleep(quietAfter)
	index := w.state().Index
	time.Sleep(quietFor)
	if got := w.state().Index; got != index {
		w.t.Errorf("L3: settled, and %d entries were written:%s\n%s", got-index, said(w.history.since(index)), w.picture())
	}
}

// said describes the commands of entries, one on each line.
func said(entries []committed) string {
	var b strings.Builder
	for _, e := range entries {
		for _, group := range e.Groups {
			for _, c := range group {
				fmt.Fprintf(&b, "\n\t%d at %d, %s: %T %+v", e.index, e.At, e.Actor, c, c)
			}
		}
	}
	return b.String()
}

// offlineWithin checks L4: a node that is gone is marked offline within offline_after, two heartbeat intervals and 2 s.
// It returns how long that took.
func (w *world) offlineWithin(n *node) time.Duration {
	w.t.Helper()
	threshold := time.Duration(w.state().Settings.OfflineAfter) * time.Millisecond
	h := min(max(threshold/6, 300*time.Millisecond), 10*time.Second)
	return w.eventually(threshold+2*h+detectionSlack, "L4: "+n.name+" is offline", func() bool {
		return n.row().Health == model.HealthOffline
	})
}

// settle ends all work and all faults, and expects the cluster to come to rest: there is a leader (L1), drains end
// (L2), exactly what is wanted runs, and nothing is written (L3). Then a machine loses power. It must be marked offline
// in time (L4), and everything must run again after its return.
func (k *work) settle() {
	w := k.w
	w.t.Helper()
	k.say("settle")
	w.net.Lose(0, 0)
	k.mend(time.Now().Add(time.Hour))
	w.net.Heal()
	w.truth.calm()
	w.leadsAgain()
	k.restore()
	w.drainsEnd()
	k.reactivate()
	k.rest()
	k.look()
	w.quiet()
	w.agree()
	if w.t.Failed() {
		return
	}
	n := k.node()
	n.powerOff()
	w.offlineWithin(n)
	n.restart()
	k.rest()
}

// restore undoes what operators changed. It ends pauses, resets settings and quotas, purges jobs that are not in the
// cast, and submits the jobs of the cast again.
func (k *work) restore() {
	w := k.w
	for _, change := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/v1/settings/resume", map[string]any{"what": "actuation"}},
		{"PUT", "/v1/settings",
			map[string]any{"rate_drain": "none", "rate_operator": "none", "rescheduler": "off", "evict_on": "drain"}},
		{"PUT", "/v1/classes/batch", map[string]any{"quota_instances": 0}},
		{"PUT", "/v1/classes/production", map[string]any{"quota_instances": 0}},
	} {
		w.eventually(time.Minute, "restore "+change.path, func() bool {
			return k.sendBy(w.cli, change.method, change.path, change.body) == nil
		})
	}
	st := w.state()
	for id, d := range st.Drains.All() {
		if d.Paused && d.Phase() == model.PhaseDraining {
			k.ask("/v1/drains/"+string(id)+"/resume", map[string]any{})
		}
	}
	for name := range st.Jobs.All() {
		if !slices.ContainsFunc(k.cast, func(j model.JobSpec) bool { return j.Name == name }) {
			w.eventually(time.Minute, "stop "+string(name), func() bool {
				now := w.state()
				return !now.Jobs.Has(name) ||
					k.sendBy(w.cli, "POST", "/v1/jobs/"+string(name)+"/stop", map[string]any{"purge": true}) == nil
			})
		}
	}
	for _, job := range k.cast {
		if g, ok := st.Groups.Get(model.NewGroupID(job.Name, job.Groups[0].Name)); ok && g.Count > 0 && g.Running == 0 {
			job = k.renewed(job) // no member can report that a start is safe; submitting a new version confirms that
		}
		w.eventually(2*time.Minute, "submit "+string(job.Name), func() bool {
			return k.sendBy(w.cli, "POST", "/v1/jobs", map[string]any{"job": job}) == nil
		})
	}
}

// renewed returns a changed copy of a job, which becomes a new version when it is submitted.
func (k *work) renewed(job model.JobSpec) model.JobSpec {
	job.Groups = slices.Clone(job.Groups)
	g := &job.Groups[0]
	g.Env = maps.Clone(g.Env)
	g.Env["RELEASE"] = "last"
	return job
}

// reactivate makes every node active, and waits until all nodes are active.
func (k *work) reactivate() {
	w := k.w
	w.eventually(time.Minute, "every node is active", func() bool {
		active := true
		for _, n := range w.nodes {
			switch n.row().Intent {
			case model.IntentActive:
				continue
			case model.IntentDisabled:
				k.ask("/v1/nodes/"+n.name+"/enable", map[string]any{})
			default:
				k.ask("/v1/nodes/"+n.name+"/uncordon", map[string]any{})
			}
			active = false
		}
		return active
	})
}

// restsWithin limits the time until everything runs. Nodes that flapped get no new instances for up to 30 minutes,
// failed programs wait for their next try, and holds end after a minute.
const restsWithin = 45 * time.Minute

// rest waits until everything that is wanted runs once, and nothing else runs. Meanwhile it does what an operator
// would: it promotes canaries, and restarts jobs that lack ready instances.
func (k *work) rest() {
	w := k.w
	w.t.Helper()
	asked, again := time.Now(), time.Now()
	w.eventually(restsWithin, "L2: everything that is wanted runs once, and nothing else", func() bool {
		st := w.state()
		for id, d := range st.Deployments.All() {
			if !d.Status.Ended() {
				if time.Since(asked) > time.Second { // canaries may wait for a person to promote them
					asked = time.Now()
					_ = k.sendBy(w.cli, "POST", "/v1/deployments/"+string(id)+"/promote", map[string]any{})
				}
				return false
			}
		}
		for _, n := range st.Nodes.All() {
			if n.Health != model.HealthOnline {
				return false
			}
			// New instances may wait until this node, which has flapped, may get instances again.
			if l := w.leads(); l == nil || n.Return.HeldUntil > l.cluster.Now() {
				return false
			}
		}
		for _, i := range st.Instances.All() {
			if i.Desired == model.DesiredRunning && i.Eviction.Requested { // its hook failed, and is tried again later
				return false
			}
		}
		total := 0
		for _, g := range st.Groups.All() {
			total += g.Ready
		}
		if time.Since(again) > time.Minute { // an operator would restart jobs whose rollout failed
			again = time.Now()
			for id, g := range st.Groups.All() {
				if name, _ := id.Split(); g.Ready < g.Count {
					k.ask("/v1/jobs/"+string(name)+"/restart", map[string]any{})
				}
			}
		}
		return !st.Hold.Active && w.unready() == "" && len(w.truth.running()) == total
	})
}
