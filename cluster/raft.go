package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// RaftConfig tunes consensus. The zero value means the defaults, which are right for production.
type RaftConfig struct {
	// Multiplier lengthens all timeouts of elections, and SettleFor, for slow machines. With the default 1, a failover
	// takes 2 to 3 s; with 2, it takes twice as long.
	Multiplier int
	// SnapshotInterval is how often raft checks whether to take a snapshot; default 30 s. raft waits a random time between
	// one and two intervals.
	SnapshotInterval time.Duration
	// SnapshotThreshold is the number of entries after which raft takes a snapshot; default 8192. A low number costs disk
	// writes, a high number makes a restart longer.
	SnapshotThreshold uint64
	// TrailingLogs is how many entries stay in the log although a snapshot contains them; default 65536. With a low
	// number, a server that was unreachable for a moment needs a whole snapshot.
	TrailingLogs uint64
	// MaxLogBytes is how many bytes of entries the log may have before a snapshot is taken early; default 1 GiB. Entries
	// that were appended before the start of the process don't count.
	MaxLogBytes int64
	// SettleFor, times Multiplier, is how long a new server must have kept up before it gets a vote; default 10 s.
	SettleFor time.Duration
}

const (
	snapshotsKept   = 3
	maxLogLag       = 250 // entries; a server that lags by at most this many has caught up
	raftPool        = 3   // connections kept to each peer
	raftTimeout     = 10 * time.Second
	maxRPCsInFlight = 1 // to one server; with more, one failed append would stop its replication permanently
)

// inFlight returns how many requests to one server may wait for their answers at a time.
func inFlight() int {
	if plant.Is(plant.WedgedFollower) {
		return raft.DefaultMaxRPCsInFlight
	}
	return maxRPCsInFlight
}

func (c RaftConfig) withDefaults() RaftConfig {
	if c.Multiplier <= 0 {
		c.Multiplier = 1
	}
	if c.SnapshotInterval <= 0 {
		c.SnapshotInterval = 30 * time.Second
	}
	if c.SnapshotThreshold == 0 {
		c.SnapshotThreshold = 8192
	}
	if c.TrailingLogs == 0 {
		c.TrailingLogs = 65536
	}
	if c.MaxLogBytes <= 0 {
		c.MaxLogBytes = 1 << 30
	}
	if c.SettleFor <= 0 {
		c.SettleFor = 10 * time.Second
	}
	return c
}

// electionTimeout is how long a server waits for a leader before it stands for election; raft waits a random time
// between this timeout and twice this timeout.
func (c RaftConfig) electionTimeout() time.Duration { return time.Duration(c.Multiplier) * time.Second }

// leaseTimeout is how long a leader continues to lead without hearing from a majority.
func (c RaftConfig) leaseTimeout() time.Duration { return c.electionTimeout() / 2 }

// raft returns the configuration for the raft library. Settings that are not named here keep the library's defaults.
func (c RaftConfig) raft(id model.ServerID, notify chan<- bool, log hclog.Logger) *raft.Config {
	out := raft.DefaultConfig()
	out.LocalID = raft.ServerID(id)
	out.HeartbeatTimeout = c.electionTimeout()
	out.ElectionTimeout = c.electionTimeout()
	out.LeaderLeaseTimeout = c.leaseTimeout()
	out.CommitTimeout = 50 * time.Millisecond
	out.MaxAppendEntries = 64
	out.SnapshotInterval = c.SnapshotInterval
	out.SnapshotThreshold = c.SnapshotThreshold
	out.TrailingLogs = c.TrailingLogs
	out.ShutdownOnRemove = false
	out.PreVoteDisabled = false
	out.RestoreCommittedLogs = false // if true, raft would skip configuration entries, and hang on more than 8192 entries
	out.NoLegacyTelemetry = true     // no metric names with server ids in them
	out.NotifyCh = notify
	out.Logger = newQuietLog(log)
	return out
}

// machineFSM is the raft.FSM that applies raft's entries to an fsm.Machine.
type machineFSM struct {
	machine  *fsm.Machine
	clock    *clock
	fatal    func(error)
	applied  func(time.Duration)           // gets the time that it took to apply a batch; may be nil
	installs atomic.Uint64                 // number of snapshots restored since the start of raft
	config   atomic.Pointer[configuration] // last applied; nil if no configuration was applied since the last restore
	handed   atomic.Pointer[handedState]   // set while this server restores a state that it has in memory, otherwise nil
	saving   chan struct{}                 // capacity 1; full while raft takes a snapshot, and while snapshots are paused
	unread   error                         // why the last call of Restore failed; nil if it succeeded
}

// configuration is a committed configuration of raft: the index of its entry, and its voters.
type configuration struct {
	index  uint64
	voters []model.ServerID
}

// restoredConfig caches the configuration of the newest snapshot.
type restoredConfig struct {
	configuration
	installs uint64 // machineFSM.installs when the configuration was read
}

func votersOf(c raft.Configuration) (voters []model.ServerID) {
	for _, s := range c.Servers {
		if s.Suffrage == raft.Voter {
			voters = append(voters, model.ServerID(s.ID))
		}
	}
	return voters
}

// handedState is a state that this server gives to raft as a snapshot, with the checksum of the snapshot's bytes. When
// raft calls Restore with these bytes, Restore uses the state, because decoding 100,000 instances again would take most
// of a second.
type handedState struct {
	state fsm.State
	sum   [sha256.Size]byte
}

