package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/outspan/outspan/model"
)

// StoppedDir is the data directory of a stopped server, opened for reading. The server can't start before Close. If a
// file is damaged, methods that need it return an error that names the file, and other methods still work. A StoppedDir
// is not safe for concurrent use.
type StoppedDir struct {
	path   string
	store  *raftboltdb.BoltStore
	keys   *bbolt.DB // the file of store, opened again to find the entry after a gap
	broken error     // why the log can't be read; nil if it can
	bounds LogBounds
}

// LogBounds are the indexes of the oldest and the newest entry of a log; both are 0 in an empty one.
type LogBounds struct{ First, Last uint64 }

// StoppedServer identifies the server of a data directory.
type StoppedServer struct {
	ID          model.ServerID `json:"id"`
	ClusterName string         `json:"cluster_name"`
	ClusterID   string         `json:"cluster_id"`
	Term        uint64         `json:"term"` // the newest term that the server knew of
	VotedFor    string         `json:"voted_for,omitempty"`
	VotedTerm   uint64         `json:"voted_term,omitempty"`
}

// OpenStopped opens a data directory for reading. It waits at most 2 s for the lock of a server that is just stopping.
// If the log is damaged, OpenStopped succeeds, and the methods that need the log return the error. Codes: not_found if
// the directory is missing; invalid if it is not a server's or can't be read; conflict while the server runs.
func OpenStopped(path string) (*StoppedDir, error) {
	log := filepath.Join(path, fileLog)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, model.Refuse(model.CodeNotFound, "there is no directory %s", path).
			WithHint("give the data_dir of the server's configuration")
	}
	info, err := os.Stat(log)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, model.Refuse(model.CodeInvalid, "%s is no data directory of a server: it has no %s", path, fileLog).
			WithHint("give the data_dir of the server's configuration")
	case err != nil:
		return nil, model.Refuse(model.CodeInvalid, "can't read %s: %v", log, err).
			WithHint("run this as the user that the server runs as")
	}
	d := &StoppedDir{path: path}
	if info.Size() == 0 {
		d.broken = damagedLog(log, errors.New("it is empty"))
		return d, nil
	}
	d.broken = guard(func() error { return d.openLog(log) })
	switch {
	case errors.Is(d.broken, bolterrors.ErrTimeout):
		return nil, model.Refuse(model.CodeConflict, "the server of %s is running: it holds %s", path, fileLog).
			WithHint(
				"stop it first; of a running one, outspan server snapshot save FILE gives a file that outspan debug reads too")
	case errors.Is(d.broken, fs.ErrPermission):
		return nil, model.Refuse(model.CodeInvalid, "can't read %s: %v", log, d.broken).
			WithHint("run this as the user that the server runs as")
	case d.broken != nil:
		d.broken = damagedLog(log, d.broken)
	}
	return d, nil
}

func (d *StoppedDir) openLog(path string) error {
	options := &bbolt.Options{Timeout: lockTimeout, ReadOnly: true}
	store, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: options})
	if err != nil {
		return err
	}
	d.store = store
	if d.keys, err = bbolt.Open(path, 0, options); err != nil {
		return err
	}
	if d.bounds.First, err = store.FirstIndex(); err != nil {
		return err
	}
	d.bounds.Last, err = store.LastIndex()
	return err
}

func damagedLog(path string, err error) *model.Error {
	return model.Refuse(model.CodeInvalid, "the log %s is damaged: %v", path, err).
		WithHint("what its snapshots hold can still be seen: outspan debug snapshot %s; the server itself comes back as a "+
			"new one with an empty data directory", filepath.Dir(path))
}

// guard runs fn, and turns a panic or a memory fault in fn into an error. bbolt maps the file into memory and trusts
// its content, so a damaged page or a truncated file causes a panic or a fault. Use guard only to inspect a stopped
// server: a running server must exit instead of continuing after such an error.
func guard(fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return fn()
}

// Path returns the path of the directory.
func (d *StoppedDir) Path() string { return d.path }

// Close releases the directory, so that the server can start again.
func (d *StoppedDir) Close() error {
	var err error
	if d.store != nil {
		err = guard(d.store.Close)
	}
	if d.keys != nil {
		err = errors.Join(err, guard(d.keys.Close))
	}
	return err
}

// Server identifies the server of the directory. Fields that can't be read are left empty.
func (d *StoppedDir) Server() StoppedServer {
	var s StoppedServer
	if text, err := os.ReadFile(filepath.Join(d.path, fileServerID)); err == nil {
		s.ID = model.ServerID(strings.TrimSpace(string(text)))
	}
	var of dirCluster
	if text, err := os.ReadFile(filepath.Join(d.path, fileCluster)); err == nil && json.Unmarshal(text, &of) == nil {
		s.ClusterName, s.ClusterID = of.Name, of.ID
	}
	if d.broken != nil {
		return s
	}
	_ = guard(func() error { // raft's keys; a server that never voted lacks the two keys of the vote
		s.Term, _ = d.store.GetUint64([]byte("CurrentTerm"))
		s.VotedTerm, _ = d.store.GetUint64([]byte("LastVoteTerm"))
		candidate, err := d.store.Get([]byte("LastVoteCand"))
		s.VotedFor = string(candidate)
		return err
	})
	return s
}

// Bounds returns the indexes of the log's oldest and newest entry. The newest entries may not be committed; the log
// does not show which entries are. Code: invalid if the log is damaged.
func (d *StoppedDir) Bounds() (LogBounds, error) { return d.bounds, d.broken }

// Newest returns the index of the last entry in the log or of the newest snapshot, whichever is higher.
func (d *StoppedDir) Newest() uint64 {
	newest := d.bounds.Last
	for _, s := range d.Snapshots() {
		newest = max(newest, s.Index)
	}
	return newest
}

// entryTime returns an entry's wall time. If the entry has none, it returns the time when the leader appended the
// entry.
func entryTime(wall int64, appended time.Time) time.Time {
	if wall > 0 {
		return time.UnixMilli(wall)
	}
	return appended
}
