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
	"github.com/outspan/outspan/transport"
)

// Config configures a Server. DataDir, Cluster, Machine, Stream, Asker, Fatal and Gossip.Key are required.
type Config struct {
	DataDir string // this server's own; made with mode 0700. A server with a wiped one is a new server.
	Name    string // for people
	Version string // of the program
	Cluster string // the configured name; a data directory of another one is refused

	// BootstrapExpect is how many new servers have to see each other before they begin a cluster together. 0: this server
	// never begins a cluster, but waits to be taken in.
	BootstrapExpect int
	// Settings are the first replicated settings of a new cluster. Later they have no effect.
	Settings model.Settings

	Machine *fsm.Machine // new and empty; the Server restores it
	Stream  Stream       // raft's share of the TLS port; its Addr is what peers dial
	Asker   Asker        // puts questions to other servers
	Gossip  PoolConfig   // Name, Cluster and Meta are filled in

	// Lead runs while this server leads: from its first Barrier of a term until ctx ends. Then it must return soon.
	// Optional.
	Lead func(ctx context.Context, term uint64) error
	// Fatal ends the process at once, because this server must not go on. If it returns, as in tests with several servers
	// in one process, the Server stops on its own and Run returns the error.
	Fatal func(error)

	// Wall returns the wall clock, which each entry carries for people. It may jump: no decision rests on it. Default
	// time.Now.
	Wall func() time.Time

	// Certificates returns what people should know of certificates. It must not block. Default: nothing is known.
	Certificates func() Certificates

	// Applied gets the time that it took to apply entries that were committed together, for metrics. It must not block.
	// Optional.
	Applied func(time.Duration)

	Raft    RaftConfig
	Disk    DiskConfig
	Compare CompareConfig
	Logger  hclog.Logger
}

// DiskConfig configures the use of the disk. The zero value means the defaults.
type DiskConfig struct {
	// OpenLog opens the log store; default OpenBolt.
	OpenLog func(path string) (LogStore, error)
	// Space returns the free space; default Statfs.
	Space SpaceFunc
	// BallastBytes is how much is kept aside for a full disk; default 64 MiB, at most an eighth of the file system.
	BallastBytes int64
}

// Server is one control-plane process's part in the cluster. Open makes it, Run drives it, Close frees what Run did not
// free. Its methods are safe for many goroutines.
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

	notes chan bool // raft's NotifyCh

	opened atomic.Bool // false while Open runs; raft's own goroutines may already call this server

	state     serverState
	barrier   coalescer
	peerCodec codec
	stopped   chan struct{} // closed once Run has returned or Close was called
	once      sync.Once
}

// disk is what a server keeps on its disk.
type disk struct {
	store *guardedStore
	snaps raft.SnapshotStore
	space *spaceWatch
	trans *peerTransport
	used  bool // there was a log or a snapshot at the start
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
	failure    atomic.Pointer[error] // why this server must stop
	failed     chan struct{}         // closed with the first failure
	failOnce   sync.Once
	leadership atomic.Pointer[leadership] // nil unless this server leads and its Barrier is done
	transfer   transferWatch
	follower   followers
	progress   progress
	restored   atomic.Pointer[restoredConfig]
	history    atomic.Pointer[model.History]

	saved       atomic.Int64 // when somebody last saved a snapshot from this server, Unix ms; 0: never
	medianAhead atomic.Int64 // median of the servers' wall clocks minus this one's, ns; only while this server leads
}

// Open reads the data directory, restores the state and joins the gossip. It blocks meanwhile, some seconds for a large
// state. Codes: conflict for the data directory of another cluster or one in use; needs_format for that of a newer
// program; state_differs for one whose state a majority contradicted.
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

// openDisk locks the data directory and reads this server's identity.
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
	s.setHistory(s.dir.history())
	s.readSaved()
	return nil
}

// openPeers joins the gossip and begins to listen for heartbeats.
func (s *Server) openPeers() error {
	gossip := s.cfg.Gossip
	gossip.Name, gossip.Cluster = string(s.dir.id), s.cfg.Cluster
	if gossip.Logger == nil {
		gossip.Logger = s.log.Named("gossip")
	}
	gossip.Meta = Meta{
		Role: transport.RoleServer, Name: s.cfg.Name, API: s.cfg.Stream.Addr().String(),
		BootID: s.cfg.Gossip.Meta.BootID, Incarnation: s.cfg.Gossip.Meta.Incarnation,
		Server: &ServerMeta{ClusterID: s.dir.cluster.ID, Lineage: s.dir.history().Lineage(), Expect: s.cfg.BootstrapExpect,
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

// cachedEntries is how many written entries stay in memory, at most 16 MiB. raft looks at the last entry for each
// heartbeat, and sends the latest entries to followers. Without the cache an idle leader spent a seventh of its time
// reading them from the file.
const cachedEntries = 64

// openRaft starts consensus on what the disk holds. raft panics if the store fails here; openRaft turns that into an
// error.
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
		return fmt.Errorf("start raft on %s: %w", s.cfg.DataDir, err)
	}
	return s.noteCluster(s.cfg.Machine.State())
}

// Run takes part in the cluster until ctx ends or this server fails. Before it returns it hands leadership over and
// stops everything, within about 20 s. It returns nil after a planned stop, else why the server failed.
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
		if s.failure() == nil { // else raft may not answer any more
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

// handOver gives leadership to another server before a planned stop, so that nobody waits for an election.
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

// releaseTimeout bounds each step of stopping.
const releaseTimeout = 10 * time.Second

// Close stops a server whose Run was never called or has returned. To stop a running server, end Run's context.
func (s *Server) Close() error {
	s.release()
	return s.failure()
}

// release stops in reverse order of Open, each step bounded.
func (s *Server) release() {
	s.once.Do(func() {
		close(s.stopped)
		failed := s.failure() != nil
		if s.raft != nil {
			// raft waits for its goroutines. One that hangs on the disk must not delay the end of the process.
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

// fatal ends this server. In production Config.Fatal does not return.
func (s *Server) fatal(err error) { s.failWith(err, func() {}) }

// failWith runs first and then ends this server. Only the first call does so; concurrent callers wait for it.
func (s *Server) failWith(err error, first func()) {
	s.state.failOnce.Do(func() {
		first()
		s.state.failure.Store(&err)
		s.cfg.Fatal(err)
		close(s.state.failed)
	})
}

func (s *Server) failure() error {
	if err := s.state.failure.Load(); err != nil {
		return *err
	}
	return nil
}
