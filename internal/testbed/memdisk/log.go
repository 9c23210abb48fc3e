package memdisk

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// LogStore is a store that Open can wrap: raft's log store and stable store, in one file of bbolt.
type LogStore interface {
	raft.LogStore
	raft.StableStore
	Close() error
}

// Log is a log store on a Disk. Each write is one transaction, which is on the disk when the call returns without an
// error.
type Log struct {
	LogStore
	disk    *Disk
	name    string // name of the file in the data directory
	path    string
	dead    chan struct{} // closed when the machine loses power
	pending []*write      // writes that have begun and are not on the disk yet
}

// write is a transaction that has begun.
type write struct {
	commit func() error
	ended  bool // lose has already committed the transaction to the old directory
}

// Open returns a log that writes to inner, with the faults of the disk. inner must be the open store of the file at
// path, and the file must be directly in the data directory.
func (d *Disk) Open(path string, inner LogStore) *Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &Log{LogStore: inner, disk: d, name: filepath.Base(path), path: path, dead: make(chan struct{})}
	d.logs[l] = struct{}{}
	return l
}

// StoreLog implements raft.LogStore.
func (l *Log) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (l *Log) StoreLogs(logs []*raft.Log) error {
	return l.write(func() error { return l.LogStore.StoreLogs(logs) })
}

// DeleteRange implements raft.LogStore.
func (l *Log) DeleteRange(from, to uint64) error {
	return l.write(func() error { return l.LogStore.DeleteRange(from, to) })
}

// Set implements raft.StableStore.
func (l *Log) Set(key, value []byte) error {
	return l.write(func() error { return l.LogStore.Set(key, value) })
}

// SetUint64 implements raft.StableStore.
func (l *Log) SetUint64(key []byte, value uint64) error {
	return l.write(func() error { return l.LogStore.SetUint64(key, value) })
}

// Close implements io.Closer. A later power loss does not affect the log.
func (l *Log) Close() error {
	l.disk.mu.Lock()
	delete(l.disk.logs, l)
	l.disk.mu.Unlock()
	return l.LogStore.Close()
}

// write begins a transaction, and waits as long as the disk's faults require. It then commits the transaction, or fails
// if the disk has a fault or is full.
func (l *Log) write(commit func() error) error {
	d, w := l.disk, &write{commit: commit}
	d.mu.Lock()
	defer d.mu.Unlock()
	l.pending = append(l.pending, w)
	defer func() { l.pending = slices.DeleteFunc(l.pending, func(p *write) bool { return p == w }) }()
	if d.latency > 0 && !isClosed(l.dead) {
		timer := time.NewTimer(d.latency + time.Duration(d.random.Int64N(int64(d.latency))))
		d.mu.Unlock()
		select {
		case <-timer.C:
		case <-l.dead:
			timer.Stop()
		}
		d.mu.Lock()
	}
	for d.hang != nil && !isClosed(l.dead) {
		hang := d.hang
		d.mu.Unlock()
		select {
		case <-hang:
		case <-l.dead:
		}
		d.mu.Lock()
	}
	switch {
	case w.ended:
		return nil
	case isClosed(l.dead): // after a power loss, writes go to the old directory
		return commit()
	case d.fault != nil:
		return &os.PathError{Op: "write", Path: l.path, Err: d.fault}
	case d.size > 0 && d.free() == 0:
		return &os.PathError{Op: "write", Path: l.path, Err: syscall.ENOSPC}
	}
	return commit()
}

// lose simulates the power loss for one log. It changes the file at the path image to what the next start may find: the
// file has some of the writes in progress, one more may be torn, and the others are lost. lose may also make the newest
// snapshot unfinished. The disk's mutex is held.
func (l *Log) lose(image string) (report string, err error) {
	close(l.dead)
	random := l.disk.random
	pending := slices.Clone(l.pending)
	random.Shuffle(len(pending), func(i, j int) { pending[i], pending[j] = pending[j], pending[i] })
	if len(pending) > 0 {
		report = fmt.Sprintf(" %d writes were under way:", len(pending))
	}
	for _, w := range pending {
		before, err := os.ReadFile(l.path)
		if err != nil {
			return "", err
		}
		fate := fates[random.IntN(len(fates))]
		report += " " + fate.String()
		if fate == lost {
			break
		}
		w.ended = true
		if err := w.commit(); err != nil {
			return "", fmt.Errorf("a write that a power loss interrupts: %w", err)
		}
		after, err := os.ReadFile(l.path)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(image, fate.mix(before, after, random), 0o600); err != nil {
			return "", err
		}
		if fate != whole {
			break
		}
	}
	did, err := l.unfinish(filepath.Dir(image))
	return report + did, err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
