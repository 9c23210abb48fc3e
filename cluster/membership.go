package cluster

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// changeTimeout bounds one change of the configuration, from its proposal to its commit.
const changeTimeout = 10 * time.Second

// changeAgain is the pause before a failed change is tried again. Other changes may be made during this pause.
const changeAgain = 5 * time.Second

// servers returns the servers of the newest configuration, committed or not. It does not block.
func (s *Server) servers() []raft.Server {
	f := s.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil
	}
	return slices.Clone(f.Configuration().Servers)
}

// configIndex returns the index of the newest committed configuration, or 0 if it isn't known. A change of the
// configuration names this index. raft refuses the change if there is a newer configuration, committed or not.
func (s *Server) configIndex() uint64 {
	return s.committed().index
}

// committed returns the newest committed configuration that this server knows: the one that it applied last, or else
// the one in the newest snapshot. It returns the zero value if there is no such configuration.
func (s *Server) committed() configuration {
	if c := s.fsm.config.Load(); c != nil {
		return *c
	}
	installs := s.fsm.installs.Load()
	if c := s.state.restored.Load(); c != nil && c.installs == installs {
		return c.configuration
	}
	snaps, err := s.disk.snaps.List()
	if err != nil || len(snaps) == 0 {
		return configuration{}
	}
	c := restoredConfig{configuration{snaps[0].ConfigurationIndex, votersOf(snaps[0].Configuration)}, installs}
	s.state.restored.Store(&c)
	return c.configuration
}

// electorate returns what this server's answers to heartbeats say about the voters.
func (s *Server) electorate() electorate {
	e := electorate{History: s.History().String()}
	if s.opened.Load() {
		c := s.committed()
		e.Index, e.Voters = c.index, c.voters
	}
	return e
}

// Voters returns the index and the voters of the newest committed configuration that this server knows. If it knows no
// such configuration yet, index is 0.
func (s *Server) Voters() (index uint64, voters []model.ServerID) {
	c := s.committed()
	return c.index, slices.Clone(c.voters)
}

// voters returns the servers that have a vote in the newest configuration, committed or not.
func (s *Server) voters() []raft.Server {
	return slices.DeleteFunc(s.servers(), func(v raft.Server) bool { return v.Suffrage != raft.Voter })
}

