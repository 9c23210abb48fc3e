package httpapi

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

type statusRead struct{ ReadParams }

func (s *Server) statusOperations() []operation {
	return []operation{
		read(s, getRoute("status", "/v1/status", "status", "Show the cluster in one look"),
			topics[statusRead]("nodes", "jobs", "drains", "deployments", "settings", "newcomers"), s.status),
	}
}

func (s *Server) status(ctx context.Context, r *reading, _ *statusRead) (api.Status, error) {
	v := api.Status{
		Cluster: r.Cluster.Name, ClusterID: r.Cluster.ID, Servers: []api.Member{}, Drains: []api.Drain{},
		Deployments: []api.Deployment{},
		Nodes:       r.countNodes(), Jobs: r.countJobs(), Instances: r.countInstances(), Hold: r.hold(),
		Paused:      r.Settings.Paused,
		Unconfirmed: r.Unconfirmed, Format: r.Format, Version: s.cfg.Version, Index: r.Index,
		Time: r.wall.UTC().Truncate(time.Millisecond),
	}
	if leader, _, ok := s.cfg.Consensus.Leader(); ok {
		v.Leader = leader.Name
	}
	members, err := s.members(ctx)
	if err != nil {
		return v, err
	}
	slices.SortFunc(members, func(x, y ServerEntry) int { return strings.Compare(x.Name, y.Name) })
	v.Servers = shown(members)
	v.Differing = notNil(s.differing())
	v.Problems = s.problems(r, members, v.Differing).rows()
	for _, d := range r.State.Drains.All() {
		if d.Phase() == model.PhaseDraining {
			v.Drains = append(v.Drains, r.drain(d))
		}
	}
	for _, d := range r.State.Deployments.All() {
		if !d.Status.Ended() {
			v.Deployments = append(v.Deployments, r.deployment(d))
		}
	}
	return v, nil
}

// members returns the servers, or nil if Config has no list of servers.
func (s *Server) members(ctx context.Context) ([]ServerEntry, error) {
	if s.cfg.Servers.List == nil {
		return nil, nil
	}
	return s.cfg.Servers.List.Members(ctx)
}

func (s *Server) differing() []api.DifferentState {
	if s.cfg.Servers.Verifier == nil {
		return nil
	}
	return s.cfg.Servers.Verifier.Differing()
}

func (r *reading) hold() api.Hold {
	v := api.Hold{Active: r.Hold.Active, Since: wallTimeOrNil(r.Hold.SinceWall), Reason: r.Hold.Reason,
		Nodes: []api.OutNode{}}
	if !v.Active {
		return v
	}
	if r.Hold.Calm != 0 {
		calm := r.wall.Add(-time.Duration(r.now-r.Hold.Calm) * time.Millisecond).UTC().Truncate(time.Millisecond)
		v.CalmSince = &calm
	}
	live, judged := r.question().Live, 0
	v.Domain = r.DomainOut(func(n *fsm.Node) bool {
		why := outReason(r, n, live[n.ID])
		return why != "" && why != api.OutUnheard
	})
	for id, n := range r.Nodes.All() {
		if n.Judged() {
			judged++
		}
		if why := outReason(r, n, live[id]); why != "" {
			v.Nodes = append(v.Nodes, api.OutNode{Node: veiled(r.veil, "node", n.Name), NodeID: id, Why: why,
				LastSeen: lastSeen(r, id)})
		}
	}
	v.CalmNodes = fsm.HoldCalm(judged)
	return v
}

// outReason returns why a node counts toward HOLD, or "" if it does not. A node that nobody expects to run anything
// never counts: it is disabled, emptied, or confirmed dead.
func outReason(r *reading, n *fsm.Node, live fsm.Liveness) api.OutReason {
	limit := 3 * fsm.HeartbeatInterval(r.Settings.OfflineAfter)
	if live.Unheard {
		limit = max(r.Settings.OfflineAfter, fsm.UnheardFor)
	}
	switch {
	case !n.Judged():
		return ""
	case n.Health == model.HealthOffline:
		return api.OutOffline
	case live.SeenBy == "" && !live.Paused && live.Age > limit && !live.Awaited(&r.State, r.now):
		return api.OutSilent
	case n.Troubled():
		return api.OutSick
	case live.Unheard && live.SeenBy == "":
		return api.OutUnheard
	}
	return ""
}

func (r *reading) countNodes() map[string]int {
	counts := map[string]int{"total": r.Nodes.Len()}
	for _, state := range [...]model.NodeState{model.NodeActive, model.NodeCordoned, model.NodeDraining,
		model.NodeDisabled, model.NodeDegraded, model.NodeUnreachable, model.NodeOffline} {
		counts[string(state)] = 0
	}
	for _, n := range r.Nodes.All() {
		counts[string(n.State())]++
	}
	return counts
}

func (r *reading) countJobs() map[string]int {
	counts := map[string]int{"total": r.Jobs.Len()}
	for _, status := range [...]api.JobStatus{api.JobRunning, api.JobPending, api.JobStarting, api.JobDegraded,
		api.JobStopping, api.JobStopped} {
		counts[string(status)] = 0
	}
	for _, j := range r.Jobs.All() {
		counts[string(r.job(j).Status)]++
	}
	return counts
}

func (r *reading) countInstances() map[string]int {
	counts := map[string]int{"total": 0}
	for _, o := range observedStates() {
		counts[string(o)] = 0
	}
	for _, i := range r.Instances.All() {
		if i.Desired == model.DesiredRunning {
			counts["total"]++
			counts[string(i.Status.Observed)]++
		}
	}
	return counts
}

func observedStates() []model.Observed {
	return []model.Observed{
		model.ObservedPending, model.ObservedBooting, model.ObservedReady, model.ObservedUnready,
		model.ObservedDraining, model.ObservedStopped,
		model.ObservedFailed, model.ObservedLost,
	}
}
