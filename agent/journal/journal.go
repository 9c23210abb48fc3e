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
	CodeFailed  model.Code = "journal_failed"  // the disk refused, or the write is too large; a later write may succeed
	CodeLocked  model.Code = "journal_locked"  // another process has the journal open
)

// The journal file is rewritten when it is larger than twice its size after the last rewrite, plus compactSlack bytes.
const compactSlack = 64 << 10

// compactOps is the largest number of values in one record of a rewritten file.
const compactOps = 1000

// Sync says when a write reaches the disk.
type Sync int

// Values of Sync.
const (
	SyncEach  Sync = iota // before Write returns; the default
	SyncNever             // when the kernel decides; a power cut may lose acknowledged writes, or damage the journal
)

// Journal is an open journal. Safe for concurrent use.
type Journal struct {
	path string
	sync Sync

	mu     sync.RWMutex
	file   *os.File
	lock   *os.File
	seq    uint64
	size   int64 // offset at which the last whole record ends
	base   int64 // size of the file after its last rewrite; Open assumes half of the size it finds
	values map[string][]byte
	failed error // set while the file's content is unknown, and once the journal is closed
}

// Open reads the journal at path, or creates an empty one if there is no file. The directory must exist. Open drops a
// record that a crash cut off at the end of the file, because that write was never acknowledged. Codes: CodeDamaged,
// CodeLocked, CodeFailed. CodeDamaged means damage that no crash causes with SyncEach. The caller may then move the
// file away.
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

// takeLock locks a separate file, because rewrite replaces the journal file.
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

// load reads the file, or creates it, and cuts off a torn last record.
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

// replay applies the records in b, and returns the offset where the last whole record ends. It returns an error if b
// has no whole record, or any damage other than a torn last record.
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

// cut truncates the file after its last whole record.
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

// failure returns err as an error with CodeFailed; it returns nil if err is nil.
func (j *Journal) failure(err error) error {
	if err == nil {
		return nil
	}
	return model.Refuse(CodeFailed, "journal %s can't be written: %v", j.path, err).
		WithHint("free space on the disk, or replace it")
}

// Put sets key to value. With SyncEach it returns when the value is on disk. After CodeFailed, Get still returns the
// earlier value, and so does the next Open, unless a failing disk has kept the new one. A later write may succeed.
func (j *Journal) Put(key string, value []byte) error {
	return j.Write(Op{Key: key, Value: value})
}

// Delete removes key. A missing key is no error. Otherwise Delete is like Put.
func (j *Journal) Delete(key string) error {
	return j.Write(Op{Key: key, Delete: true})
}

// Write makes all changes in ops together: after a crash, either all of them are in the journal or none of them is. It
// does nothing if ops is empty. Otherwise Write is like Put.
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
		return j.failure(err) // nothing was written, so the journal stays usable
	}
	if err := j.append(b); err != nil {
		return j.failure(err)
	}
	j.apply(j.seq+1, own)
	if j.size > 2*j.base+compactSlack {
		// This write has succeeded even if the rewrite fails. The next write tries the rewrite again.
		_ = j.rewrite()
	}
	return nil
}

// mend writes a new file with all acknowledged values, if the content of the old file is unknown. It returns an error
// if the rewrite fails or the journal is closed.
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

// append writes b after the last record. If the write or the fsync fails, it cuts off what was written, so that a later
// Open does not find a record that was refused. If the cut or the fsync fails, the content of the file is unknown, and
// the next write makes a new file.
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
		_ = j.cut() // even if this succeeds, a power cut may bring the record back
		return err
	}
	j.size += int64(len(b))
	return nil
}

// rewrite writes all values to a new file, which replaces the old one.
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
		j.failed = err // a power cut may bring back the old file, which lacks later writes
		return err
	}
	return nil
}

// compacted returns the content of a new file with all values, and the sequence number of its last record. The file has
// at least one record, even if there are no values.
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

// Get returns a copy of the value of key, and whether the key exists.
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

// Close closes the file and releases the lock. Later writes fail. Close may be called again.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lock == nil {
		return nil
	}
	_ = unix.Flock(int(j.lock.Fd()), unix.LOCK_UN) // closing isn't enough: a child between fork and exec shares the lock
	err := errors.Join(j.flush(), j.file.Close(), j.lock.Close())
	j.failed, j.lock = io.ErrClosedPipe, nil
	return err
}
