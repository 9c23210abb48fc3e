package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/outspan/outspan/internal/plant"
)

// LogStore is what raft keeps on disk: the log, and its few stable values (term, vote).
type LogStore interface {
	raft.LogStore
	raft.StableStore
	Close() error
}

// lockTimeout bounds the wait for another process's lock on the log file.
const lockTimeout = 2 * time.Second

// OpenBolt opens the log store at path, and creates the file if it does not exist. It waits for at most 2 s if another
// process has locked the file.
func OpenBolt(path string) (LogStore, error) {
	return raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout:        lockTimeout,
			NoFreelistSync: true,                  // commits don't write the list of free pages; each open rebuilds it
			FreelistType:   bbolt.FreelistMapType, // finds free pages quickly even in a large file
		},
	})
}

// storeHangs is how long a store call may take. A leader with a hanging disk would lead permanently, because its
// heartbeats need no disk. So its process has to end before another server can lead.
const storeHangs = 10 * time.Second

var (
	errStoreClosed = errors.New("the log store is closed")
	errStoreFailed = errors.New("the log store has failed")
)

// guardedStore wraps raft's log store. After one failed call it never writes or reads again, because raft could
// otherwise wedge replication or forget a vote. A call that does not return in time is a failure, too.
//
// Before arm is called, a failure is only returned, so that a failed Open does not end the process. After arm, a
// failure calls fatal. If fatal returns, as in tests with several servers in one process, the calling goroutine of raft
// ends, because raft must neither see the error nor continue as if the call had succeeded.
type guardedStore struct {
	inner  LogStore
	fatal  func(error)
	log    hclog.Logger
	hangs  time.Duration
	before func()              // called before each append; reads the free space
	stored func(time.Duration) // Config.Stored, or nil

	armed   atomic.Bool
	closed  atomic.Bool
	failed  atomic.Bool
	size    logSize
	appends atomic.Int64 // begun plus ended appends; odd during an append, because raft makes one at a time
	failing sync.Once
}

func newGuardedStore(inner LogStore, fatal func(error), before func(), log hclog.Logger) *guardedStore {
	if before == nil {
		before = func() {}
	}
	return &guardedStore{inner: inner, fatal: fatal, log: log, hangs: storeHangs, before: before}
}

// IsMonotonic makes raft drop its whole log after it has installed a snapshot, instead of leaving a gap in the indexes.
// With a gap, raft would install a snapshot over a divergent tail again and again.
func (g *guardedStore) IsMonotonic() bool { return !plant.Is(plant.DivergentSnapshot) }

// arm makes every later failure end the process.
func (g *guardedStore) arm() { g.armed.Store(true) }

// FirstIndex implements raft.LogStore.
func (g *guardedStore) FirstIndex() (index uint64, err error) {
	err = g.call("first index", func() error { index, err = g.inner.FirstIndex(); return err })
	return index, err
}

// LastIndex implements raft.LogStore.
func (g *guardedStore) LastIndex() (index uint64, err error) {
	err = g.call("last index", func() error { index, err = g.inner.LastIndex(); return err })
	return index, err
}

// GetLog implements raft.LogStore. A missing entry is an answer, not a failure.
func (g *guardedStore) GetLog(index uint64, log *raft.Log) error {
	missing := false
	err := g.call("read log", func() error {
		err := g.inner.GetLog(index, log)
		if errors.Is(err, raft.ErrLogNotFound) {
			missing = true
			return nil
		}
		return err
	})
	if missing && err == nil {
		return raft.ErrLogNotFound
	}
	return err
}

