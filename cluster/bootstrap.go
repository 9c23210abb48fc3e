package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

const (
	bootstrapEvery  = 250 * time.Millisecond
	bootstrapSettle = time.Second // how long a set must stay the same before this server pledges to it
	aloneRemind     = 30 * time.Second
	firstRemind     = 5 * time.Second // before the first log; servers that are started together find each other earlier

	fileAlone = "begin-alone" // made when an operator says that there is no cluster to join
)

// FileJoined is the name of the file in a server's data directory that NoteJoined writes.
const FileJoined = "joined.json"

// Joined says which cluster a server has joined.
type Joined struct {
	Cluster string   `json:"cluster"` // its name
	Roots   []string `json:"roots"`   // SHA-256 of the public keys of the CA's roots, in hex
}

// NoteJoined records in a server's data directory that the server has joined a cluster. A server whose directory has
// this record never begins a cluster. The server must not run.
func NoteJoined(dir string, j Joined) error {
	if err := makeDataDir(dir); err != nil {
		return err
	}
	text, err := json.Marshal(j)
	if err == nil {
		err = durable.ReplaceBytes(filepath.Join(dir, FileJoined), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("note that the server has joined: %w", err)
	}
	return nil
}

// HasJoined reports whether NoteJoined has written its record into the directory. It is true if nobody can find that
// out.
func HasJoined(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, FileJoined))
	return !errors.Is(err, fs.ErrNotExist)
}

// mayBegin returns nil if a server without raft state may begin a cluster. Otherwise the error says why it waits until
// a cluster adds it, whatever bootstrap_expect is.
func mayBegin(cfg Config, dir *dataDir) error {
	switch id := dir.history().Cluster; {
	case cfg.BootstrapExpect == 0:
		return nil // it waits anyway
	case HasJoined(dir.path):
		return NoSecondCluster(dir.path, "this server joined a cluster")
	case id != "":
		return NoSecondCluster(dir.path, fmt.Sprintf("%s belongs to the cluster with id %s", dir.path, id))
	}
	return cfg.NoBegin
}

// NoSecondCluster returns the refusal of a server without state to begin a cluster, with the next step. why says to
// which cluster its data directory belongs.
func NoSecondCluster(dir, why string) *model.Error {
	return model.Refuse(model.CodeConflict, "%s, and has no state of it: it begins no second one", why).
		WithHint("start the other servers: they add it if they know its address. Otherwise stop it, remove %s, and join "+
			"again with a token. If all servers lost their data: outspan server recover --snapshot FILE", dir)
}

// Beginning is what a server without state knows before there is a cluster. Choose and Complete use nothing else.
type Beginning struct {
	Self    model.ServerID
	Expect  int              // bootstrap_expect
	Pledge  []model.ServerID // the servers that this server permanently pledged to; nil if it has not pledged
	Servers []Beginner       // servers that are alive in gossip, including this one
}

// Beginner is one server of a Beginning.
type Beginner struct {
	ID     model.ServerID
	Fresh  bool // the server has no state
	Expect int
	Pledge []model.ServerID
}

// A cluster must begin exactly once. So every new server pledges at most once, in its data directory, to a set of
// exactly bootstrap_expect servers that includes itself. A set begins a cluster only when all of its members have
// pledged to it. Then only the member with the smallest id writes the first configuration. Two sets that share a server
// can't both begin a cluster, because that server pledges only once. Servers learn of pledges by gossip. Gossip may be
// late but not wrong, because a pledge never changes. No server pledges while it sees a server that has state, because
// then there is a cluster to join.

// Choose returns the set of servers to pledge to. ok is false if this server must not pledge now: if its
// bootstrap_expect is 0, it has pledged already, it sees a server that has state, it sees too few servers, or it is not
// in the set.
func (b Beginning) Choose() (set []model.ServerID, ok bool) {
	hasState := func(s Beginner) bool { return !s.Fresh }
	if b.Expect <= 0 || b.Pledge != nil || slices.ContainsFunc(b.Servers, hasState) {
		return nil, false
	}
	var ids []model.ServerID
	for _, s := range b.Servers {
		// If another server has pledged to a set that includes this server, that set takes precedence.
		if len(s.Pledge) == b.Expect && slices.Contains(s.Pledge, b.Self) {
			return s.Pledge, true
		}
		if s.Expect == b.Expect {
			ids = append(ids, s.ID)
		}
	}
	if len(ids) < b.Expect {
		return nil, false
	}
	slices.Sort(ids)
	set = ids[:b.Expect]
	return set, slices.Contains(set, b.Self)
}

