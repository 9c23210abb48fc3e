package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

const (
	logCheck        = 30 * time.Second // between looks at the size of the log
	snapshotTimeout = 5 * time.Minute
	maxSnapshot     = 8 << 30 // Restore and Recover read at most this many bytes of a snapshot
)

// Save writes a snapshot of the whole state to w. The snapshot contains everything that was acknowledged before the
// call. Save also records the current time as the time of the last backup. It blocks as long as w does. Codes: those of
// ReadBarrier; errors of w are wrapped.
func (s *Server) Save(ctx context.Context, w io.Writer) error {
	if err := s.ReadBarrier(ctx); err != nil {
		return err
	}
	if err := s.SaveStale(w); err != nil {
		return err
	}
	s.noteSaved()
	return nil
}

// SaveStale writes a snapshot of this server's state to w. It needs no leader, so the snapshot may lack entries that
// this server has not received yet. SaveStale blocks as long as w does. Errors of w are wrapped.
func (s *Server) SaveStale(w io.Writer) error {
	return fsm.WriteSnapshot(w, s.cfg.Machine.Snapshot())
}

// Restore replaces the state of the whole cluster with the state in a snapshot, after it has checked the whole
// snapshot. The restored state gets a higher incarnation than the current one, so agents report what they run, and stop
// nothing that the state does not know until an operator confirms. The index and the clock of the state do not go back.
// Keys, join tokens and members stay as they are, so that no restore brings back a spent token or a revoked member.
// Writes in progress are lost, and their callers get unknown. Codes: no_leader; needs_format and invalid for a bad
// snapshot; conflict for a snapshot of another cluster; disk_full; timeout; unknown.
func (s *Server) Restore(ctx context.Context, r io.Reader) error {
	if s.Term() == 0 {
		return s.noLeader()
	}
	if s.disk.space.room() != RoomEnough {
		return model.Refuse(model.CodeDiskFull, "the disk of the leading server %s has too little room for a snapshot",
			s.cfg.Name).WithHint("free space under its data_dir, then try again")
	}
	restored, err := fsm.ReadSnapshot(io.LimitReader(r, maxSnapshot))
	if err != nil {
		return err
	}
	resume, err := s.fsm.pauseSnapshots(ctx)
	if err != nil {
		return err
	}
	defer resume()
	// From here on, no write is acknowledged. So current has every revocation that was, once the Barrier has passed.
	s.restores.Add(1)
	defer s.restores.Add(1)
	if err := s.ReadBarrier(ctx); err != nil {
		return err
	}
	current := s.cfg.Machine.State()
	if own := current.Cluster.ID; restored.Cluster.ID != own {
		return model.Refuse(model.CodeConflict, "the snapshot is of the cluster %q (%s), this is %q (%s)",
			restored.Cluster.Name, restored.Cluster.ID, current.Cluster.Name,
			own).WithHint("restore it into the cluster it was saved from, or begin a new one with server recover")
	}
	if !plant.Is(plant.RestoreForgives) {
		restored = restored.WithTrustOf(current)
	}
	next, err := s.raise(restored, current)
	if err != nil {
		return err
	}
	return s.restore(ctx, next)
}

// raise marks a state as restored. The result has a higher index and incarnation than current, and its clock does not
// go back. raise also adds the LeaderBegin of the current leader, which the snapshot lacks.
func (s *Server) raise(restored, current fsm.State) (fsm.State, error) {
	index, term := max(restored.Index, s.raft.LastIndex())+1, s.raft.CurrentTerm()
	mark := fsm.Entry{
		Format: restored.Format, At: s.clock.now(), Wall: s.WallClock().UnixMilli(), Actor: model.ActorLeader,
		Groups: [][]fsm.Command{
			{&fsm.RestoreMark{Lineages: current.Cluster.Lineages, Incarnation: current.Incarnation + 1}},
			{&fsm.LeaderBegin{Term: term, Server: s.dir.id, Name: s.cfg.Name}},
		},
	}
	next, results := restored.Apply(index, term, mark)
	if refusal := results[0].Refusal; refusal != nil {
		return fsm.State{}, refusal
	}
	return next, nil
}

// restore hands a state to raft, which gives it to every server as a snapshot. It writes the state to a file first,
// because raft must know the size in advance.
func (s *Server) restore(ctx context.Context, next fsm.State) error {
	f, err := os.OpenFile(s.dir.file(restoreBuffer), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }()
	sum := sha256.New()
	if err := fsm.WriteSnapshot(io.MultiWriter(f, sum), next); err != nil {
		return err
	}
	s.fsm.handed.Store(&handedState{next, [sha256.Size]byte(sum.Sum(nil))})
	defer s.fsm.handed.Store(nil)
	size, err := f.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	s.log.Warn("restoring a snapshot", "index", next.Index, "incarnation", next.Incarnation, "bytes", size)
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: next.Index, Term: next.LogTerm, Size: size}
	done := make(chan error, 1)
	go func() { done <- s.raft.Restore(meta, f, snapshotTimeout) }()
	select {
	case err = <-done:
	case <-time.After(snapshotTimeout):
		err = errors.New("it took too long")
	}
	if err != nil {
		return model.Refuse(model.CodeUnknownOutcome, "the snapshot may or may not have been restored: %v", err).
			WithHint("look at: outspan status, then try again")
	}
	return s.ReadBarrier(ctx)
}

// watchLog takes a snapshot early if the log has more than MaxLogBytes, and has also grown by that much since the last
// early snapshot: if entries are so large that the fewest that are kept exceed MaxLogBytes, another snapshot would not
// help. raft itself counts only entries, not bytes.
func (s *Server) watchLog(ctx context.Context) {
	for ctx.Err() == nil {
		pause(ctx, logCheck)
		_, bytes := s.disk.store.size.kept()
		large := min(bytes, s.disk.store.size.appended()) >= s.cfg.Raft.MaxLogBytes
		if !large || s.disk.space.room() != RoomEnough || ctx.Err() != nil {
			continue
		}
		if err := s.shortenLog(ctx); err != nil {
			s.log.Warn("can't snapshot a large log", "bytes", bytes, "error", err)
		}
	}
}

// shortenLog takes a snapshot. Of the entries before the snapshot, the log keeps at most about half of MaxLogBytes, but
// at least maxLogLag entries.
func (s *Server) shortenLog(ctx context.Context) error {
	entries, bytes := s.disk.store.size.kept()
	each := uint64(max(bytes/max(entries, 1), 1))
	usual := s.raft.ReloadableConfig()
	short := usual
	short.TrailingLogs = min(usual.TrailingLogs, max(uint64(s.cfg.Raft.MaxLogBytes)/2/each, maxLogLag))
	if err := s.raft.ReloadConfig(short); err != nil {
		return err
	}
	defer func() { _ = s.raft.ReloadConfig(usual) }()
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	if err := await(ctx, s.raft.Snapshot()); err != nil {
		return err
	}
	s.disk.store.size.reset()
	return nil
}
