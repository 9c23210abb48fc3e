package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

// RecoverConfig configures Recover. DataDir, Cluster and Address are required.
type RecoverConfig struct {
	DataDir string
	Cluster string // the configured name of the cluster
	Address string // host:port of this server's TLS listener, as other servers will reach it
	// Snapshot is a saved state to begin from, for use when no server's directory is left. DataDir must then be missing,
	// or empty except for FileJoined and the names in Keep. If Snapshot is nil, Recover uses the log and the snapshots in
	// DataDir.
	Snapshot io.Reader
	// Check may refuse the state of Snapshot before anything is changed. Optional.
	Check func(*fsm.State) error
	// Keep are names of files and directories in DataDir that belong to others than the server's log, such as its keys.
	// Recover never touches them.
	Keep []string
	// Supersedes is the lineage (docs/model.md) of an earlier recovery in which this server took no part. It is needed
	// only if the servers of that lineage are lost too.
	Supersedes string
	Logger     hclog.Logger // default: no log
}

// Recovered is the result of Recover.
type Recovered struct {
	ID    model.ServerID // of this server
	State fsm.State      // with which it will start
}

// Recover makes a stopped server the only server of its cluster, after a majority was lost permanently. Afterwards,
// every entry in the server's log is committed: writes that were never acknowledged may take effect, and the last
// acknowledged writes may be missing. So all join tokens are revoked when the server first leads, and agents may have
// newer keys than the state; see fsm.RestoreMark. Codes: conflict if DataDir is in use, belongs to another cluster, has
// nothing to recover, can't be recovered, or is not empty although Snapshot is set, if Snapshot is of another cluster,
// or if Supersedes is not the lineage that replaced this server; state_differs if a majority contradicted its state;
// invalid and needs_format if Snapshot is bad; invalid if Supersedes can't be a lineage; those of Check.
func Recover(cfg RecoverConfig) (Recovered, error) {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Snapshot != nil {
		return recoverSnapshot(cfg)
	}
	path := filepath.Join(cfg.DataDir, fileLog)
	if _, err := os.Stat(path); err != nil {
		return Recovered{}, model.Refuse(model.CodeConflict, "there is nothing to recover in %s: %v", cfg.DataDir, err).
			WithHint("name the data_dir of a server that ran; or begin from a saved state with --snapshot FILE")
	}
	if err := checkReport(cfg.DataDir); err != nil {
		return Recovered{}, err
	}
	incarnation := incarnationOf(cfg.DataDir)
	store, err := OpenBolt(path)
	if err != nil {
		return Recovered{}, model.Refuse(model.CodeConflict, "can't open the log in %s: %v", cfg.DataDir, err).
			WithHint("stop the server first")
	}
	defer func() { _ = store.Close() }()
	dir, err := openDataDir(cfg.DataDir, cfg.Cluster, true)
	if err != nil {
		return Recovered{}, err
	}
	snaps, err := newSealedSnapshots(cfg.DataDir, cfg.Logger)
	if err != nil {
		return Recovered{}, err
	}
	next, err := dir.recovered(dir.history(), cfg.Supersedes, incarnation)
	if err != nil {
		return Recovered{}, err
	}
	// Recover writes the new lineage first, and then the new configuration. Neither may take effect alone. With only the
	// configuration, this server and the servers that it left behind could both acknowledge writes. With only the lineage,
	// this server would make those servers stop. So a server does not start while the file named by fileRecovering exists.
	if err := durable.ReplaceBytes(dir.file(fileRecovering), nil, 0o600); err != nil {
		return Recovered{}, fmt.Errorf("begin the recovery: %w", err)
	}
	before := newest(snaps)
	undo, err := dir.recover(next, otherServers(dir.id, store, snaps))
	if err != nil {
		return Recovered{}, fmt.Errorf("note the new lineage: %w", err)
	}
	state, err := replaceConfiguration(dir.id, store, snaps, alone(dir.id, cfg.Address), cfg.Logger)
	if err != nil {
		undone := newest(snaps) == before // otherwise raft has written the new configuration
		if undone {
			failed := undo()
			if failed == nil {
				failed = os.Remove(dir.file(fileRecovering))
			}
			err, undone = errors.Join(err, failed), failed == nil
		}
		if !undone {
			return Recovered{}, model.Refuse(model.CodeConflict, "the recovery was begun and not ended: %v", err).
				WithHint("mend that, then run server recover again before the server is started")
		}
		return Recovered{}, model.Refuse(model.CodeConflict, "nothing was changed: %v", err).
			WithHint("the log and the snapshots of this data directory are needed to recover it")
	}
	if err := dir.noteRecovery(state.Incarnation); err != nil {
		return Recovered{},
			model.Refuse(model.CodeConflict,
				"the servers were rewritten, but the directory can't keep that it was recovered: %v", err).
				WithHint("make room in %s, then run server recover once more before the server is started", cfg.DataDir)
	}
	if err := os.Remove(dir.file(fileReplaced)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Recovered{}, fmt.Errorf("forget that the server was replaced: %w", err)
	}
	return Recovered{dir.id, state}, os.Remove(dir.file(fileRecovering))
}