// Complete checks whether all servers of the pledged set have pledged to it. begin is true if all have, and this server
// must write the first configuration now. stray is a server of the set that has pledged to another set, so that this
// set will never begin a cluster. If there is no such server, stray is empty.
func (b Beginning) Complete() (begin bool, stray model.ServerID) {
	if b.Pledge == nil {
		return false, ""
	}
	agreed := 0
	for _, s := range b.Servers {
		switch {
		case !slices.Contains(b.Pledge, s.ID):
		case slices.Equal(s.Pledge, b.Pledge) && s.Fresh:
			agreed++
		case s.Pledge != nil && !slices.Equal(s.Pledge, b.Pledge):
			stray = s.ID
		}
	}
	return agreed == len(b.Pledge) && b.Self == slices.Min(b.Pledge), stray
}

// fresh reports whether this server has no raft state: no log entry, no snapshot and no configuration.
func (s *Server) fresh() bool { return s.raft.LastIndex() == 0 && len(s.servers()) == 0 }

// bootstrap begins a cluster together with the other new servers, or waits until a cluster adds this server. It returns
// once this server has raft state, or when ctx ends.
func (s *Server) bootstrap(ctx context.Context) {
	var set []model.ServerID
	var since time.Time
	warned := false
	company := joinProgress{waits: s.expect == 1, told: time.Now().Add(firstRemind - aloneRemind)}
	for ctx.Err() == nil && s.fresh() {
		b := s.beginning()
		next, ok := b.Choose()
		if !ok || !slices.Equal(next, set) {
			set, since = next, time.Now()
		}
		if ok && time.Since(since) >= s.settleBeginning() && s.knowsAll(ctx, &company) {
			s.pledge(set)
		}
		begin, stray := b.Complete()
		if stray != "" && !warned {
			warned = true
			s.log.Error("another server agreed to begin the cluster with other servers than this one did; wipe the data "+
				"directories of those servers that never had a leader",
				"other", stray, "agreed", s.dir.pledge)
		}
		if begin {
			s.begin(ctx)
		} else {
			s.sayForWhom(ctx, b, &company)
		}
		pause(ctx, bootstrapEvery)
	}
}

// settleBeginning returns how long this server must see the same set before it pledges. If bootstrap_expect is 1 and
// there is no address to join, it need not wait.
func (s *Server) settleBeginning() time.Duration {
	if s.cfg.BootstrapExpect == 1 && len(s.cfg.Gossip.Join) == 0 {
		return 0
	}
	return bootstrapSettle
}

// joinProgress is what a new server has heard from its join addresses, and when it last logged that it waits.
type joinProgress struct {
	// waits is true while a server with bootstrap_expect = 1 has not heard from all of its join addresses.
	waits    bool
	answered map[string]bool // by IP:port
	reminded time.Time       // when knowsAll last logged
	told     time.Time       // when sayForWhom last logged
}

// sayForWhom logs which servers this new server has found and which join addresses are silent, at most once in
// aloneRemind.
func (s *Server) sayForWhom(ctx context.Context, b Beginning, c *joinProgress) {
	if time.Since(c.told) < aloneRemind || b.Expect == 1 { // with bootstrap_expect = 1, knowsAll logs
		return
	}
	c.told = time.Now()
	var here []string
	for _, m := range s.seen.pool.Servers() {
		if m.State == fsm.GossipAlive && model.ServerID(m.Name) != s.dir.id {
			here = append(here, m.Meta.Name+" "+m.Address)
		}
	}
	slices.Sort(here)
	silent := s.seen.pool.silent(ctx, map[string]bool{})
	switch {
	case s.waits != nil:
		s.log.Error("waiting to be taken into a cluster", "found", here, "silent", silent, "error", s.waits)
		return
	case b.Expect == 0:
		s.log.Info("waiting to be taken into a cluster", "found", here, "silent", silent)
		return
	}
	s.log.Info("waiting for the first servers", "expected", b.Expect, "found", here, "silent", silent)
}

