package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Config configures a Server. DataDir, Cluster, Machine, Stream, Asker, Fatal and Gossip.Key are required.
type Config struct {
	DataDir string // for this server alone; created with mode 0700. A server whose directory was wiped is a new server.
	Name    string // for people
	Version string // of the program
	Cluster string // the configured name; Open refuses the data directory of another cluster

	// BootstrapExpect is how many new servers have to see each other before they begin a cluster together. 0 means that
	// this server never begins a cluster, but waits to be added to one.
	BootstrapExpect int
	// NoBegin is why this server must not begin a cluster, although BootstrapExpect is set. nil means that it may.
	NoBegin error
	// Settings are the first settings of a new cluster, and have no effect later. The zero value means the defaults.
	Settings model.Settings

	Machine *fsm.Machine // must be new and empty; Open restores the state into it
	Stream  Stream       // raft's share of the TLS port; its Addr is the address that other servers dial
	Asker   Asker        // sends questions to other servers
	Gossip  PoolConfig   // Open sets Name, Cluster and Meta, except for Meta's BootID and Incarnation

	// Lead is called in each term in which this server leads, after the term's first Barrier. It must return soon after
	// ctx ends. If it returns an error before that, this server fails. Optional.
	Lead func(ctx context.Context, term uint64) error
	// MayVote refuses to give a vote to the server with this name at address (host:port). The leader asks before each
	// promotion, and again a second after a refusal. The error is shown to people. It must return when ctx ends; ctx has a
	// deadline. Optional. The first voters of a new or recovered cluster are not asked about.
	MayVote func(ctx context.Context, name, address string) error
	// Fatal must end the process at once, because this server must not go on. If Fatal returns, as in tests with several
	// servers in one process, the Server stops by itself and Run returns the error.
	Fatal func(error)

	// Wall returns the wall clock of this machine, which may jump. Entries carry the median of the servers' clocks for
	// people, and certificates expire by it; see Server.WallClock. No other decision depends on it. Default time.Now.
	Wall func() time.Time

	// Certificates returns what this process knows of certificates. It must not block. Optional.
	Certificates func() Certificates

	// Applied gets the time that it took to apply a batch of committed entries, for metrics. It must not block. Optional.
	Applied func(time.Duration)
	// Stored gets the time of each append to the log on the disk, with its fsync. It must not block. Optional.
	Stored func(time.Duration)

	Raft    RaftConfig
	Disk    DiskConfig
	Compare CompareConfig
	Logger  hclog.Logger // default: no log
}

// DiskConfig configures the use of the disk. The zero value means the defaults.
type DiskConfig struct {
	// OpenLog opens the log store; default OpenBolt.
	OpenLog func(path string) (LogStore, error)
	// Space returns the free space; default Statfs.
	Space SpaceFunc
	// BallastBytes is the size of the ballast file; default 64 MiB, at most an eighth of the file system.
	BallastBytes int64
}

// Server is this process as a server of the cluster. Open creates a Server. Run runs it and releases what it uses; a
// caller that never calls Run must call Close. Safe for concurrent use.
type Server struct {
	cfg   Config
	log   hclog.Logger
	dir   *dataDir
	disk  disk
	seen  peerView
	clock *clock
	fsm   *machineFSM
	raft  *raft.Raft

	compare *comparer
	waits   error // why this server waits for a cluster to add it, whatever its configuration says; see mayBegin
	expect  int   // how many servers begin a cluster together with this one; 0 means that it begins none

	notes chan bool // raft's NotifyCh

	opened atomic.Bool // false during Open, when raft's goroutines may already call this server

	restores atomic.Uint64 // counts beginnings and ends of Restore, so it is odd while a restore is under way

	state     serverState
	barrier   coalescer
	peerCodec codec
	stopped   chan struct{} // closed when Run stops this server, or Close is called
	once      sync.Once
}

// disk is what a server stores on its disk, and the transport, which refuses requests while the disk is full.
type disk struct {
	store *guardedStore
	snaps raft.SnapshotStore
	space *spaceWatch
	trans *peerTransport
	used  bool // whether there was a log or a snapshot at the start
}

// peerView is what a server knows of other servers and of agents.
type peerView struct {
	pool   *Pool
	hearts *Hearts
	keys   *keyring
	given  givenUp
	stall  *stallWatch
	judge  *judge
	proven provenAddresses
}

// serverState is what changes while a server runs.
type serverState struct {
	failure    atomic.Pointer[error] // the first failure, because of which this server must stop
	failed     chan struct{}         // closed with the first failure
	failOnce   sync.Once
	leadership atomic.Pointer[leadership] // nil unless this server leads and its Barrier is done
	transfer   transferWatch
	follower   followers
	progress   progress
	restored   atomic.Pointer[restoredConfig]
	history    atomic.Pointer[model.History]
	votes      atomic.Pointer[votes] // nil unless keepMembers runs

	saved  atomic.Int64 // when a snapshot was last saved from this server, Unix ms; 0 means never
	median wallMedian
}

