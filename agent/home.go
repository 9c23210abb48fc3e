package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
)

// CodeAgentRuns says that another agent uses the same data directory.
const CodeAgentRuns fsm.Code = "agent_running"

// home is the agent's data directory, locked for this process.
//
//	lock            held (flock) by the agent
//	node            the node's id
//	cluster         the id of the cluster that it belongs to
//	seen            the newest assignments that it acted on
//	instances/ID    journal: one record for each instance
//	driver/         what the driver keeps of each instance: its shim, exit status, logs
//	volumes/        local volumes: job/group/slot/name
type home struct {
	dir  string
	lock *os.File
	node fsm.NodeID
}

type nodeRecord struct {
	ID fsm.NodeID `cbor:"1,keyasint"`
}

type clusterRecord struct {
	ID string `cbor:"1,keyasint"`
}

// seen orders assignments: those of a higher incarnation first, then those of a higher index.
type seen struct {
	Incarnation uint64 `cbor:"1,keyasint"`
	Index       uint64 `cbor:"2,keyasint"`
}

func (s seen) before(t seen) bool {
	if s.Incarnation != t.Incarnation {
		return s.Incarnation < t.Incarnation
	}
	return s.Index < t.Index
}

// openHome makes, closes to others and locks the directory. Codes: agent_running, internal (the disk refused).
func openHome(dir string) (*home, error) {
	for _, d := range []string{dir, filepath.Join(dir, "instances")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, diskError("make "+d, err)
		}
	}
	if err := closeDir(dir); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, diskError("open the lock of "+dir, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fsm.Refuse(CodeAgentRuns, "another agent uses %s", dir).WithHint("stop it, or give this one its own data_dir")
		}
		return nil, diskError("lock "+dir, err)
	}
	h := &home{dir: dir, lock: lock}
	if err := h.identify(); err != nil {
		lock.Close()
		return nil, err
	}
	return h, nil
}

// closeDir takes reading and writing from others. Passing through may stay allowed: see letThrough.
func closeDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o066 != 0 {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return diskError("close "+dir+" to other users", err)
	}
	return nil
}

// letThrough allows other users to pass through the data directory to a directory of their own, without listing or
// reading what is in it. It is called only once an instance runs as another user; everything that is not for instances
// is 0700 or 0600 by itself.
func (h *home) letThrough() error {
	if err := os.Chmod(h.dir, 0o711); err != nil {
		return diskError("let instances of other users pass through "+h.dir, err)
	}
	return nil
}

// identify reads the node's id, or mints it at the first start. A damaged one is not replaced: the cluster would see a
// stranger, and take the node it knew for dead.
func (h *home) identify() error {
	var r nodeRecord
	path := h.path("node")
	err := driver.ReadRecord(path, &r)
	if errors.Is(err, fs.ErrNotExist) {
		r.ID = fsm.NodeID(strings.ToLower(ulid.Make().String()))
		if err := driver.WriteRecord(path, r); err != nil {
			return diskError("write "+path, err)
		}
	} else if err != nil || r.ID == "" {
		return fsm.Refuse(fsm.CodeInternal, "the node's identity in %s can't be read: %v", path, err).
			WithHint("restore the file, or remove it to join as a new node and then: outspan node confirm-dead the old one")
	}
	h.node = r.ID
	return nil
}

func (h *home) path(parts ...string) string {
	return filepath.Join(append([]string{h.dir}, parts...)...)
}

// pin refuses to serve any cluster but the first that this node registered with. Code: conflict.
func (h *home) pin(cluster string) error {
	var r clusterRecord
	err := driver.ReadRecord(h.path("cluster"), &r)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := driver.WriteRecord(h.path("cluster"), clusterRecord{ID: cluster}); err != nil {
			return diskError("write "+h.path("cluster"), err)
		}
		return nil
	case err != nil:
		return diskError("read "+h.path("cluster"), err)
	case r.ID != cluster:
		return fsm.Refuse(fsm.CodeConflict, "node %s belongs to cluster %s, but cluster %s answered", h.node, r.ID, cluster).
			WithHint("check the agent's servers; to move the node, stop the agent and give it an empty data_dir")
	}
	return nil
}

// lastSeen returns the newest assignments that were acted on. A damaged record counts as none: the next answer is
// taken then, as at a first start.
func (h *home) lastSeen() (seen, error) {
	var s seen
	err := driver.ReadRecord(h.path("seen"), &s)
	if errors.Is(err, fs.ErrNotExist) {
		return seen{}, nil
	}
	return s, err
}

func (h *home) saveSeen(s seen) error { return driver.WriteRecord(h.path("seen"), s) }

// close unlocks explicitly: a child that is just between fork and exec holds a copy of the descriptor, and with it the
// lock.
func (h *home) close() {
	_ = unix.Flock(int(h.lock.Fd()), unix.LOCK_UN)
	h.lock.Close()
}

func diskError(what string, err error) error {
	return fsm.Refuse(fsm.CodeInternal, "%s: %v", what, err)
}
