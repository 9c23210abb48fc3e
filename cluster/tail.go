package cluster

import (
	"context"
	"fmt"
	"time"
)

const (
	tailCheck = time.Second
	tailLooks = 3 // in a row, because the log may be changing during one of them
)

// watchTail ends this server when raft believes that the log has entries which its store no longer has. An installed
// snapshot can cause that if it replaced a longer tail that was never committed. The store is emptied (IsMonotonic),
// but raft still believes that its log ends where the tail did. It refuses the entries after the snapshot, so the
// leader sends the snapshot again, for ever. The content of the disk is right, so a restart heals this.
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

// lostTail returns where raft believes that its log ends, and whether both its store and its newest snapshot end before
// that.
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
