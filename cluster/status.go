package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// ServerStatus describes one server, as this server sees it. Fields that only the leader knows are zero on other
// servers.
type ServerStatus struct {
	ID        model.ServerID
	Name      string
	Address   string // host:port of the server's TLS listener
	Leader    bool
	Voter     bool
	Member    bool       // the server is in the configuration
	Gossip    fsm.Gossip // the server's state in gossip
	Room      Room
	Version   string
	Answered  bool   // the server answered a tick of this server within the last 3 s; true for this server
	Answers   bool   // the server answered the leader's last tick; true for the leader itself; leader only
	IndexLag  uint64 // number of entries by which the server's log is behind; leader only
	Installs  uint64 // number of snapshots that the server has restored since it started; leader only
	ClusterID string

	ClockAhead time.Duration // the server's wall clock minus the servers' median; leader only
	Condition  Condition     // from the server's last answer; leader only, except the condition of this server
	NoVote     error         // why Config.MayVote refused to give the server a vote; nil for a voter; leader only
	Silent     time.Duration // time since the server's last answer; leader only

	// Listens contains the host:port of each listener of the server that is in the configuration, or that the server
	// itself proved or reported over TLS. It does not contain addresses that only gossip claims. Only the leader knows the
	// gossip addresses of other servers.
	Listens []string
}

// Status is this server's own status.
type Status struct {
	ID           model.ServerID
	Leads        bool
	Term         uint64
	LastIndex    uint64 // of the log
	CommitIndex  uint64
	AppliedIndex uint64
	StateIndex   uint64 // of the published state
	Snapshot     uint64 // index of the newest snapshot
	Room         Room
	CaughtUp     bool
	Stale        time.Duration
	Installs     uint64
}

// ID returns this server's permanent id.
func (s *Server) ID() model.ServerID { return s.dir.id }

// Pool returns this server's gossip pool.
func (s *Server) Pool() *Pool { return s.seen.pool }

// Status returns this server's own status. It blocks only while it lists the snapshots on disk.
func (s *Server) Status() Status {
	_, leads, _ := s.Leader()
	out := Status{
		ID: s.dir.id, Leads: leads, Term: s.raft.CurrentTerm(), LastIndex: s.raft.LastIndex(),
		CommitIndex:  s.raft.CommitIndex(),
		AppliedIndex: s.raft.AppliedIndex(), StateIndex: s.cfg.Machine.State().Index, Room: s.disk.space.room(),
		CaughtUp: s.CaughtUp(), Stale: s.StaleFor(), Installs: s.fsm.installs.Load(),
	}
	if snaps, err := s.disk.snaps.List(); err == nil && len(snaps) > 0 {
		out.Snapshot = snaps[0].Index
	}
	return out
}

// Servers returns every server that is in the configuration or alive in gossip, ordered by id. It does not block.
func (s *Server) Servers() []ServerStatus {
	_, leader := s.raft.LeaderWithID()
	m := s.membership()
	out := make([]ServerStatus, 0, len(m.Servers))
	for _, v := range m.Servers {
		if !v.member() && !v.Alive {
			continue
		}
		one := ServerStatus{
			ID: v.ID, Name: string(v.ID), Address: v.Address, Leader: raft.ServerID(v.ID) == leader,
			Voter: v.Voter, Member: v.member(),
			Gossip: fsm.GossipUnknown, Room: v.Room, Answered: v.Answered,
		}
		if at := s.addressOf(v.ID); at != "" {
			one.Address = at
		}
		if g, ok := s.seen.pool.Member(string(v.ID)); ok {
			one.Name, one.Gossip = g.Meta.Name, g.State
			if g.Meta.Server != nil {
				one.Version, one.ClusterID = g.Meta.Server.Version, g.Meta.Server.ClusterID
			}
		}
		leads := s.Term() != 0
		one.Answers = leads && (v.ID == s.dir.id || v.Answered && s.state.follower.get(v.ID).answersNow())
		if leads && v.ID != s.dir.id {
			one.IndexLag = m.LastIndex - min(v.LastIndex, m.LastIndex)
			reply := s.state.follower.get(v.ID).reply
			one.Installs, one.Condition, one.Silent = reply.Installs, reply.Condition, s.state.follower.silentFor(v.ID)
		}
		if v.ID == s.dir.id {
			one.Condition = s.Condition()
		}
		if !v.Voter {
			one.NoVote = s.state.votes.Load().reason(v.ID)
		}
		one.Listens = s.listens(v, one)
		one.ClockAhead = s.clockAhead(v.ID)
		out = append(out, one)
	}
	return out
}

func (s *Server) listens(v ServerView, one ServerStatus) (list []string) {
	if one.Address != "" && (v.member() || v.ID == s.dir.id || s.seen.proven.is(v.ID, one.Address)) {
		list = append(list, one.Address)
	}
	if one.Condition.Gossip != "" {
		list = append(list, one.Condition.Gossip)
	}
	return list
}

// ClusterID returns the cluster's id, or an empty string while this server does not know it.
func (s *Server) ClusterID() string { return s.History().Cluster }

// History returns the cluster and the lineages that this server belongs to, or the zero value before it has joined a
// cluster.
func (s *Server) History() model.History {
	if h := s.state.history.Load(); h != nil {
		return *h
	}
	return model.History{}
}

