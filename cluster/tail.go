package cluster

import (
	"context"
	"fmt"
	"time"
)

const (
	tailCheck = time.Second
	tailLooks = 3 // looks in a row that must find a lost tail, because the log may change during a look
)

// watchTail stops this server if raft believes that the log has entries that its store no longer has. An installed
// snapshot can cause that if it replaced a longer tail that was never committed. raft then empties the store, because
// the store is monotonic, but still believes that its log ends where the tail did. It refuses the entries after the
// snapshot, so the leader sends the snapshot again, for ever. The data on disk is right, so a restart solves this.
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

// lostTail returns the index at which raft believes that its log ends. lost says whether both the store and the newest
// snapshot end before that index. lost is false while no snapshot has been installed, or if the store can't be read.
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
