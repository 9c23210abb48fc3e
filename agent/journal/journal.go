package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

// Codes of the errors of this package.
const (
	CodeDamaged model.Code = "journal_damaged" // the file is damaged and is left unchanged
	CodeFailed  model.Code = "journal_failed"  // the disk refused; the next write tries again
	CodeLocked  model.Code = "journal_locked"  // another process has it open
)

// A file is rewritten when it is larger than twice its size after the last rewrite plus compactSlack.
const compactSlack = 64 << 10

// compactOps is how many values go into one record of a rewritten file.
const compactOps = 1000

// Sync says when a write reaches the disk.
type Sync int

// The policies.
const (
	SyncEach  Sync = iota // before the call returns; the default
	SyncNever             // when the kernel decides; a power cut may lose acknowledged writes, or damage the journal
)

// Journal is an open journal. Safe for many goroutines.
type Journal struct {
	path string
	sync Sync

	mu     sync.RWMutex
	file   *os.File
	lock   *os.File
	seq    uint64
	size   int64 // of the file up to its last whole record
	base   int64 // size of the file when it was last rewritten
	values map[string][]byte
	failed error // why the file's content is unknown, or that the journal is closed; otherwise nil
}

// Open reads the journal at path, or makes an empty one; the directory must exist. A record that a crash cut off at
// the end is dropped, because it was never acknowledged. Codes: CodeDamaged, CodeLocked, CodeFailed. CodeDamaged means
// damage before the end, which no crash causes; the caller may move the file away.
func Open(path string, sync Sync) (*Journal, error) {
	j := &Journal{path: path, sync: sync, values: make(map[string][]byte)}
	if err := j.takeLock(); err != nil {
		return nil, err
	}
	if err := j.load(); err != nil {
		if j.file != nil {
			j.file.Close()
		}
		j.lock.Close()
		return nil, err
	}
	return j, nil
}

