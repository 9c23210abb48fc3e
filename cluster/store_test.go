package cluster

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// faultyStore is a log store in memory whose disk can fail or hang.
type faultyStore struct {
	*raft.InmemStore
	mu   sync.Mutex
	err  error
	hang chan struct{} // if not nil, writes block until it is closed
}

func newFaultyStore() *faultyStore { return &faultyStore{InmemStore: raft.NewInmemStore()} }

func (f *faultyStore) fault() error {
	f.mu.Lock()
	hang, err := f.hang, f.err
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return err
}

func (f *faultyStore) set(err error, hang chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.hang = err, hang
}

func (f *faultyStore) StoreLogs(logs []*raft.Log) error {
	if err := f.fault(); err != nil {
		return err
	}
	return f.InmemStore.StoreLogs(logs)
}

func (f *faultyStore) SetUint64(key []byte, v uint64) error {
	if err := f.fault(); err != nil {
		return err
	}
	return f.InmemStore.SetUint64(key, v)
}

func (f *faultyStore) Close() error { return nil }

// inGoroutine runs fn in a goroutine, as raft does. It returns false if fn ended the goroutine instead of returning.
func inGoroutine(fn func()) (returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
		returned = true
	}()
	<-done
	return returned
}

func TestStoreFailsStop(t *testing.T) {
	inner := newFaultyStore()
	var fatal []error
	g := newGuardedStore(inner, func(err error) { fatal = append(fatal, err) }, nil, hclog.NewNullLogger())

	inner.set(errors.New("input/output error"), nil)
	if err := g.StoreLog(&raft.Log{Index: 1}); err == nil || len(fatal) != 0 {
		t.Fatalf("before arm: error %v, fatal %v; want an error and no end", err, fatal)
	}
	inner.set(nil, nil)
	g.arm()
	if err := g.StoreLog(&raft.Log{Index: 1}); err != nil {
		t.Fatal(err)
	}
	inner.set(errors.New("input/output error"), nil)
	if inGoroutine(func() { g.StoreLog(&raft.Log{Index: 2}) }) {
		t.Error("raft saw a failed write and went on")
	}
	inner.set(nil, nil)
	if inGoroutine(func() { g.StoreLog(&raft.Log{Index: 2}) }) {
		t.Error("the store was used after a failed write")
	}
	if inGoroutine(func() { g.SetUint64([]byte("term"), 5) }) {
		t.Error("a vote was written after a failed write")
	}
	if len(fatal) != 1 || !strings.Contains(fatal[0].Error(), "append to log: input/output error") {
		t.Errorf("fatal = %v, want one that names the operation", fatal)
	}
}

func TestStoreAbsenceIsNoFailure(t *testing.T) {
	store, err := OpenBolt(filepath.Join(t.TempDir(), "raft.db"))
	if err != nil {
		t.Fatal(err)
	}
	g := newGuardedStore(store, func(err error) { t.Errorf("fatal: %v", err) }, nil, hclog.NewNullLogger())
	g.arm()
	if _, err := g.GetUint64([]byte("CurrentTerm")); err == nil || err.Error() != "not found" {
		t.Errorf("absent value: %v; raft needs the text \"not found\"", err)
	}
	if err := g.GetLog(7, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("absent log: %v", err)
	}
	if !raft.MonotonicLogStore(g).IsMonotonic() {
		t.Error("not monotonic: an install onto a divergent tail would livelock")
	}
	if err := g.StoreLogs([]*raft.Log{{Index: 1, Data: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	if first, err := g.FirstIndex(); first != 1 || err != nil {
		t.Errorf("first index %d, %v", first, err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.LastIndex(); !errors.Is(err, errStoreClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// An open store locks its file. A second server on the same directory gets an error within seconds.
func TestStoreLockHasATimeout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	store, err := OpenBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	began := time.Now()
	if again, err := OpenBolt(path); err == nil {
		again.Close()
		t.Error("opened twice")
	}
	if took := time.Since(began); took > 2*lockTimeout {
		t.Errorf("waited %s", took)
	}
}

func TestStoreWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaultyStore()
		hang := make(chan struct{})
		fatal := make(chan error, 1)
		var log strings.Builder
		g := newGuardedStore(inner, func(err error) { fatal <- err }, nil, hclog.New(&hclog.LoggerOptions{Output: &log}))
		g.arm()
		inner.set(nil, hang)
		began := time.Now()
		returned := make(chan bool, 1)
		go func() { returned <- inGoroutine(func() { g.StoreLog(&raft.Log{Index: 1}) }) }()
		err := <-fatal
		if took := time.Since(began); took != storeHangs || !strings.Contains(err.Error(), "has not returned") {
			t.Errorf("fatal %v after %s, want after %s", err, took, storeHangs)
		}
		if !strings.Contains(log.String(), "TestStoreWatchdog") {
			t.Error("no goroutine dump in the log")
		}
		close(hang)
		if <-returned {
			t.Error("raft went on after the watchdog ended the server")
		}
	})
}

// A slow call that returns before the watchdog's limit has no consequences.
func TestStoreSlowCallIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaultyStore()
		hang := make(chan struct{})
		g := newGuardedStore(inner, func(err error) { t.Errorf("fatal: %v", err) }, nil, hclog.NewNullLogger())
		g.arm()
		inner.set(nil, hang)
		time.AfterFunc(storeHangs-storeHangs/20, func() { close(hang) })
		if err := g.StoreLog(&raft.Log{Index: 1}); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * storeHangs)
	})
}

// Entries are counted until they are deleted, be it at the begin of the log or at its end, give or take one block.
func TestLogSize(t *testing.T) {
	var s logSize
	add := func(from, to uint64) {
		for i := from; i <= to; i++ {
			s.add([]*raft.Log{{Index: i, Data: make([]byte, 36)}})
		}
	}
	check := func(what string, want int64) {
		t.Helper()
		entries, bytes := s.kept()
		if off := entries - want; bytes != 100*entries || max(off, -off) >= logBlockEntries {
			t.Errorf("%s: %d entries of %d bytes are counted, want about %d of 100 bytes each", what, entries, bytes, want)
		}
	}
	add(1, 10_000)
	check("all", 10_000)
	s.drop(1, 3000)
	check("the begin was deleted", 7000)
	s.drop(9001, 10_000)
	check("the end was deleted", 6000)
	add(9001, 12_000)
	check("another end", 9000)
	s.drop(3001, 12_000)
	check("nothing is left", 0)
	if got := s.appended(); got != 1_300_000 {
		t.Errorf("%d bytes were appended, want 1300000", got)
	}
	s.reset()
	if got := s.appended(); got != 0 {
		t.Errorf("%d bytes after a reset", got)
	}
}
