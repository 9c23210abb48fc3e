package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
)

// RecoverConfig says what Recover does.
type RecoverConfig struct {
	DataDir string
	Cluster string
	// Servers are all that vote afterwards; empty = this server alone. Run Recover with the same list on each of them.
	Servers []Peer
	Logger  hclog.Logger
}

// Peer is a server and the host:port of its TLS listener.
type Peer struct {
	ID      fsm.ServerID
	Address string
}

// Recover makes a server that lost its majority for good able to go on, with the servers given instead of those in
// its log. The server must be stopped. Everything in its log counts as committed afterwards, so what was written
// but never acknowledged may become true, and what was acknowledged last may be missing: the first leader afterwards raises the incarnation, as a
// restore does, so that agents tell all again and stop nothing that the state does not know until an operator confirms. Self is the server's own
// address if Servers is empty. It returns the servers it wrote. Codes: conflict for a directory in use, of another cluster, or with nothing to
// recover; invalid.
func Recover(cfg RecoverConfig, self string) ([]Peer, error) {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if err := checkReport(cfg.DataDir); err != nil {
		return nil, err
	}
	store, err := OpenBolt(filepath.Join(cfg.DataDir, fileLog))
	if err != nil {
		return nil, fsm.Refuse(fsm.CodeConflict, "can't open the log in %s: %v", cfg.DataDir, err).WithHint("stop the server first")
	}
	defer func() { _ = store.Close() }()
	dir, err := openDataDir(cfg.DataDir, cfg.Cluster, true)
	if err != nil {
		return nil, err
	}
	if len(cfg.Servers) == 0 {
		cfg.Servers = []Peer{{dir.id, self}}
	}
	var config raft.Configuration
	included := false
	for _, p := range cfg.Servers {
		config.Servers = append(config.Servers, raft.Server{ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Address)})
		included = included || p.ID == dir.id
	}
	if !included {
		return nil, fsm.Refuse(fsm.CodeInvalid, "this server, %s, is not among those to go on with", dir.id)
	}
	snaps, err := newSealedSnapshots(cfg.DataDir, cfg.Logger)
	if err != nil {
		return nil, err
	}
	state, err := rewrite(dir.id, store, snaps, config, cfg.Logger)
	if err != nil {
		return nil, err
	}
	if err := dir.noteRecovery(state.Incarnation); err != nil {
		return nil, fsm.Refuse(fsm.CodeConflict, "the servers were rewritten, but the directory can't keep that it was recovered: %v", err).
			WithHint("make room in %s, then run server recover once more before the server is started", cfg.DataDir)
	}
	return cfg.Servers, nil
}

// rewrite replaces the servers, and returns the state at the end of the log.
func rewrite(id fsm.ServerID, store LogStore, snaps raft.SnapshotStore, config raft.Configuration, log hclog.Logger) (fsm.State, error) {
	var failure error
	machine := &machineFSM{machine: fsm.NewMachine(), clock: newClock(), fatal: func(err error) { failure = errors.Join(failure, err) }}
	_, trans := raft.NewInmemTransport("") // nothing is sent; raft wants one to write a snapshot
	done := make(chan error, 1)
	go func() {
		err := errors.New("an entry of the log can't be applied")
		defer func() { done <- err }() // also when applying ends this goroutine
		err = raft.RecoverCluster(RaftConfig{}.withDefaults().raft(id, nil, log), machine, store, store, snaps, trans, config)
	}()
	if err := <-done; err != nil || failure != nil {
		return fsm.State{}, fsm.Refuse(fsm.CodeConflict, "nothing was changed: %v", errors.Join(err, failure)).WithHint("the log and the snapshots of this data directory are needed to recover it")
	}
	return machine.machine.State(), nil
}

// dirRecovered is what a directory keeps from Recover until the state tells of it.
type dirRecovered struct {
	Incarnation uint64 `json:"incarnation"` // of the state that was recovered
}

func (d *dataDir) noteRecovery(incarnation uint64) error {
	text, err := json.Marshal(dirRecovered{incarnation})
	if err != nil {
		return err
	}
	return writeFile(d.file(fileRecovered), append(text, '\n'))
}

// markRecovery raises the incarnation of a state that was recovered, unless another server did. Nobody is answered by this server before: what agents remember of
// the entries that are lost must not be taken for news.
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
	if s.cfg.Machine.State().Incarnation <= was.Incarnation {
		results, err := s.Propose(ctx, fsm.Entry{Actor: fsm.ActorLeader, Groups: [][]fsm.Command{{&fsm.RestoreMark{}}}})
		if err != nil {
			return err
		}
		if refusal := results[0].Refusal; refusal != nil {
			return refusal
		}
		s.log.Warn("this server was recovered: agents stop nothing that the state does not know until it is confirmed", "incarnation", s.cfg.Machine.State().Incarnation,
			"confirm with", "outspan settings resume")
	}
	return os.Remove(s.dir.file(fileRecovered))
}