func (s *Server) setHistory(h model.History) { s.state.history.Store(&h) }

// noteCluster writes the cluster's id into the data directory. It does nothing if the state has no id yet, or if this
// server knows the id already. Code: conflict if the directory belongs to another cluster.
func (s *Server) noteCluster(state fsm.State) error {
	if state.Cluster.ID == "" || state.Cluster.ID == s.ClusterID() {
		return nil
	}
	if err := s.dir.bind(state.Cluster.ID); err != nil {
		return err
	}
	s.setHistory(s.dir.history())
	return nil
}

func (s *Server) receive(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-s.seen.pool.Receive():
			s.seen.hearts.Receive(msg)
		}
	}
}

// describe keeps this server's Meta in gossip up to date. It also stops this server if it has seen only servers of
// other clusters for foreignSettle, or if it has been removed for removedSettle.
func (s *Server) describe(ctx context.Context) {
	var since time.Time // since when this server has seen only servers of other clusters
	var out time.Time   // since when removed has returned true
	for ctx.Err() == nil {
		changed, seen := s.disk.space.changed(), s.seen.pool.Changed()
		if s.state.progress.caughtUp.Load() {
			seen = nil // a nil channel never wakes; this server already knows which cluster it belongs to
		}
		fresh, room, h := s.fresh(), s.disk.space.room(), s.History()
		if err := s.seen.pool.SetMeta(func(m *Meta) {
			m.Server.Fresh, m.Server.Room, m.Server.ClusterID, m.Server.Lineage = fresh, room, h.Cluster, h.Lineage()
		}); err != nil {
			s.log.Error("can't describe this server", "error", err)
		}
		switch other := s.foreignCluster(); {
		case other == "":
			since = time.Time{}
		case hasOneVoter(s.servers()) || !since.IsZero() && time.Since(since) >= foreignSettle:
			s.refuse(s.dir.foreign(other))
		case since.IsZero():
			since = time.Now()
		}
		switch {
		case !s.removed():
			out = time.Time{}
		case out.IsZero():
			out = time.Now()
		case time.Since(out) >= removedSettle:
			s.refuse(model.Refuse(model.CodeConflict, "server %s (%s) was removed from the cluster", s.cfg.Name, s.dir.id).
				WithHint("leave it stopped, or to take it in again as a new one, start it with an empty data_dir"))
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-seen:
		case <-time.After(time.Second):
		}
	}
}

// foreignSettle is how long a server must see only servers of other clusters before it stops. Gossip may report the
// other servers of its cluster a moment later than a misplaced server. A server that is the only voter does not wait.
const foreignSettle = 3 * time.Second

// hasOneVoter reports whether there is exactly one voter. A sole voter leads about a second after its start, so it
// can't wait for foreignSettle.
func hasOneVoter(servers []raft.Server) bool {
	voters := 0
	for _, one := range servers {
		if one.Suffrage == raft.Voter {
			voters++
		}
	}
	return voters == 1
}

// foreignCluster returns the id of another cluster if gossip shows living servers of other clusters and no living
// server of this cluster. This data directory is then in the wrong place. Otherwise foreignCluster returns an empty
// string. It also does so if this server belongs to no cluster, has a leader, or has caught up.
func (s *Server) foreignCluster() (other string) {
	own := s.ClusterID()
	if _, _, led := s.Leader(); own == "" || led || s.state.progress.caughtUp.Load() {
		return ""
	}
	for _, m := range s.seen.pool.Servers() {
		if m.Name == string(s.dir.id) || m.State == fsm.GossipDead || m.Meta.Server == nil || m.Meta.Server.ClusterID == "" {
			continue
		}
		if m.Meta.Server.ClusterID == own {
			return ""
		}
		other = m.Meta.Server.ClusterID
	}
	return other
}

// watchState takes over the cluster's id and the heartbeat interval from the state, and once a minute forgets nodes
// that the state no longer has. It wakes when the settings change, not at each entry.
func (s *Server) watchState(ctx context.Context) {
	prune := time.NewTicker(time.Minute)
	defer prune.Stop()
	for ctx.Err() == nil {
		changed, cancel := s.cfg.Machine.WatchTopic("settings") // the cluster's id changes together with the settings
		state, next := s.cfg.Machine.Watch()
		switch err := s.noteCluster(state); {
		case err == nil:
			next = nil
		case errors.Is(err, &model.Error{Code: model.CodeConflict}):
			s.refuse(err)
		default: // for example a full disk; next wakes this loop at the next entry
			s.log.Warn("can't note the id of the cluster", "error", err)
		}
		s.seen.stall.setHeartbeat(HeartbeatInterval(state.Settings.OfflineAfter))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-next:
		case <-prune.C:
			if s.CaughtUp() { // an older state may lack nodes that this server hears
				s.forgetNodes()
			}
		}
		cancel()
	}
}

// refuse makes Run return an error that a person has to solve. It does not call Config.Fatal, and does nothing after an
// earlier failure.
func (s *Server) refuse(err error) {
	s.state.failOnce.Do(func() {
		s.log.Error("this server can't be part of the cluster", "error", err)
		s.state.failure.Store(&err)
		close(s.state.failed)
	})
}