// takeLock locks a separate file, since compaction replaces the journal file.
func (j *Journal) takeLock() error {
	lock, err := os.OpenFile(j.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return model.Refuse(CodeFailed, "lock journal %s: %v", j.path, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return model.Refuse(CodeLocked, "journal %s is in use by another process", j.path).
			WithHint("stop the other agent first")
	}
	j.lock = lock
	return nil
}

// load reads the file, cuts off a torn tail, and leaves the journal ready for writing.
func (j *Journal) load() error {
	b, err := os.ReadFile(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return j.failure(j.rewrite())
	}
	if err != nil {
		return model.Refuse(CodeFailed, "read journal: %v", err)
	}
	end, err := j.replay(b)
	if err != nil {
		return model.Refuse(CodeDamaged, "journal %s is damaged: %v", j.path, err).
			WithHint("move the file away; the agent then starts without memory of what it ran")
	}
	j.file, err = os.OpenFile(j.path, os.O_WRONLY, 0o600)
	if err != nil {
		return model.Refuse(CodeFailed, "open journal: %v", err)
	}
	j.size, j.base = int64(end), int64(end)/2
	if end == len(b) {
		return nil
	}
	return j.failure(j.cut())
}

// replay applies the records in b and returns where the last whole one ends.
func (j *Journal) replay(b []byte) (int, error) {
	if !bytes.HasPrefix(b, []byte(header)) {
		return 0, errors.New("it does not begin as a journal")
	}
	at := len(header)
	for at < len(b) {
		seq, ops, size, err := parseRecord(b[at:])
		if err == nil && j.seq != 0 && seq != j.seq+1 {
			return 0, fmt.Errorf("record %d follows record %d at byte %d", seq, j.seq, at)
		}
		if errors.Is(err, errCut) {
			if j.seq == 0 || recordAfter(b[at:], j.seq) {
				return 0, fmt.Errorf("the record at byte %d is broken, and it is not the last", at)
			}
			return at, nil
		}
		if err != nil {
			return 0, fmt.Errorf("at byte %d: %w", at, err)
		}
		j.apply(seq, ops)
		at += size
	}
	if j.seq == 0 {
		return 0, errors.New("it has no records")
	}
	return at, nil
}

func (j *Journal) apply(seq uint64, ops []Op) {
	j.seq = seq
	for _, op := range ops {
		if op.Delete {
			delete(j.values, op.Key)
		} else {
			j.values[op.Key] = op.Value
		}
	}
}

// cut removes what follows the last whole record.
func (j *Journal) cut() error {
	if err := j.file.Truncate(j.size); err != nil {
		return fmt.Errorf("cut the journal: %w", err)
	}
	return j.flush()
}

func (j *Journal) flush() error {
	if j.sync == SyncNever {
		return nil
	}
	return j.file.Sync()
}

// failure turns an internal error into one for callers.
func (j *Journal) failure(err error) error {
	if err == nil {
		return nil
	}
	return model.Refuse(CodeFailed, "journal %s can't be written: %v", j.path, err).
		WithHint("free space on the disk, or replace it")
}

// Put sets key to value. With SyncEach it returns when the value is on disk. CodeFailed: the value is not on disk; a
// later write may succeed.
func (j *Journal) Put(key string, value []byte) error {
	return j.Write(Op{Key: key, Value: value})
}

// Delete removes key; a missing key is no error. Otherwise as Put.
func (j *Journal) Delete(key string) error {
	return j.Write(Op{Key: key, Delete: true})
}

// Write makes all changes together: after a crash either all or none are there. Otherwise it is like Put.
func (j *Journal) Write(ops ...Op) error {
	if len(ops) == 0 {
		return nil
	}
	own := make([]Op, len(ops))
	for i, op := range ops {
		own[i] = Op{Key: op.Key, Value: bytes.Clone(op.Value), Delete: op.Delete}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.mend(); err != nil {
		return j.failure(err)
	}
	b, err := encodeRecord(j.seq+1, own)
	if err != nil {
		return j.failure(err) // nothing was written: the journal stays usable
	}
	if err := j.append(b); err != nil {
		return j.failure(err)
	}
	j.apply(j.seq+1, own)
	if j.size > 2*j.base+compactSlack {
		// Acknowledged already: a failed rewrite leaves the old file in use, and is tried again with the next write.
		_ = j.rewrite()
	}
	return nil
}

// mend writes a new file with everything acknowledged, if the content of the old file is unknown.
func (j *Journal) mend() error {
	if j.failed == nil || j.lock == nil {
		return j.failed
	}
	j.failed = nil
	if err := j.rewrite(); err != nil {
		j.failed = err
	}
	return j.failed
}

// append writes b after the last record. If that fails, it cuts off what was written. If the cut fails, or the kernel
// reports a lost page (fsync), the content of the file is unknown. Then the next write makes a new file.
func (j *Journal) append(b []byte) error {
	_, err := j.file.WriteAt(b, j.size)
	if err != nil {
		if cerr := j.cut(); cerr != nil {
			j.failed = cerr
		}
		return err
	}
	if err := j.flush(); err != nil {
		j.failed = err
		return err
	}
	j.size += int64(len(b))
	return nil
}

// rewrite makes a new file of all values and renames it over the old one.
func (j *Journal) rewrite() error {
	b, seq, err := j.compacted()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(j.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil && j.sync == SyncEach {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(j.path+".new", j.path)
	}
	if err != nil {
		f.Close()
		_ = os.Remove(j.path + ".new")
		return err
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.seq, j.size, j.base = f, seq, int64(len(b)), int64(len(b))
	if err := durable.SyncDir(filepath.Dir(j.path)); err != nil && j.sync == SyncEach {
		j.failed = err // a power cut may bring back the old file, without later writes
		return err
	}
	return nil
}

// compacted returns the content of a new file, and the sequence of its last record. The file has at least one record.
func (j *Journal) compacted() ([]byte, uint64, error) {
	b, seq := []byte(header), j.seq
	keys := slices.Sorted(maps.Keys(j.values))
	for first := true; first || len(keys) > 0; first = false {
		n := min(len(keys), compactOps)
		ops := make([]Op, n)
		for i, k := range keys[:n] {
			ops[i] = Op{Key: k, Value: j.values[k]}
		}
		seq++
		record, err := encodeRecord(seq, ops)
		if err != nil {
			return nil, 0, err
		}
		b, keys = append(b, record...), keys[n:]
	}
	return b, seq, nil
}

// Get returns a copy of the value of key.
func (j *Journal) Get(key string) ([]byte, bool) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	v, ok := j.values[key]
	return bytes.Clone(v), ok
}

// All returns a copy of all keys and values.
func (j *Journal) All() map[string][]byte {
	j.mu.RLock()
	defer j.mu.RUnlock()
	all := maps.Clone(j.values)
	for k, v := range all {
		all[k] = bytes.Clone(v)
	}
	return all
}

// Close closes the file, which has everything acknowledged. It may be called again.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lock == nil {
		return nil
	}
	_ = unix.Flock(int(j.lock.Fd()), unix.LOCK_UN) // a child between fork and exec also holds the lock
	err := errors.Join(j.flush(), j.file.Close(), j.lock.Close())
	j.failed, j.lock = io.ErrClosedPipe, nil
	return err
}