// Open reads the data directory, restores the state and opens gossip. It may block for some seconds if the state is
// large. Codes: conflict if the log can't be opened, for example because another process uses the data directory, or if
// the directory belongs to another cluster, was replaced by a recovery, was left by an interrupted recovery, or is
// damaged; needs_format if a newer program wrote all of its snapshots; state_differs if a majority contradicted its
// state; invalid for bad settings; address_in_use and listen_failed for the gossip port.
func Open(cfg Config) (_ *Server, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Logger, clock: newClock(), notes: make(chan bool, 1), peerCodec: newPeerCodec(),
		stopped: make(chan struct{})}
	s.state.failed = make(chan struct{})
	s.fsm = &machineFSM{machine: cfg.Machine, clock: s.clock, fatal: s.fatal, applied: cfg.Applied,
		saving: make(chan struct{}, 1)}
	s.barrier.run = s.raftBarrier
	s.compare = newComparer(s)
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if err := s.openDisk(); err != nil {
		return nil, err
	}
	if err := s.openPeers(); err != nil {
		return nil, err
	}
	if err := s.openRaft(); err != nil {
		return nil, err
	}
	s.opened.Store(true)
	s.disk.store.arm()
	return s, nil
}

func (c *Config) check() error {
	switch {
	case c.Machine == nil || c.Stream == nil || c.Asker == nil || c.Fatal == nil:
		return errors.New("cluster: Machine, Stream, Asker and Fatal are required")
	case c.DataDir == "":
		return model.Refuse(model.CodeInvalid, "a server needs a data directory").WithHint("set data_dir")
	case c.BootstrapExpect < 0 || c.BootstrapExpect > maxPledge:
		return model.Refuse(model.CodeInvalid, "bootstrap_expect is %d; it must be 0 to %d", c.BootstrapExpect, maxPledge)
	}
	if c.Settings == (model.Settings{}) {
		c.Settings = model.DefaultSettings()
	}
	if refusal := c.Settings.Check(); refusal != nil {
		return refusal
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Disk.OpenLog == nil {
		c.Disk.OpenLog = OpenBolt
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Compare.Every <= 0 {
		c.Compare.Every = compareEvery
	}
	c.Raft = c.Raft.withDefaults()
	return nil
}

// openDisk opens the log, which locks the data directory, and the snapshots. It reads this server's identity, and
// refuses a directory that this server must not use.
func (s *Server) openDisk() error {
	if err := makeDataDir(s.cfg.DataDir); err != nil {
		return err
	}
	if err := checkReport(s.cfg.DataDir); err != nil {
		return err
	}
	inner, err := s.cfg.Disk.OpenLog(filepath.Join(s.cfg.DataDir, fileLog))
	if err != nil {
		return model.Refuse(model.CodeConflict, "can't open the log in %s: %v", s.cfg.DataDir, err).
			WithHint("another process may use this data directory, or it is not writable")
	}
	s.disk.space = newSpaceWatch(s.cfg.DataDir, filepath.Join(s.cfg.DataDir, fileBallast), s.cfg.Disk.BallastBytes,
		s.cfg.Disk.Space, s.log.Named("space"))
	s.disk.store = newGuardedStore(inner, s.fatal, s.disk.space.look, s.log.Named("store"))
	s.disk.store.stored = s.cfg.Stored
	snaps, err := newSealedSnapshots(s.cfg.DataDir, s.log.Named("snapshots"))
	if err != nil {
		return err
	}
	s.disk.snaps = roomySnapshots{snaps, s.disk.space.room}
	if s.disk.used, err = raft.HasExistingState(s.disk.store, s.disk.store, s.disk.snaps); err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if s.dir, err = openDataDir(s.cfg.DataDir, s.cfg.Cluster, s.disk.used); err != nil {
		return err
	}
	if err := s.dir.checkRecovering(); err != nil {
		return err
	}
	if err := s.dir.checkReplaced(); err != nil {
		return err
	}
	if s.expect = s.cfg.BootstrapExpect; !s.disk.used {
		if s.waits = mayBegin(s.cfg, s.dir); s.waits != nil {
			s.expect, s.dir.pledge = 0, nil // so that other servers don't count on this one to begin a cluster
		}
	}
	s.setHistory(s.dir.history())
	s.readSaved()
	return nil
}

// openPeers opens gossip and creates the receiver of heartbeats. It reads which nodes this server has given up.
func (s *Server) openPeers() error {
	gossip := s.cfg.Gossip
	gossip.Name, gossip.Cluster = string(s.dir.id), s.cfg.Cluster
	if gossip.Logger == nil {
		gossip.Logger = s.log.Named("gossip")
	}
	gossip.Meta = Meta{
		Role: pki.RoleServer, Name: s.cfg.Name, API: s.cfg.Stream.Addr().String(),
		BootID: s.cfg.Gossip.Meta.BootID, Incarnation: s.cfg.Gossip.Meta.Incarnation,
		Server: &ServerMeta{ClusterID: s.dir.cluster.ID, Lineage: s.dir.history().Lineage(), Expect: s.expect,
			Pledge: s.dir.pledge, Format: model.CurrentFormat, Version: s.cfg.Version, Fresh: !s.disk.used},
	}
	var err error
	if s.seen.pool, err = OpenPool(gossip); err != nil {
		return err
	}
	s.seen.stall = newStallWatch(HeartbeatInterval(s.cfg.Settings.OfflineAfter))
	s.seen.stall.gap = s.cfg.Raft.leaseTimeout()
	s.seen.judge = newJudge(s)
	s.seen.keys = newKeyring()
	s.seen.hearts, err = NewHearts(HeartsConfig{
		Self: s.dir.id, NodeKey: s.nodeKey, Offline: s.nodeOffline, Answer: s.seen.pool.Answer,
		Alive: s.seen.pool.Heard, Voters: s.electorate,
		Logger: s.log.Named("hearts"),
	})
	if err != nil {
		return err
	}
	return s.readGivenUp()
}

// cachedEntries is how many of the latest entries stay in memory, at most 16 MiB. raft looks at the last entry for each
// heartbeat, and sends the latest entries to followers. Without the cache, an idle leader spent a seventh of its time
// reading entries from the file.
const cachedEntries = 64

// openRaft starts raft with the log and the snapshots on disk. raft panics if the store fails here; openRaft turns that
// panic into an error.
func (s *Server) openRaft() (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("start raft: %v", reason)
		}
	}()
	layer := s.hello(s.log.Named("raft-net"))
	s.disk.trans = newPeerTransport(layer, addressBook{s}, s.disk.space.room, s.knows, s.log.Named("raft-net"))
	config := s.cfg.Raft.raft(s.dir.id, s.notes, s.log.Named("raft"))
	cached, err := raft.NewLogCache(cachedEntries, s.disk.store)
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	s.raft, err = raft.NewRaft(config, comparedFSM{s.fsm, s.compare}, cached, s.disk.store, s.disk.snaps, s.disk.trans)
	if err != nil {
		return fmt.Errorf("start raft on %s: %w", s.cfg.DataDir, s.fsm.explain(err))
	}
	return s.noteCluster(s.cfg.Machine.State())
}

