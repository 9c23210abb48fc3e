package cluster

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

// Files of a server's data directory.
const (
	fileServerID   = "server-id" // made at the first start
	fileCluster    = "cluster.json"
	filePledge     = "first-servers.json"
	fileLog        = "raft.db"
	fileBallast    = "ballast"
	fileRecovering = "recovering"      // exists while Recover writes; keeps the server from starting
	fileRecovered  = "recovered.json"  // exists from Recover until the state records the recovery
	fileReplaced   = "superseded.json" // written when this server learns that a recovery left it behind
	fileGivenUp    = "given-up.json"   // epochs of nodes that this server agreed to call offline
	fileSaved      = "last-save"       // when somebody last saved a snapshot from this server
	restoreBuffer  = "restore.tmp"
)

// dataDir is a server's data directory, with the server's identity. A server whose directory was wiped gets a new id,
// so no id can vote twice in a term.
type dataDir struct {
	path   string
	id     model.ServerID
	pledge []model.ServerID

	mu      sync.Mutex
	cluster dirCluster
}

// dirCluster says which cluster the directory belongs to.
type dirCluster struct {
	Name string `json:"name"`
	ID   string `json:"id,omitempty"` // empty until this server belongs to a cluster
	// Lineages is the field of model.History. Recover adds a lineage before raft starts. A server that joins with an empty
	// directory copies the lineages of the server that adds it to the cluster.
	Lineages []string `json:"lineages,omitempty"`
	// Left are the servers that a recovery left behind. If such a server starts again, the recovered servers make it stop.
	Left []leftServer `json:"left,omitempty"`
}

// leftServer is a server of an earlier lineage, with its last known address.
type leftServer struct {
	ID      model.ServerID `json:"id"`
	Address string         `json:"address"`
}

func (d *dataDir) history() model.History {
	d.mu.Lock()
	defer d.mu.Unlock()
	return model.History{Cluster: d.cluster.ID, Lineages: d.cluster.Lineages}
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// makeDataDir makes the directory if it does not exist, and gives it mode 0700.
func makeDataDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return fmt.Errorf("make the data directory private: %w", err)
	}
	return nil
}

// Started reports whether a server has been started with this data directory.
func Started(dataDir string) bool {
	return slices.ContainsFunc([]string{fileServerID, fileCluster, fileLog}, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dataDir, name))
		return err == nil
	})
}

// Running reports whether a server runs on this data directory. It is false if this user can't find out. A server that
// starts at the same moment waits until Running has looked.
func Running(dataDir string) bool {
	log, err := os.Open(filepath.Join(dataDir, fileLog))
	if err != nil {
		return false
	}
	defer log.Close()
	err = unix.Flock(int(log.Fd()), unix.LOCK_SH|unix.LOCK_NB) // the lock of the log store
	return errors.Is(err, unix.EWOULDBLOCK)
}

// openDataDir reads this server's identity, or makes a new one. The log store must be open already, because its lock
// keeps a second process out. If hasLog is true, the log has entries, so the server id must exist. Code: conflict if
// the directory belongs to another cluster, or if the server id is damaged or is missing beside a log.
func openDataDir(path, cluster string, hasLog bool) (*dataDir, error) {
	d := &dataDir{path: path}
	if err := d.readCluster(cluster); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(d.file(fileServerID))
	switch {
	case err == nil:
		d.id = model.ServerID(strings.TrimSpace(string(text)))
		if _, err := ulid.ParseStrict(string(d.id)); err != nil {
			return nil, model.Refuse(model.CodeConflict, "the file %s is damaged: it holds no server id", d.file(fileServerID)).
				WithHint("restore it from a backup, or move the whole data directory away: the server then joins as a new one")
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read the server id: %w", err)
	case hasLog:
		return nil, model.Refuse(model.CodeConflict, "the data directory %s has a log but no server id", path).
			WithHint("restore %s from a backup, or move the whole data directory away: the server then joins as a new one",
				fileServerID)
	default:
		d.id = model.ServerID(newID())
		if err := durable.ReplaceBytes(d.file(fileServerID), []byte(string(d.id)+"\n"), 0o600); err != nil {
			return nil, fmt.Errorf("write the server id: %w", err)
		}
	}
	if err := d.readPledge(); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *dataDir) readCluster(name string) error {
	text, err := os.ReadFile(d.file(fileCluster))
	if errors.Is(err, fs.ErrNotExist) {
		d.cluster = dirCluster{Name: name}
		return d.writeCluster()
	}
	if err == nil {
		err = json.Unmarshal(text, &d.cluster)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", d.file(fileCluster), err)
	}
	if d.cluster.Name != name {
		return model.Refuse(model.CodeConflict, "the data directory %s belongs to the cluster %q, not to %q",
			d.path, d.cluster.Name, name).
			WithHint("correct the cluster name in the configuration, or use another data_dir")
	}
	return nil
}

func (d *dataDir) writeCluster() error {
	text, err := json.Marshal(d.cluster)
	if err != nil {
		return err
	}
	return durable.ReplaceBytes(d.file(fileCluster), append(text, '\n'), 0o600)
}

// bind writes the cluster's id to the directory. Code: conflict if the directory belongs to another cluster already.
func (d *dataDir) bind(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.cluster.ID {
	case id:
		return nil
	case "":
		d.cluster.ID = id
		return d.writeCluster()
	}
	return d.foreign(id)
}

// foreign returns the refusal of a data directory that belongs to a cluster other than id.
func (d *dataDir) foreign(id string) *model.Error {
	return model.Refuse(model.CodeConflict,
		"the data directory %s belongs to the cluster with id %s; the other servers are of the cluster with id %s",
		d.path, d.cluster.ID, id).WithHint("use the data_dir of this cluster, or an empty one to join as a new server")
}

func (d *dataDir) readPledge() error {
	text, err := os.ReadFile(d.file(filePledge))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &d.pledge)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", d.file(filePledge), err)
	}
	return nil
}

// recover writes the history after a recovery, and adds the servers that the recovery left behind. undo restores the
// old content.
func (d *dataDir) recover(h model.History, left []leftServer) (undo func() error, err error) {
	was := d.cluster
	d.cluster.ID, d.cluster.Lineages, d.cluster.Left = h.Cluster, h.Lineages, append(slices.Clone(was.Left), left...)
	return func() error { d.cluster = was; return d.writeCluster() }, d.writeCluster()
}

// join writes the history of the server that adds this new server to its cluster.
func (d *dataDir) join(h model.History) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cluster.ID, d.cluster.Lineages = h.Cluster, h.Lineages
	return d.writeCluster()
}

// makePledge permanently records the servers with which this server agreed to begin the cluster. A second call fails.
func (d *dataDir) makePledge(servers []model.ServerID) error {
	if d.pledge != nil {
		return fmt.Errorf("already pledged to %v", d.pledge)
	}
	text, err := json.Marshal(servers)
	if err != nil {
		return err
	}
	if err := durable.ReplaceBytes(d.file(filePledge), append(text, '\n'), 0o600); err != nil {
		return err
	}
	d.pledge = slices.Clone(servers)
	return nil
}

// newID returns a new unique id.
func newID() string { return ulid.MustNew(ulid.Now(), rand.Reader).String() }