// membership returns what this server knows of all servers. Values that come from answers to ticks are current only
// while this server leads.
func (s *Server) membership() Membership {
	m := Membership{
		Self: s.dir.id, Index: s.configIndex(), Format: s.cfg.Machine.State().Format, LastIndex: s.raft.LastIndex(),
		SettleFor: s.cfg.Raft.SettleFor * time.Duration(s.cfg.Raft.Multiplier),
	}
	seen := map[model.ServerID]Member{}
	for _, g := range s.seen.pool.Servers() {
		seen[model.ServerID(g.Name)] = g
	}
	for _, v := range s.servers() {
		view := s.view(model.ServerID(v.ID), seen)
		view.Configured, view.Voter = string(v.Address), v.Suffrage == raft.Voter
		m.Servers = append(m.Servers, view)
		delete(seen, view.ID)
	}
	for id := range seen {
		m.Servers = append(m.Servers, s.view(id, seen))
	}
	slices.SortFunc(m.Servers, func(a, b ServerView) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return m
}

func (s *Server) view(id model.ServerID, seen map[model.ServerID]Member) ServerView {
	v := ServerView{ID: id}
	if id == s.dir.id {
		v.Name = s.cfg.Name
		v.Alive, v.Answered, v.LastIndex, v.Room = true, true, s.raft.LastIndex(), s.disk.space.room()
		v.Address, v.Format = s.cfg.Stream.Addr().String(), model.CurrentFormat
		return v
	}
	f := s.state.follower.get(id)
	v.Answered, v.LastIndex, v.HealthyFor = f.answered(), f.reply.LastIndex, f.healthyFor()
	g, ok := seen[id]
	if !ok {
		return v
	}
	v.Alive, v.Address = g.State == fsm.GossipAlive || g.State == fsm.GossipSuspect, g.Meta.API
	v.Name = g.Meta.Name
	if meta := g.Meta.Server; meta != nil {
		own := s.History()
		v.Fresh, v.Room, v.Format = meta.Fresh, meta.Room, meta.Format
		v.Foreign = meta.ClusterID != "" && own.Cluster != "" &&
			(meta.ClusterID != own.Cluster || meta.Lineage != own.Lineage())
	}
	return v
}

// keepMembers changes the raft configuration, one change at a time, and raises the format, until ctx ends. A change
// that waits for a proof does not delay other changes.
func (s *Server) keepMembers(ctx context.Context, _ uint64) {
	warned, old := map[model.ServerID]bool{}, map[model.NodeID]bool{}
	failed := map[Change]time.Time{} // when each change last failed
	cant := func(c Change, err error) {
		s.log.Warn("can't change the servers", "change", c.Kind, "server", c.ID, "reason", c.Reason, "error", err)
	}
	proofs := newProofs(s.prove, cant)
	defer proofs.wait()
	votes := newVotes(func(ctx context.Context, id model.ServerID, address string) error {
		return mayVote(ctx, s, id, address)
	})
	s.state.votes.Store(votes)
	defer func() { s.state.votes.Store(nil); votes.wait() }()
	skip := func(c Change) bool {
		at, tried := failed[c]
		return tried && time.Since(at) < changeAgain || s.proverOf(c) != "" && !proofs.holds(c) ||
			c.Kind == ChangePromote && !votes.allows(ctx, c.ID, c.Address)
	}
	for ctx.Err() == nil {
		s.wantVoters()
		m := s.membership()
		s.warnOfNamesakes(m, warned)
		began := time.Now()
		m.First = rand.IntN(max(len(m.Servers), 1)) // random, because an attacker can invent servers with the lowest ids
		c, ok := m.NextChange(skip)
		proofs.start(ctx, began)
		if ok && s.disk.space.room() != RoomNone {
			if err := s.alter(ctx, m.Index, c); err != nil && ctx.Err() == nil {
				failed[c] = time.Now()
				cant(c, err)
			}
		}
		maps.DeleteFunc(failed, func(_ Change, at time.Time) bool { return time.Since(at) >= changeAgain })
		s.raiseFormat(ctx, m, old)
		pause(ctx, tickEvery)
	}
}

// warnOfNamesakes logs each new server that is not added because a living member has its name. warned contains the
// servers that were already logged.
func (s *Server) warnOfNamesakes(m Membership, warned map[model.ServerID]bool) {
	r := m.index()
	for _, v := range m.Servers {
		if taken := r.namesake(v); taken != nil && !v.member() && v.Alive && v.Fresh && !warned[v.ID] {
			warned[v.ID] = true
			s.log.Warn("a new server is not taken in: its name belongs to another one", "name", v.Name, "server", v.ID,
				"address", v.Address, "owner", taken.ID,
				"hint",
				"give it another name and start it again, or take the other one out: outspan server remove "+string(taken.ID))
		}
	}
}

// raiseFormat switches to a newer format if every server and every agent can read it. It ignores an agent whose node is
// offline, or is disabled and empty. warned contains the nodes that were already logged as a reason to wait.
func (s *Server) raiseFormat(ctx context.Context, m Membership, warned map[model.NodeID]bool) {
	next := m.NextFormat()
	if next <= m.Format {
		return
	}
	state := s.cfg.Machine.State()
	if old := state.CantRead(next); old != nil {
		if !warned[old.ID] {
			warned[old.ID] = true
			s.log.Warn("the format is not raised: an agent can't read the newer one", "format", next, "node", old.Name,
				"version", old.Agent.Version,
				"hint", "upgrade the agent")
		}
		return
	}
	results, err := s.Propose(ctx,
		fsm.Entry{Actor: model.ActorLeader, Groups: [][]fsm.Command{{&fsm.FormatRaise{Format: next}}}})
	if err == nil && results[0].Refusal != nil {
		err = results[0].Refusal
	}
	if err != nil {
		s.log.Warn("can't raise the format", "format", next, "error", err)
		return
	}
	s.log.Info("raised the format", "format", next)
}

// wantVoters makes the gossip pool keep the voters, even if they are dead.
func (s *Server) wantVoters() {
	var names []string
	for _, v := range s.voters() {
		names = append(names, string(v.ID))
	}
	s.seen.pool.Want(names)
}

// change makes a change with alter, after prove has succeeded.
func (s *Server) change(ctx context.Context, index uint64, c Change) error {
	if err := s.prove(c); err != nil {
		return err
	}
	return s.alter(ctx, index, c)
}

// alter makes a change whose claim was proven, and waits until the change is committed, for at most changeTimeout.
// index is the index of the configuration for which the change was decided; alter fails if there is a newer
// configuration. Codes: conflict if the change was certainly not made; unknown if raft may still commit it, as after a
// timeout or a loss of leadership.
func (s *Server) alter(ctx context.Context, index uint64, c Change) error {
	s.log.Info("changing the servers", "change", c.Kind, "server", c.ID, "address", c.Address, "reason", c.Reason)
	id, address := raft.ServerID(c.ID), raft.ServerAddress(c.Address)
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	var f raft.Future
	switch {
	case c.Kind == ChangeRemove:
		f = s.raft.RemoveServer(id, index, enqueueTimeout)
	case c.Kind == ChangePromote, c.Kind == ChangeMove && c.Voter:
		f = s.raft.AddVoter(id, address, index, enqueueTimeout)
	default:
		f = s.raft.AddNonvoter(id, address, index, enqueueTimeout)
	}
	err := await(ctx, f)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown),
		errors.Is(err, raft.ErrAbortedByRestore):
		return model.Refuse(model.CodeUnknownOutcome, "server %s: %s may or may not have been done: %v", c.ID, c.Kind, err).
			WithHint("look at: outspan server members")
	}
	return model.Refuse(model.CodeConflict, "server %s: %s was not done: %v", c.ID, c.Kind, err).
		WithHint("look at: outspan server members")
}