// incarnationOf returns the incarnation of the state of a stopped server. It returns 0 if the state can't be read:
// replaceConfiguration reads it too, and says why.
func incarnationOf(dataDir string) uint64 {
	stopped, err := OpenStopped(dataDir)
	if err != nil {
		return 0
	}
	defer func() { _ = stopped.Close() }()
	r, _ := stopped.Replay(context.Background(), 0)
	return r.State.Incarnation
}

// newest returns the id of the newest snapshot, or an empty string if there is no snapshot.
func newest(snaps raft.SnapshotStore) string {
	all, err := snaps.List()
	if err != nil || len(all) == 0 {
		return ""
	}
	return all[0].ID
}

// otherServers returns the members except self, from the newest configuration in the log, or else from the newest
// snapshot. It skips what it can't read, because gossip finds the servers that are missing in the result.
func otherServers(self model.ServerID, store LogStore, snaps raft.SnapshotStore) []leftServer {
	var config raft.Configuration
	if all, err := snaps.List(); err == nil && len(all) > 0 {
		config = all[0].Configuration
	}
	first, _ := store.FirstIndex()
	last, _ := store.LastIndex()
	for i := last; i >= first && i > 0; i-- {
		var entry raft.Log
		if store.GetLog(i, &entry) == nil && entry.Type == raft.LogConfiguration {
			config = raft.DecodeConfiguration(entry.Data)
			break
		}
	}
	var others []leftServer
	for _, one := range config.Servers {
		if model.ServerID(one.ID) != self {
			others = append(others, leftServer{model.ServerID(one.ID), string(one.Address)})
		}
	}
	return others
}

func alone(id model.ServerID, address string) raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(id), Address: raft.ServerAddress(address)}}}
}

// recoverSnapshot makes a server's directory from a saved state. If it fails, it leaves the directory as it was.
func recoverSnapshot(cfg RecoverConfig) (_ Recovered, err error) {
	state, err := fsm.ReadSnapshot(io.LimitReader(cfg.Snapshot, maxSnapshot))
	if err != nil {
		return Recovered{}, err
	}
	if state.Cluster.Name != cfg.Cluster {
		return Recovered{},
			model.Refuse(model.CodeConflict, "the snapshot is of the cluster %q, not of %q", state.Cluster.Name, cfg.Cluster).
				WithHint("say --cluster %s, if the servers' files say so too", state.Cluster.Name)
	}
	if cfg.Check != nil {
		if err := cfg.Check(&state); err != nil {
			return Recovered{}, err
		}
	}
	cfg.Keep = append(slices.Clone(cfg.Keep), FileJoined)
	found, err := os.ReadDir(cfg.DataDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Recovered{}, model.Refuse(model.CodeConflict, "can't look into %s: %v", cfg.DataDir, err)
	}
	found = slices.DeleteFunc(found, func(one fs.DirEntry) bool { return slices.Contains(cfg.Keep, one.Name()) })
	if len(found) > 0 {
		return Recovered{}, model.Refuse(model.CodeConflict, "%s is not empty: it holds %s", cfg.DataDir, found[0].Name()).
			WithHint("a snapshot is recovered into a directory that has only keys; to recover what this one holds, leave " +
				"--snapshot out")
	}
	missing := err != nil
	defer func() {
		if err != nil {
			err = errors.Join(err, clearDir(cfg.DataDir, missing, cfg.Keep))
		}
	}()
	if err := makeDataDir(cfg.DataDir); err != nil {
		return Recovered{}, err
	}
	id, err := writeRecovered(cfg, state)
	return Recovered{id, state}, err
}

// clearDir empties a directory, except for the names in keep. If missing is true, the directory did not exist before,
// so clearDir removes it too.
func clearDir(path string, missing bool, keep []string) error {
	if missing {
		return os.RemoveAll(path)
	}
	made, err := os.ReadDir(path)
	for _, one := range made {
		if !slices.Contains(keep, one.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(path, one.Name())))
		}
	}
	return err
}

