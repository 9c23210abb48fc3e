package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// ServerStatus is one server as this one sees it. What only the leader knows is zero elsewhere.
type ServerStatus struct {
	ID        model.ServerID
	Name      string
	Address   string // host:port of its TLS listener
	Leader    bool
	Voter     bool
	Member    bool       // it is in the configuration
	Gossip    fsm.Gossip // what gossip thinks of it
	Room      Room
	Version   string
	Answered  bool   // it answered one of the leader's last ticks; the leader always does
	Answers   bool   // it answered the very last one
	IndexLag  uint64 // entries that its log is behind; leader only
	Installs  uint64 // snapshots that it had to install since it started; leader only
	ClusterID string

	ClockAhead time.Duration // its wall clock before the median of the servers'; leader only
	Condition  Condition     // as it answered last; of the others leader only
	Silent     time.Duration // since it answered last; leader only

	// Listens are host:port of its listeners, as far as the configuration or the server itself told them over TLS. What
	// gossip alone claims is not among them. That of its gossip is known of others on the leader only.
	Listens []string
}

// Status is this server's own part.
type Status struct {
	ID           model.ServerID
	Leads        bool
	Term         uint64
	LastIndex    uint64 // of the log
	CommitIndex  uint64
	AppliedIndex uint64
	StateIndex   uint64 // of the published state
	Snapshot     uint64 // index of the newest
	Room         Room
	CaughtUp     bool
	Stale        time.Duration
	Installs     uint64
}

// ID names this server for ever.
func (s *Server) ID() model.ServerID { return s.dir.id }

// Pool is this server's gossip.
func (s *Server) Pool() *Pool { return s.sight.pool }

// Status blocks only for a look at the list of snapshots.
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

// Servers lists every server in the configuration or alive in gossip, in order of id. It does not block.
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
		if g, ok := s.sight.pool.Member(string(v.ID)); ok {
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
		one.Listens = s.listens(v, one)
		one.ClockAhead = s.clockAhead(v.ID)
		out = append(out, one)
	}
	return out
}

func (s *Server) listens(v ServerView, one ServerStatus) (list []string) {
	if one.Address != "" && (v.member() || v.ID == s.dir.id || s.sight.proven.is(v.ID, one.Address)) {
		list = append(list, one.Address)
	}
	if one.Condition.Gossip != "" {
		list = append(list, one.Condition.Gossip)
	}
	return list
}

// ClusterID names the cluster, once it has begun; else it is empty.
func (s *Server) ClusterID() string { return s.History().Cluster }

// History is the cluster and the lineages that this server is of; zero before it has joined one.
func (s *Server) History() model.History {
	if h := s.state.history.Load(); h != nil {
		return *h
	}
	return model.History{}
}

func (s *Server) setHistory(h model.History) { s.state.history.Store(&h) }

// noteCluster writes the cluster's id into the data directory once the first entry has told it. Code: conflict if
// the directory belongs to another cluster.
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

// receive takes what comes by gossip.
func (s *Server) receive(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-s.sight.pool.Receive():
			s.sight.hearts.Receive(msg)
		}
	}
}

// describe keeps what this server says of itself by gossip up to date, and looks out for another cluster in it.
func (s *Server) describe(ctx context.Context) {
	var since time.Time // only another cluster's servers have been in sight
	var out time.Time   // this server has been no member, and no leader has turned to it
	for ctx.Err() == nil {
		changed, seen := s.disk.space.changed(), s.sight.pool.Changed()
		if s.state.progress.caughtUp.Load() {
			seen = nil // it knows where it belongs
		}
		fresh, room, h := s.fresh(), s.disk.space.room(), s.History()
		if err := s.sight.pool.SetMeta(func(m *Meta) {
			m.Server.Fresh, m.Server.Room, m.Server.ClusterID, m.Server.Lineage = fresh, room, h.Cluster, h.Lineage()
		}); err != nil {
			s.log.Error("can't describe this server", "error", err)
		}
		switch other := s.strangers(); {
		case other == "":
			since = time.Time{}
		case s.leadsAlone() || !since.IsZero() && time.Since(since) >= strangersSettle:
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

// strangersSettle is how long only servers of another cluster must be in sight of one that needs others to lead: its
// own may be heard of a moment later than one that was here by mistake.
const strangersSettle = 3 * time.Second

// leadsAlone reports whether this server needs no other one to lead. It will, about a second after its start, so it
// can't wait to find out where it is.
func (s *Server) leadsAlone() bool {
	voters := 0
	for _, one := range s.servers() {
		if one.Suffrage == raft.Voter {
			voters++
		}
	}
	return voters == 1
}

// strangers returns the id of another cluster if all servers in sight are of it and this one has nobody of its own:
// then the data directory is in the wrong place. Servers that have a leader never mind.
func (s *Server) strangers() (other string) {
	own := s.ClusterID()
	if _, _, led := s.Leader(); own == "" || led || s.state.progress.caughtUp.Load() {
		return ""
	}
	for _, m := range s.sight.pool.Servers() {
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

// watchState follows what the state says about the cluster and its nodes. It looks when that changes, not at each
// entry.
func (s *Server) watchState(ctx context.Context) {
	prune := time.NewTicker(time.Minute)
	defer prune.Stop()
	for ctx.Err() == nil {
		changed, cancel := s.cfg.Machine.WatchTopic("settings") // the id of the cluster comes with them
		state, next := s.cfg.Machine.Watch()
		switch err := s.noteCluster(state); {
		case err == nil:
			next = nil
		case errors.Is(err, &model.Error{Code: model.CodeConflict}):
			s.refuse(err)
		default: // a full disk, say: it is tried again at the next entry
			s.log.Warn("can't note the id of the cluster", "error", err)
		}
		s.sight.stall.setHeartbeat(HeartbeatInterval(state.Settings.OfflineAfter))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-next:
		case <-prune.C:
			if s.CaughtUp() { // else nodes may be missing that the others know
				s.forgetNodes()
			}
		}
		cancel()
	}
}

// refuse ends Run with an error that a person has to solve; nothing is wrong with this process.
func (s *Server) refuse(err error) {
	s.state.failOnce.Do(func() {
		s.log.Error("this server can't be part of the cluster", "error", err)
		s.state.failure.Store(&err)
		close(s.state.failed)
	})
}