// prove checks over mTLS that the server that proverOf names is at c.Address, because anyone with the gossip key can
// claim anything. It does nothing if proverOf names no server. It blocks for at most helloTimeout. Codes: conflict if
// the server does not answer at c.Address; name_unproven if its certificate does not have the name c.Name.
func (s *Server) prove(c Change) error {
	id := s.proverOf(c)
	if id == "" {
		return nil
	}
	conn, err := s.hello(s.log).dialAt(id, c.Address, helloTimeout)
	if err != nil {
		return model.Refuse(model.CodeConflict, "server %s can't be reached: %v", id, err)
	}
	defer conn.Close()
	if proven := s.cfg.Stream.PeerName(conn); c.Name != "" && proven != c.Name {
		return model.Refuse(codeNameUnproven,
			"server %s calls itself %q as the dead server %s did, but its certificate is of %q", id, c.Name, c.ID, proven).
			WithHint("if it is in that one's place: outspan server remove %s", c.ID)
	}
	return nil
}

// proverOf returns the server that must prove its address before a change is made, or an empty id if no server must.
func (s *Server) proverOf(c Change) model.ServerID {
	if id := c.prover(); id != s.dir.id { // this server knows its own address, and may be unable to reach itself there
		return id
	}
	return ""
}

// codeNameUnproven means that a server's certificate does not have the name that the server claims in gossip.
const codeNameUnproven model.Code = "name_unproven"

// Join makes gossip contact the server at address. address is the host:port of the server's gossip, or of its TLS
// listener if gossip knows the server already. Join does nothing if the server is a living member. If this server leads
// and gossip knows the other server as alive, Join adds it without a vote, even if it has state. Join blocks for some
// seconds for each IP address of the host. Codes: invalid, timeout, conflict; unknown if the other server may
// still be added.
func (s *Server) Join(ctx context.Context, address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return model.Refuse(model.CodeInvalid, "%q is not host:port", address).
			WithHint("give the address of the other server's gossip, such as 10.0.0.1:7642")
	}
	m := s.membership()
	for _, g := range s.seen.pool.Servers() {
		v, _ := m.Find(model.ServerID(g.Name))
		known := g.Address == address || g.Meta.API == address
		if known && v.Alive && v.member() {
			return nil
		}
		if known && v.Alive && s.Term() != 0 {
			return s.Promote(ctx, v.ID)
		}
	}
	found, err := resolveJoin(ctx, address)
	if err == nil {
		err = s.seen.pool.Join(found...)
	}
	if err != nil {
		return model.Refuse(model.CodeTimeout, "can't join %s: %v", address, err).
			WithHint("check the address (the port is gossip's) and that both have the same gossip key and cluster name")
	}
	return nil
}

// Promote gives a non-voter a vote. If the server is no member, Promote only adds it without a vote, even if it was
// removed before or has state. The leader gives it a vote later, once it has kept up for long enough. Codes: no_leader
// if this server does not lead; not_found if the server is unknown or is neither a member nor alive; unknown if the
// change may still be made; conflict otherwise; those of Config.MayVote.
func (s *Server) Promote(ctx context.Context, id model.ServerID) error {
	if s.Term() == 0 {
		return s.noLeader()
	}
	m := s.membership()
	v, ok := m.Find(id)
	if ok && !v.member() && v.Foreign {
		return model.Refuse(model.CodeConflict, "server %s has the data of another cluster", id).
			WithHint("stop it and give it an empty data_dir")
	}
	if ok && !v.member() && v.Alive {
		return s.change(ctx, m.Index, Change{Kind: ChangeAdd, ID: id, Address: v.Address, Reason: "an operator asked"})
	}
	if err := m.CheckPromote(id); err != nil {
		return err
	}
	if err := mayVote(ctx, s, id, v.Configured); err != nil {
		return err
	}
	return s.change(ctx, m.Index, Change{Kind: ChangePromote, ID: id, Address: v.Configured, Reason: "an operator asked"})
}

// membershipNow is like membership, but first sends a tick to all servers. Answered is true only for those that answer
// this tick. A server that answered an earlier tick may have stopped since; a removal that relies on that server could
// leave no working majority. membershipNow blocks for at most 1 s.
func (s *Server) membershipNow(ctx context.Context) Membership {
	s.tickAll(ctx, s.Term())
	m := s.membership()
	for i := range m.Servers {
		if v := &m.Servers[i]; v.ID != s.dir.id {
			v.Answered = v.Answered && s.state.follower.get(v.ID).answersNow()
		}
	}
	return m
}

// Remove removes a server from the configuration permanently. If force is false, it refuses if the remaining voters
// would have no working majority. If force is true, it refuses only to remove the last voter. Codes: no_leader,
// not_found, conflict, and unknown if the server may still be removed.
func (s *Server) Remove(ctx context.Context, id model.ServerID, force bool) error {
	if s.Term() == 0 {
		return s.noLeader()
	}
	m := s.membershipNow(ctx)
	check := m.CheckRemove
	if force {
		check = m.CheckForcedRemove
	}
	if err := check(id); err != nil {
		return err
	}
	return s.change(ctx, m.Index, Change{Kind: ChangeRemove, ID: id, Reason: "an operator asked"})
}