// writeRecovered writes what a server reads at its start: its identity, the state as a snapshot, and raft's term.
func writeRecovered(cfg RecoverConfig, state fsm.State) (model.ServerID, error) {
	store, err := OpenBolt(filepath.Join(cfg.DataDir, fileLog))
	if err != nil {
		return "", fmt.Errorf("make the log: %w", err)
	}
	defer func() { _ = store.Close() }()
	dir, err := openDataDir(cfg.DataDir, cfg.Cluster, false)
	if err != nil {
		return "", err
	}
	if err := durable.ReplaceBytes(dir.file(fileRecovering), nil, 0o600); err != nil {
		return "", fmt.Errorf("begin the recovery: %w", err)
	}
	next, err := dir.recovered(state.Cluster.History(), cfg.Supersedes, state.Incarnation)
	if err != nil {
		return "", err
	}
	if _, err := dir.recover(next, nil); err != nil {
		return "", err
	}
	snaps, err := newSealedSnapshots(cfg.DataDir, cfg.Logger)
	if err != nil {
		return "", err
	}
	_, trans := raft.NewInmemTransport("") // raft needs a transport to write a snapshot, but sends nothing
	sink, err := snaps.Create(raft.SnapshotVersionMax, state.Index, state.LogTerm,
		alone(dir.id, cfg.Address), state.Index, trans)
	if err != nil {
		return "", fmt.Errorf("make the snapshot: %w", err)
	}
	if err := fsm.WriteSnapshot(sink, state); err != nil {
		return "", errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return "", fmt.Errorf("write the snapshot: %w", err)
	}
	if err := store.SetUint64(keyCurrentTerm, state.LogTerm); err != nil {
		return "", fmt.Errorf("write the term: %w", err)
	}
	if err := dir.noteRecovery(state.Incarnation); err != nil {
		return "", err
	}
	return dir.id, os.Remove(dir.file(fileRecovering))
}

// keyCurrentTerm is where raft keeps its term. New entries must not have a lower term than the snapshot before them.
var keyCurrentTerm = []byte("CurrentTerm")

// replaceConfiguration makes config the configuration on disk, and returns the state at the end of the log. After an
// error, the new snapshot with the configuration may have been written.
func replaceConfiguration(id model.ServerID, store LogStore, snaps raft.SnapshotStore, config raft.Configuration,
	log hclog.Logger) (fsm.State, error) {
	var failure error
	machine := &machineFSM{machine: fsm.NewMachine(), clock: newClock(), saving: make(chan struct{}, 1),
		fatal: func(err error) { failure = errors.Join(failure, err) }}
	_, trans := raft.NewInmemTransport("") // raft needs a transport to write a snapshot, but sends nothing
	done := make(chan error, 1)
	go func() {
		err := errors.New("an entry of the log can't be applied")
		defer func() { done <- err }() // runs even if a failed apply calls runtime.Goexit
		err = raft.RecoverCluster(RaftConfig{}.withDefaults().raft(id, nil, log), machine, store, store, snaps, trans, config)
	}()
	if err := <-done; err != nil || failure != nil {
		return fsm.State{}, errors.Join(machine.explain(err), failure)
	}
	return machine.machine.State(), nil
}

// dirRecovered is the content of the file recovered.json.
type dirRecovered struct {
	Incarnation uint64 `json:"incarnation"` // of the state that was recovered
}

func (d *dataDir) noteRecovery(incarnation uint64) error {
	text, err := json.Marshal(dirRecovered{incarnation})
	if err != nil {
		return err
	}
	return durable.ReplaceBytes(d.file(fileRecovered), append(text, '\n'), 0o600)
}

// markRecovery raises the incarnation of a recovered state, unless it has been raised since the recovery. The server
// answers nobody until the incarnation is raised. Otherwise it would accept reports that agents based on lost entries.
func (s *Server) markRecovery(ctx context.Context) error {
	text, err := os.ReadFile(s.dir.file(fileRecovered))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var was dirRecovered
	if err == nil {
		err = json.Unmarshal(text, &was)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", s.dir.file(fileRecovered), err)
	}
	if state := s.cfg.Machine.State(); state.Incarnation <= was.Incarnation {
		history := s.History()
		mark := &fsm.RestoreMark{Lineages: strings.Join(history.Lineages, ","), Incarnation: history.Began()}
		mark.VoidPeople = state.Managed()
		mark.Recovered = state.JoinTokens.Len() > 0 || state.TrustMembers.Len() > 0
		results, err := s.Propose(ctx, fsm.Entry{Actor: model.ActorLeader, Groups: [][]fsm.Command{{mark}}})
		if err != nil {
			return err
		}
		if refusal := results[0].Refusal; refusal != nil {
			return refusal
		}
		s.log.Warn("this server was recovered: agents stop nothing that the state does not know until it is confirmed",
			"incarnation", s.cfg.Machine.State().Incarnation,
			"confirm with", "outspan settings resume restore")
	}
	return os.Remove(s.dir.file(fileRecovered))
}
