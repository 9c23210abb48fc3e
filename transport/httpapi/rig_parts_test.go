package httpapi_test

import (
	"context"
	"io"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// store is the rig's machine. It counts how often somebody begins to wait for a topic.
type store struct {
	*fsm.Machine
	r *rig
}

// WatchTopic implements httpapi.Store.
func (s store) WatchTopic(t fsm.Topic) (<-chan struct{}, func()) {
	woken, cancel := s.Machine.WatchTopic(t)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.watched[t]++
	return woken, cancel
}

// waits returns how often somebody began to wait for a topic.
func (r *rig) waits(t fsm.Topic) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watched[t]
}

// Leader implements httpapi.Consensus.
func (s *server) Leader() (transport.ServerInfo, bool, bool) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	l, ok := s.r.servers[s.r.lead]
	if !ok { // as a server that raft has elected and that has not proved it yet
		return transport.ServerInfo{ID: model.ServerID("id-" + s.name), Name: s.name}, false, false
	}
	return transport.ServerInfo{ID: model.ServerID("id-" + l.name), Name: l.name, APIAddress: l.address}, l == s, true
}

// Propose implements httpapi.Consensus.
func (s *server) Propose(_ context.Context, e fsm.Entry) ([]fsm.Result, error) {
	if _, self, _ := s.Leader(); !self {
		return nil, model.Refuse(model.CodeNoLeader, "server %s does not lead", s.name)
	}
	s.r.mu.Lock()
	before, after := s.r.broken, s.r.after
	s.r.mu.Unlock()
	if before != nil {
		return nil, before
	}
	results, err := s.r.commit(e)
	if after != nil {
		return nil, after
	}
	return results, err
}

// ReadBarrier implements httpapi.Consensus.
func (s *server) ReadBarrier(context.Context) error {
	s.r.mu.Lock()
	catchUp := s.r.behind
	s.r.behind = nil
	s.r.mu.Unlock()
	if catchUp != nil {
		catchUp()
	}
	return nil
}

// beforeReads makes the next ReadBarrier call catchUp, as if the barrier made the server apply what it lacks.
func (r *rig) beforeReads(catchUp func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behind = catchUp
}

// Now implements httpapi.Consensus.
func (s *server) Now() model.Time { return s.r.now() }

// CaughtUp implements httpapi.Freshness.
func (s *server) CaughtUp() bool {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.fresh
}

// TakesEntries implements httpapi.Freshness.
func (s *server) TakesEntries() bool {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return !s.full
}

// StaleFor implements httpapi.Freshness.
func (s *server) StaleFor() time.Duration {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.stale
}

// Voters implements httpapi.Liveness.
func (s *server) Voters() (uint64, []model.ServerID) { return 1, []model.ServerID{"s1", "s2", "s3"} }

// Heard implements httpapi.Liveness.
func (s *server) Heard(id model.NodeID) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.heard[id]++
	if id == s.r.panics {
		panic("as it was told")
	}
}

// Live implements httpapi.Liveness.
func (s *server) Live() map[model.NodeID]fsm.Liveness {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.r.live != nil {
		return s.r.live
	}
	return map[model.NodeID]fsm.Liveness{"01N1": {Age: 1500, Gossip: fsm.GossipAlive}}
}

// LiveOf implements httpapi.Liveness.
func (s *server) LiveOf(id model.NodeID) (fsm.Liveness, bool) {
	l, ok := s.Live()[id]
	return l, ok
}

// Why implements httpapi.Explainer.
func (r *rig) Why(_ httpapi.Question, subject string) (model.WhyResult, error) {
	return model.WhyResult{Subject: subject, State: "ready",
		Chain:      []model.WhyLink{{Index: 3, Wall: 1000, Cause: model.CauseScaleUp, Actor: "leader", Text: "placed"}},
		Considered: []model.Considered{{Node: "01N1", Score: 7}, {Node: "01N2", ExcludedBy: model.CodeNoMemory}},
		Next:       "nothing"}, nil
}

// Waiting implements httpapi.Explainer.
func (r *rig) Waiting(httpapi.Question) httpapi.Waiting { return r.waiting }

