package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Names in raft's part of a data directory.
const (
	dirSnapshots = "snapshots"
	snapshotMeta = "meta.json"
	snapshotData = "state.bin"
	unfinished   = ".tmp"
)

// StoredSnapshot is one snapshot of a data directory, as its meta.json describes it.
type StoredSnapshot struct {
	File    string // the file with the state
	Index   uint64 // of the last entry in the state
	Term    uint64 // of that entry
	Bytes   int64
	Servers []StoredMember // the members at that entry
	Err     *model.Error   // why meta.json can't be read; then only File is known

	sum []byte // CRC-64 of the file, from meta.json
}

// Snapshots returns the snapshots of the directory, the newest first. Snapshots whose meta.json can't be read are last,
// with Err set. Unfinished snapshots are skipped. A server leaves one behind if it stops while it writes the snapshot.
func (d *StoppedDir) Snapshots() []StoredSnapshot { return SnapshotsIn(d.path) }

// SnapshotsIn is StoppedDir.Snapshots for the data directory of a server that may run. The oldest one may be removed
// meanwhile; then its Err is set.
func SnapshotsIn(dataDir string) []StoredSnapshot {
	root := filepath.Join(dataDir, dirSnapshots)
	entries, _ := os.ReadDir(root) // no directory means no snapshot
	var found []StoredSnapshot
	for _, e := range entries {
		if e.IsDir() && !strings.HasSuffix(e.Name(), unfinished) {
			found = append(found, ReadStored(filepath.Join(root, e.Name())))
		}
	}
	slices.SortFunc(found, func(a, b StoredSnapshot) int {
		return cmp.Or(cmp.Compare(b.Term, a.Term), cmp.Compare(b.Index, a.Index), cmp.Compare(b.File, a.File))
	})
	return found
}

// ReadStored reads the meta.json of one directory below snapshots, and checks its seal. An error is returned in Err.
func ReadStored(dir string) StoredSnapshot {
	s := StoredSnapshot{File: filepath.Join(dir, snapshotData)}
	path := filepath.Join(dir, snapshotMeta)
	text, err := os.ReadFile(path)
	var meta struct {
		raft.SnapshotMeta
		CRC []byte
	}
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(text)).Decode(&meta)
	}
	if err == nil {
		err = checkSeal(dir, text)
	}
	if err != nil {
		s.Err = model.Refuse(model.CodeInvalid, "the file %s can't be read: %v", path, err).
			WithHint("its state may be whole: outspan debug snapshot %s", s.File)
		return s
	}
	s.Index, s.Term, s.Bytes, s.sum = meta.Index, meta.Term, meta.Size, meta.CRC
	s.Servers = membersOf(meta.Configuration)
	return s
}

// IsStored reports whether a path is a directory with one snapshot in it.
func IsStored(path string) bool {
	_, err := os.Stat(filepath.Join(path, snapshotData))
	return err == nil
}

// State reads the state of the snapshot and verifies the checksum from meta.json. Codes: that of Err; invalid if the
// checksum is wrong; those of fsm.ReadSnapshot, with the file in the message.
func (s StoredSnapshot) State() (fsm.State, error) {
	if s.Err != nil {
		return fsm.State{}, s.Err
	}
	hash := crc64.New(crc64.MakeTable(crc64.ECMA))
	state, err := readState(s.File, hash)
	if err != nil {
		return fsm.State{}, err
	}
	if !bytes.Equal(hash.Sum(nil), s.sum) {
		return fsm.State{},
			model.Refuse(model.CodeInvalid, "the snapshot %s does not match the checksum in its %s", s.File, snapshotMeta).
				WithHint("use another snapshot; its rows match their own checksums: outspan debug snapshot %s", s.File)
	}
	return state, nil
}

// ReadStateFile reads the state of a snapshot file. Codes: those of fsm.ReadSnapshot, with the file in the message.
func ReadStateFile(path string) (fsm.State, error) { return readState(path, io.Discard) }