// knowsAll returns false while a server with bootstrap_expect = 1 has not heard from all of its join addresses. Such a
// server may have lost its disk, and its old cluster may be at an address that does not answer yet. An operator can end
// the wait with BeginAlone. With a larger bootstrap_expect, knowsAll always returns true, because the servers of the
// set have heard from each other.
func (s *Server) knowsAll(ctx context.Context, c *joinProgress) bool {
	if !c.waits {
		return true
	}
	if _, err := os.Stat(filepath.Join(s.cfg.DataDir, fileAlone)); err == nil {
		c.waits = false
		return true
	}
	if c.answered == nil {
		c.answered = map[string]bool{}
	}
	silent := s.seen.pool.silent(ctx, c.answered)
	if len(silent) > 0 && time.Since(c.reminded) >= aloneRemind {
		c.reminded = time.Now()
		s.log.Warn("not beginning a cluster yet: there may be one behind the join addresses that do not answer",
			"silent", silent,
			"hint",
			"start what is there, take the address out of retry_join, or if there is no cluster: "+
				"outspan server init --data-dir "+s.cfg.DataDir)
	}
	c.waits = len(silent) > 0
	return false // Choose must first see the servers that have just answered
}

// BeginAlone notes in a server's data directory that there is no cluster to join. A server with bootstrap_expect = 1
// then begins a cluster without waiting for the addresses of retry_join. The server may be running. Code: conflict if
// the server has already pledged to begin a cluster, or has joined one.
func BeginAlone(dir string) error {
	if err := makeDataDir(dir); err != nil {
		return err
	}
	// A pledge may be older than the cluster that it begins. The server keeps it anyway, so a note would change nothing.
	if _, err := os.Stat(filepath.Join(dir, filePledge)); err == nil {
		return model.Refuse(model.CodeConflict, "the server in %s has begun a cluster already", dir).
			WithHint("start it; to begin anew use an empty data directory")
	}
	if HasJoined(dir) {
		return model.Refuse(model.CodeConflict, "the server in %s has joined a cluster", dir).
			WithHint("start it, and its cluster adds it; to begin another cluster use an empty data directory")
	}
	if err := os.WriteFile(filepath.Join(dir, fileAlone), nil, 0o600); err != nil {
		return fmt.Errorf("note that the server begins alone: %w", err)
	}
	return nil
}

func (s *Server) beginning() Beginning {
	b := Beginning{Self: s.dir.id, Expect: s.expect, Pledge: s.dir.pledge}
	for _, m := range s.seen.pool.Servers() {
		if m.State != fsm.GossipAlive || m.Meta.Server == nil {
			continue
		}
		one := Beginner{ID: model.ServerID(m.Name), Fresh: m.Meta.Server.Fresh, Expect: m.Meta.Server.Expect,
			Pledge: m.Meta.Server.Pledge}
		if one.ID == s.dir.id {
			one.Fresh, one.Pledge = true, s.dir.pledge
		}
		b.Servers = append(b.Servers, one)
	}
	return b
}

func (s *Server) pledge(set []model.ServerID) {
	if err := s.dir.makePledge(set); err != nil {
		s.log.Error("can't note the first servers", "error", err)
		return
	}
	s.log.Info("agreed on the first servers", "servers", set)
	if err := s.seen.pool.SetMeta(func(m *Meta) { m.Server.Pledge = set }); err != nil {
		s.log.Error("can't tell the first servers", "error", err)
	}
}

// begin writes the first configuration. It does nothing while the address of a server of the set is unknown.
func (s *Server) begin(ctx context.Context) {
	var config raft.Configuration
	for _, id := range s.dir.pledge {
		address := s.addressOf(id)
		if address == "" {
			return
		}
		config.Servers = append(config.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(address)})
	}
	s.log.Info("beginning a cluster", "servers", fmt.Sprint(s.dir.pledge))
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if err := await(ctx, s.raft.BootstrapCluster(config)); err != nil {
		s.log.Error("can't begin the cluster", "error", err)
	}
}