// Apply implements raft.FSM, but raft calls ApplyBatch instead.
func (m *machineFSM) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. If an entry can't be applied, it stops the server, because skipping the entry
// would make this replica differ from the others. For the same reason it does not recover from panics.
func (m *machineFSM) ApplyBatch(logs []*raft.Log) []any {
	began := time.Now()
	entries := make([]fsm.Logged, 0, len(logs))
	for _, l := range logs {
		if l.Type == raft.LogConfiguration {
			// A change of the configuration has to name the index of the current configuration, which raft reports nowhere else.
			m.config.Store(&configuration{l.Index, votersOf(raft.DecodeConfiguration(l.Data))})
			continue
		}
		entries = append(entries, fsm.Logged{Index: l.Index, Term: l.Term, Data: l.Data})
	}
	results, err := m.machine.ApplyBatch(entries)
	if m.applied != nil && len(entries) > 0 {
		m.applied(time.Since(began))
	}
	if err != nil {
		m.fatal(err)
		runtime.Goexit() // reached where fatal returns: in Recover, and in tests with several servers in one process
	}
	m.clock.hear(m.machine.State().Now)
	answers := make([]any, len(logs))
	for i, l := range logs {
		if l.Type != raft.LogConfiguration {
			answers[i], results = results[0], results[1:]
		}
	}
	return answers
}

// batchBytes bounds the bytes of the entries that are applied before the state is published. It is about one large
// entry.
const batchBytes = 256 << 10

// batch returns how many of the logs to apply before the state is published, so that readers don't wait for long. A
// batch never crosses a multiple of checkpointEvery, so that every server publishes the state just before each
// multiple.
func batch(logs []*raft.Log) int {
	bytes, stretch := 0, logs[0].Index/checkpointEvery
	for i, l := range logs {
		if bytes += len(l.Data); i > 0 && (bytes > batchBytes || l.Index/checkpointEvery != stretch) {
			return i
		}
	}
	return len(logs)
}

// Snapshot implements raft.FSM. It does not block, because a State is a value. It fails while this server restores a
// state. Otherwise raft would take this older snapshot for its newest one after the restore, and would send the
// restored state to followers again and again.
func (m *machineFSM) Snapshot() (raft.FSMSnapshot, error) {
	select {
	case m.saving <- struct{}{}:
		return machineSnapshot{m.machine.Snapshot(), m.saving}, nil
	default:
		return nil, raft.ErrNothingNewToSnapshot
	}
}

// pauseSnapshots waits until raft is not writing a snapshot, for at most snapshotTimeout. raft can't begin another
// snapshot until resume is called. Code: timeout.
func (m *machineFSM) pauseSnapshots(ctx context.Context) (resume func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	select {
	case m.saving <- struct{}{}:
		return func() { <-m.saving }, nil
	case <-ctx.Done():
		return nil, model.Refuse(model.CodeTimeout, "this server still writes a snapshot of its own").
			WithHint("try again in a moment")
	}
}

// Restore implements raft.FSM.
func (m *machineFSM) Restore(r io.ReadCloser) error {
	defer r.Close()
	if m.unread = m.restore(r); m.unread != nil {
		return m.unread
	}
	m.clock.hear(m.machine.State().Now)
	m.config.Store(nil)
	m.installs.Add(1)
	return nil
}

// explain adds to a failure of raft's start why the machine could not read the last snapshot that raft tried. raft's
// own error does not say that. Call explain only while raft does not run.
func (m *machineFSM) explain(err error) error {
	if err == nil || m.unread == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, m.unread)
}

// restore replaces the machine's state by the state in the snapshot r. If r is the snapshot of m.handed, restore uses
// that state instead of decoding r.
func (m *machineFSM) restore(r io.Reader) error {
	handed := m.handed.Swap(nil)
	if handed == nil {
		return m.machine.Restore(r)
	}
	body, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if sha256.Sum256(body) != handed.sum {
		return m.machine.Restore(bytes.NewReader(body))
	}
	m.machine.Replace(handed.state)
	return nil
}

type machineSnapshot struct {
	state  fsm.State
	saving chan struct{}
}

// Persist implements raft.FSMSnapshot.
func (s machineSnapshot) Persist(sink raft.SnapshotSink) error {
	if err := fsm.WriteSnapshot(sink, s.state); err != nil {
		_ = sink.Cancel()
		return err
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot. raft calls Release after it has recorded the snapshot.
func (s machineSnapshot) Release() { <-s.saving }

// roomySnapshots is a snapshot store that writes no snapshot while the disk has little room, because the log needs that
// room. raft tries again later. Errors of reads are delayed by slowly.
type roomySnapshots struct {
	raft.SnapshotStore
	room func() Room
}

// snapshotPause is the delay in slowly.
const snapshotPause = 100 * time.Millisecond

// slowly returns err, after snapshotPause if err is not nil. While raft hands leadership to a server that needs a
// snapshot, it retries a failed read of the snapshots without a pause. Without the delay, the retries would use up a
// core and fill the log with errors.
func slowly(err error) error {
	if err != nil {
		time.Sleep(snapshotPause) //nolint:forbidigo // raft gives its snapshot store no context, and the pause is short
	}
	return err
}

// List implements raft.SnapshotStore.
func (s roomySnapshots) List() ([]*raft.SnapshotMeta, error) {
	list, err := s.SnapshotStore.List()
	return list, slowly(err)
}

// Open implements raft.SnapshotStore.
func (s roomySnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, content, err := s.SnapshotStore.Open(id)
	return meta, content, slowly(err)
}

// Create implements raft.SnapshotStore.
func (s roomySnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	if s.room() != RoomEnough {
		return nil, errNoRoom
	}
	return s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
}