func readState(path string, sum io.Writer) (fsm.State, error) {
	f, err := os.Open(path)
	if err != nil {
		return fsm.State{}, model.Refuse(model.CodeInvalid, "can't read the file: %v", err)
	}
	defer f.Close()
	state, err := fsm.ReadSnapshot(bufio.NewReader(io.TeeReader(f, sum)))
	if known, ok := errors.AsType[*model.Error](err); ok {
		return fsm.State{}, &model.Error{Code: known.Code, Message: path + ": " + known.Message, Hint: known.Hint}
	}
	if err != nil {
		return fsm.State{}, fmt.Errorf("read %s: %w", path, err)
	}
	return state, nil
}

// Replay is a state that was rebuilt from a snapshot and the log after it.
type Replay struct {
	State   fsm.State
	From    string         // the file of the snapshot that it began with; empty if it began with an empty state
	Index   uint64         // of the last record that State includes
	Applied int            // number of records after the snapshot that State includes
	Skipped []*model.Error // newer snapshots that could not be read
}

// Replay rebuilds the state as of the record at index; 0 means the newest record. It begins with the newest readable
// snapshot that is not newer than the record. If it fails, it also returns what it has rebuilt. Codes: not_found if
// index is too new, or if the log does not reach from the snapshot to index; invalid or needs_format for an entry that
// can't be read; internal for an entry that this program can't apply.
func (d *StoppedDir) Replay(ctx context.Context, index uint64) (Replay, error) {
	newest := d.Newest()
	switch {
	case index == 0:
		index = newest
	case index > newest:
		return Replay{},
			model.Refuse(model.CodeNotFound, "there is no entry %d in %s: the newest is %d", index, d.path, newest)
	}
	r := d.base(index)
	if r.Index == index {
		return r, nil
	}
	if d.broken != nil {
		return r, d.broken
	}
	if r.Index+1 < d.bounds.First || d.bounds.Last < index {
		return r, d.hole(r.Index, index)
	}
	for record, err := range d.Records(r.Index+1, index) {
		if err != nil {
			return r, err
		}
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		next, _, err := Step(r.State, record)
		if err != nil {
			return r, err
		}
		r.State, r.Index = next, record.Index
		r.Applied++
	}
	return r, nil
}

// base returns the newest readable snapshot at or before an index, or the empty state if there is none.
func (d *StoppedDir) base(index uint64) Replay {
	r := Replay{State: fsm.NewState()}
	for _, s := range d.Snapshots() {
		if s.Err == nil && s.Index > index {
			continue
		}
		state, err := s.State()
		if err == nil {
			r.State, r.From, r.Index = state, s.File, s.Index
			return r
		}
		known, ok := errors.AsType[*model.Error](err)
		if !ok {
			known = model.Refuse(model.CodeInvalid, "%v", err)
		}
		r.Skipped = append(r.Skipped, known)
	}
	return r
}

// hole returns Replay's error for a log that lacks entries between the snapshot and the wanted index.
func (d *StoppedDir) hole(from, to uint64) *model.Error {
	begins := "no snapshot at or before it can be read"
	if from > 0 {
		begins = fmt.Sprintf("the newest snapshot before it that can be read is of entry %d", from)
	}
	return model.Refuse(model.CodeNotFound, "the state at entry %d can't be made again: %s, and the log %s",
		to, begins, d.bounds).
		WithHint("see which states there are with: outspan debug snapshot %s", d.path)
}

// Step applies one record to a state, as a server does. Records of raft itself change nothing. Codes: that of r.Err;
// internal if applying the record panics, as it would on every server.
func Step(s fsm.State, r LogRecord) (next fsm.State, results []fsm.Result, err error) {
	if r.Err != nil {
		return s, nil, r.Err
	}
	if r.Kind != RecordCommand {
		return s, nil, nil
	}
	err = guard(func() error {
		next, results = s.Apply(r.Index, r.Term, r.Entry)
		return nil
	})
	if err != nil {
		return s, nil, model.Refuse(model.CodeInternal, "entry %d can't be applied: %v", r.Index, err).
			WithHint(
				"every server that reaches it ends; keep the data directory, and report this with what outspan debug entry shows")
	}
	return next, results, nil
}
