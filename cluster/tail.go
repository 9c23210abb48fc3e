package cluster

import (
	"context"
	"fmt"
	"time"
)

const (
	tailCheck = time.Second
	tailLooks = 3 // how many looks in a row must find a lost tail, because the log may change during a look
)

// watchTail stops this server if raft believes that the log has entries that the store no longer has. This error
// follows the install of a snapshot that replaced a longer, uncommitted tail of the log: raft empties the store, but
// still believes that its log ends where the tail ended. raft then refuses the entries after the snapshot, and the
// leader sends the snapshot again and again. The data on disk is right, so a restart helps.
func (s *Server) watchTail(ctx context.Context) {
	looks := 0
	for ctx.Err() == nil {
		pause(ctx, tailCheck)
		believed, lost := s.lostTail()
		if !lost {
			looks = 0
			continue
		}
		if looks++; looks == tailLooks {
			s.fatal(fmt.Errorf("a snapshot replaced the log up to entry %d, and the log still counts as having it; started "+
				"again, this server follows", believed))
			return
		}
	}
}

// lostTail returns the index at which raft believes that its log ends. lost is true if both the store and the newest
// snapshot end before this index. lost is false if this process has installed no snapshot, or if the store or the
// snapshots can't be read.
func (s *Server) lostTail() (believed uint64, lost bool) {
	if s.fsm.installs.Load() == 0 {
		return 0, false
	}
	stored, err := s.disk.store.inner.LastIndex()
	believed = s.raft.LastIndex()
	if err != nil || believed <= stored {
		return 0, false
	}
	snaps, err := s.disk.snaps.List()
	return believed, err == nil && len(snaps) > 0 && believed > snaps[0].Index
}