// DrainStatus implements httpapi.Explainer.
func (r *rig) DrainStatus(q httpapi.Question, id model.DrainID) []model.DrainStatus {
	d, ok := q.State.Drains.Get(id)
	if !ok {
		return nil
	}
	var all []model.DrainStatus
	for _, n := range d.Nodes {
		one := model.DrainStatus{Node: n.Node}
		for i := range q.State.InstancesOn(n.Node) {
			one.Remaining = append(one.Remaining,
				model.NodeRemaining{Instance: i.ID, Class: i.ClassOf(), State: string(i.Status.Observed),
					Blocker: model.CodeReplacementPending})
			one.Blockers = append(one.Blockers,
				model.Blocker{Code: model.CodeReplacementPending, Instance: i.ID,
					Message: "its replacement is not ready", Unblock: "wait"})
		}
		all = append(all, one)
	}
	return all
}

// Forecast implements httpapi.Planner.
func (r *rig) Forecast(q httpapi.Question, id model.DrainID) []model.Forecast {
	var all []model.Forecast
	for _, s := range r.DrainStatus(q, id) {
		for _, i := range s.Remaining {
			all = append(all, model.Forecast{Node: s.Node, Instance: i.Instance, Group: "web/http", Class: i.Class,
				Action: model.ActionMove, Target: "01N2"})
		}
	}
	return all
}

// Moves implements httpapi.Planner.
func (r *rig) Moves(httpapi.Question) ([]fsm.Move, [][]fsm.Command) { return r.moves, r.begin }

// Plan implements httpapi.Planner.
func (r *rig) Plan(_ httpapi.Question, spec model.JobSpec) (model.JobPlan, error) {
	p := r.plan
	p.Job = spec.Name
	return p, nil
}

// Members implements httpapi.ServerList.
func (r *rig) Members(context.Context) ([]httpapi.ServerEntry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []httpapi.ServerEntry
	for _, name := range []string{"s1", "s2", "s3"} {
		if s, ok := r.servers[name]; ok {
			all = append(all, httpapi.ServerEntry{Member: api.Member{
				Name: name, ID: model.ServerID("id-" + name), Address: s.address, Role: "voter", Leader: r.lead == name,
				Voter: true, State: "alive",
				Version: "1.2.3",
			}})
		}
	}
	for i := range all {
		all[i].Disk = api.DiskEnough
		if r.shape != nil {
			r.shape(&all[i])
		}
	}
	if r.twin != "" {
		all = append(all,
			httpapi.ServerEntry{Member: api.Member{Name: r.twin, ID: "id-twin", Role: "voter", Voter: true, State: "alive"}})
	}
	return all, nil
}

// Join implements httpapi.MemberOps.
func (r *rig) Join(context.Context, string) error { return nil }

// Promote implements httpapi.MemberOps.
func (r *rig) Promote(context.Context, model.ServerID) error { return nil }

// Remove implements httpapi.MemberOps.
func (r *rig) Remove(_ context.Context, id model.ServerID, force bool) error {
	r.mu.Lock()
	remove := r.remove
	r.mu.Unlock()
	if remove != nil {
		return remove(id, force)
	}
	if !force {
		return model.Refuse(model.CodeConflict, "without server %s there is no quorum", id).WithHint("use force")
	}
	return nil
}

// TransferLeader implements httpapi.MemberOps.
func (r *rig) TransferLeader(_ context.Context, to model.ServerID) error {
	r.setLeader(string(to)[len("id-"):])
	return nil
}

// Save implements httpapi.Snapshots.
func (r *rig) Save(_ context.Context, w io.Writer) error {
	r.mu.Lock()
	lead := r.lead
	r.mu.Unlock()
	if lead == "" {
		return model.Refuse(model.CodeNoLeader, "nobody leads")
	}
	return r.SaveStale(w)
}

// SaveStale implements httpapi.Snapshots.
func (r *rig) SaveStale(w io.Writer) error { return fsm.WriteSnapshot(w, r.machine.Snapshot()) }

// Restore implements httpapi.Snapshots.
func (r *rig) Restore(_ context.Context, from io.Reader) error {
	_, err := fsm.ReadSnapshot(from)
	return err
}

// AnswerPeer implements httpapi.Peers.
func (r *rig) AnswerPeer(_ context.Context, question string, body []byte) ([]byte, error) {
	return append([]byte(question+":"), body...), nil
}
