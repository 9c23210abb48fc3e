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

// StoppedDir is the data directory of a server that doesn't run, opened for reading. While it is open the server can't
// start. Damaged parts give errors that name the file; the rest can still be read. Only one goroutine may use it.
type StoppedDir struct {
	path   string
	store  *raftboltdb.BoltStore
	keys   *bbolt.DB // the same file, because the store can't find the entry after a gap
	broken error     // why the log can't be read
	bounds LogBounds
}

// LogBounds are the indexes of the oldest and the newest entry of a log; both are 0 in an empty one.
type LogBounds struct{ First, Last uint64 }

// StoppedServer identifies the server of a data directory.
type StoppedServer struct {
	ID          model.ServerID `json:"id"`
	ClusterName string         `json:"cluster_name"`
	ClusterID   string         `json:"cluster_id"`
	Term        uint64         `json:"term"` // the newest that it knew of
	VotedFor    string         `json:"voted_for,omitempty"`
	VotedTerm   uint64         `json:"voted_term,omitempty"`
}

// OpenStopped opens a data directory for reading. It waits at most 2 s for the lock of a server that is just ending. A
// damaged log is no error yet: the methods that need the log return it. Codes: not_found for a missing directory,
// invalid for one that is no server's, conflict while the server runs.
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

// guard turns a panic into an error. The library reads the file as mapped memory and trusts it, so a damaged page or a
// truncated file causes a panic or a fault. guard is for reading only: code that wants to continue after such an error
// must end the process instead.
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

// Path returns the directory.
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

// Server identifies the server of the directory. What can't be read is left empty.
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
	_ = guard(func() error { // the keys that the raft library uses; a server that never voted has none
		s.Term, _ = d.store.GetUint64([]byte("CurrentTerm"))
		s.VotedTerm, _ = d.store.GetUint64([]byte("LastVoteTerm"))
		candidate, err := d.store.Get([]byte("LastVoteCand"))
		s.VotedFor = string(candidate)
		return err
	})
	return s
}

// Bounds returns which entries the log has. The newest may be uncommitted: a stopped server can't know. Code: invalid
// for a damaged log.
func (d *StoppedDir) Bounds() (LogBounds, error) { return d.bounds, d.broken }

// Newest returns the index of the newest state that can be read: that of the last entry, or of a newer snapshot.
func (d *StoppedDir) Newest() uint64 {
	newest := d.bounds.Last
	for _, s := range d.Snapshots() {
		newest = max(newest, s.Index)
	}
	return newest
}

// entryTime returns when an entry was made, for people.
func entryTime(wall int64, appended time.Time) time.Time {
	if wall > 0 {
		return time.UnixMilli(wall)
	}
	return appended
}