// Run takes part in the cluster until ctx ends or this server fails. When ctx ends, Run first hands leadership over. A
// stop takes at most about 20 s. Run returns nil after a planned stop, and the failure otherwise.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, part := range [...]func(context.Context){
		func(ctx context.Context) { _ = s.seen.pool.Run(ctx) },
		s.disk.space.run, s.seen.stall.run, s.receive, s.describe, s.bootstrap, s.watchLog, s.watchTail, s.watchState,
		s.compare.run, s.greetLeftServers,
		func(ctx context.Context) { s.seen.keys.run(ctx, s.askKeys) },
	} {
		wg.Go(func() { part(ctx) })
	}
	terms := make(chan struct{})
	drained := make(chan struct{})
	go func() { defer close(terms); s.followTerms(ctx, drained) }()
	select {
	case <-ctx.Done():
		if s.failure() == nil { // after a failure, raft may never answer
			s.handOver()
		}
	case <-s.state.failed:
	}
	cancel(errStopping)
	wg.Wait()
	s.release()
	close(drained)
	select {
	case <-terms:
	case <-time.After(releaseTimeout):
		s.log.Error("what runs while leading does not end")
	}
	return s.failure()
}

var errStopping = errors.New("this server is stopping")

// handOver gives leadership to another server before a planned stop, so that nobody waits for an election. If this
// server does not lead, handOver does nothing.
func (s *Server) handOver() {
	if s.raft.State() != raft.Leader {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*s.cfg.Raft.electionTimeout())
	defer cancel()
	if err := s.TransferLeader(ctx, ""); err != nil {
		s.log.Info("leadership not handed over", "error", err)
	}
}

// releaseTimeout is how long a stop waits for raft, and after that for the goroutines of a term.
const releaseTimeout = 10 * time.Second

// Close stops a server whose Run was never called or has returned. To stop a running server, cancel Run's context.
func (s *Server) Close() error {
	s.release()
	return s.failure()
}

// release stops raft, its transport, gossip and the log store, in this order. Later calls do nothing.
func (s *Server) release() {
	s.once.Do(func() {
		close(s.stopped)
		failed := s.failure() != nil
		if s.raft != nil {
			// Shutdown waits for raft's goroutines. If one hangs on the disk, it must not delay the end of the process.
			ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
			if err := await(ctx, s.raft.Shutdown()); err != nil {
				s.log.Error("raft does not stop", "error", err)
			}
			cancel()
		}
		if s.disk.trans != nil {
			_ = s.disk.trans.Close()
		}
		if s.seen.pool != nil {
			if failed {
				_ = s.seen.pool.Abandon()
			} else {
				_ = s.seen.pool.Close()
			}
		}
		if s.disk.store != nil {
			if err := s.disk.store.Close(); err != nil {
				s.log.Error("can't close the log store", "error", err)
			}
		}
	})
}
