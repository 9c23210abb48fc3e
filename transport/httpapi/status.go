package httpapi

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
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
	return api.Hold{Active: r.Hold.Active, Since: wallTimeOrNil(r.Hold.SinceWall), Reason: r.Hold.Reason}
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