// StoreLog implements raft.LogStore.
func (g *guardedStore) StoreLog(log *raft.Log) error { return g.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (g *guardedStore) StoreLogs(logs []*raft.Log) error {
	g.before()
	g.size.add(logs)
	g.appends.Add(1)
	defer g.appends.Add(1)
	began := time.Now()
	err := g.call("append to log", func() error { return g.inner.StoreLogs(logs) })
	if g.stored != nil && err == nil {
		g.stored(time.Since(began))
	}
	return err
}

// awaitAppend waits until the running append, if any, is done. It returns false if ctx ended first.
func (g *guardedStore) awaitAppend(ctx context.Context) bool {
	for seen := g.appends.Load(); seen%2 == 1 && g.appends.Load() == seen; pause(ctx, appendLook) {
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

// appendLook is the time between two looks at a running append.
const appendLook = 5 * time.Millisecond

// DeleteRange implements raft.LogStore.
func (g *guardedStore) DeleteRange(from, to uint64) error {
	err := g.call("truncate log", func() error { return g.inner.DeleteRange(from, to) })
	if err == nil {
		g.size.drop(from, to)
	}
	return err
}

// Set implements raft.StableStore.
func (g *guardedStore) Set(key, value []byte) error {
	return g.call("store value", func() error { return g.inner.Set(key, value) })
}

// Get implements raft.StableStore. raft recognizes "not found" by the text of the error, so Get does not change it.
func (g *guardedStore) Get(key []byte) (value []byte, err error) {
	err = g.lookup("read value", func() error { value, err = g.inner.Get(key); return err })
	return value, err
}

// SetUint64 implements raft.StableStore.
func (g *guardedStore) SetUint64(key []byte, value uint64) error {
	return g.call("store number", func() error { return g.inner.SetUint64(key, value) })
}

// GetUint64 implements raft.StableStore.
func (g *guardedStore) GetUint64(key []byte) (value uint64, err error) {
	err = g.lookup("read number", func() error { value, err = g.inner.GetUint64(key); return err })
	return value, err
}

// lookup is like call, for values that may be absent.
func (g *guardedStore) lookup(what string, fn func() error) error {
	var absent error
	err := g.call(what, func() error {
		err := fn()
		if err != nil && err.Error() == raftboltdb.ErrKeyNotFound.Error() {
			absent = err
			return nil
		}
		return err
	})
	if err == nil {
		return absent
	}
	return err
}

// call runs one store operation under the watchdog. If the operation fails, call returns the error before arm, and
// stops this server after arm.
func (g *guardedStore) call(what string, fn func() error) error {
	if g.closed.Load() {
		return errStoreClosed
	}
	if g.failed.Load() {
		return g.stop(errStoreFailed)
	}
	done := g.watch(what)
	err := fn()
	done()
	switch {
	case g.failed.Load():
		return g.stop(errStoreFailed)
	case err == nil:
		return nil
	case g.closed.Load():
		return errStoreClosed
	}
	err = fmt.Errorf("log store: %s: %w", what, err)
	if plant.Is(plant.WedgedFollower) {
		return err
	}
	g.fail(err)
	return g.stop(err)
}

// stop ends the calling goroutine of raft, or returns err if the store is not armed.
func (g *guardedStore) stop(err error) error {
	if g.armed.Load() {
		runtime.Goexit()
	}
	return err
}

// fail calls fatal, once, if the store is armed.
func (g *guardedStore) fail(err error) {
	if !g.armed.Load() {
		return
	}
	g.failed.Store(true)
	g.failing.Do(func() {
		g.log.Error("log store failed, stopping this server", "error", err)
		g.fatal(err)
	})
}

// watch stops the server if done is not called within g.hangs. It waits in two parts: if the process was paused during
// a call, the first part may have passed when it wakes up, but it still has the second part to finish the call.
func (g *guardedStore) watch(what string) (done func()) {
	if plant.Is(plant.HungDisk) {
		return func() {}
	}
	finished, rest := make(chan struct{}), g.hangs/10
	timer := time.AfterFunc(g.hangs-rest, func() {
		select {
		case <-finished:
		case <-time.After(rest):
			g.log.Error("store call hangs", "call", what, "after", g.hangs, "goroutines", goroutines())
			g.fail(fmt.Errorf("log store: %s has not returned for %s; the disk hangs", what, g.hangs))
		}
	})
	return func() {
		close(finished)
		timer.Stop()
	}
}

// goroutines returns a dump of all stacks, at most 1 MiB.
func goroutines() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// Close closes the store. raft must have been shut down. A later call gets an error, which does not end the process.
func (g *guardedStore) Close() error {
	if g.closed.Swap(true) {
		return nil
	}
	return g.inner.Close()
}

// logSize counts the bytes of the entries that this process has appended to the log: those that are still in the log,
// and those since the last call of reset. It is about right: an entry counts 64 bytes beside its data, and entries
// leave in blocks.
type logSize struct {
	mu     sync.Mutex
	since  int64 // bytes appended since reset
	blocks []logBlock
}

// logBlock is up to logBlockEntries entries that were appended one after another.
type logBlock struct {
	last    uint64 // index of its last entry
	entries int64
	bytes   int64
}

const logBlockEntries = 256

func (s *logSize) add(logs []*raft.Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range logs {
		if n := len(s.blocks); n == 0 || s.blocks[n-1].entries == logBlockEntries {
			s.blocks = append(s.blocks, logBlock{})
		}
		b, bytes := &s.blocks[len(s.blocks)-1], int64(len(l.Data))+64
		b.last, b.entries, b.bytes = l.Index, b.entries+1, b.bytes+bytes
		s.since += bytes
	}
}

// drop forgets the blocks whose last entry was deleted.
func (s *logSize) drop(from, to uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocks = slices.DeleteFunc(s.blocks, func(b logBlock) bool { return from <= b.last && b.last <= to })
}

// kept returns how many of the counted entries are still in the log, and their bytes.
func (s *logSize) kept() (entries, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.blocks {
		entries, bytes = entries+b.entries, bytes+b.bytes
	}
	return entries, bytes
}

// appended returns the bytes that were appended since reset.
func (s *logSize) appended() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

func (s *logSize) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = 0
}
