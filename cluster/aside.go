package cluster

import (
	"context"
	"strings"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// voterRoom is what this server knows about the free disk space of the voters.
type voterRoom struct {
	voters int
	enough int      // number of voters that are alive and have enough space
	low    []string // names of voters without enough space
	away   []string // names or ids of voters that gossip reports as dead or doesn't know
}

// majority reports whether n servers are a majority of the voters.
func (r voterRoom) majority(n int) bool { return n >= r.voters/2+1 }

func (s *Server) voterRoom() voterRoom {
	var r voterRoom
	for _, v := range s.voters() {
		name, room, there := string(v.ID), RoomEnough, true
		if model.ServerID(v.ID) == s.dir.id {
			name, room = s.cfg.Name, s.disk.space.room()
		} else {
			m, ok := s.seen.pool.Member(string(v.ID))
			if ok && m.Meta.Server != nil {
				name, room = m.Meta.Name, m.Meta.Server.Room
			}
			there = ok && m.State != fsm.GossipDead
		}
		r.voters++
		switch {
		case !there:
			r.away = append(r.away, name)
		case room == RoomEnough:
			r.enough++
		default:
			r.low = append(r.low, name)
		}
	}
	return r
}

// checkRoom returns an error if the leader must refuse writes: if this server can't append entries, or if a voter is
// short of disk space and the living voters with enough space are no majority. Code: disk_full.
func (s *Server) checkRoom() error {
	if err := s.disk.space.check(s.cfg.Name); err != nil {
		return err
	}
	r := s.voterRoom()
	if len(r.low) == 0 || r.majority(r.enough) {
		return nil
	}
	full, away := "the disks of "+strings.Join(r.low, ", ")+" are full", ""
	if len(r.low) == 1 {
		full = "the disk of " + r.low[0] + " is full"
	}
	if len(r.away) > 0 {
		away = ", and " + strings.Join(r.away, ", ") + " can't be heard"
	}
	return model.Refuse(model.CodeDiskFull, "%s%s: a majority of the servers needs room to write", full, away).
		WithHint("free space under the data_dir of %s; writes go on by themselves", strings.Join(r.low, ", "))
}

const (
	asideRetry = 5 * time.Second
	// Before a leader steps aside, it waits for gossip about the other servers' disks: asideNews if its own disk has
	// RoomLow, asideWait if it has RoomNone.
	asideNews = time.Second
	asideWait = 3 * time.Second
)

// stepAside hands leadership to another server when this server's disk runs full. If the voters with enough space are
// no majority, this server keeps leadership. Nobody could write then, but this server can still answer reads. A new
// leader could not answer reads, because it must append an entry first.
func (s *Server) stepAside(ctx context.Context, _ uint64) {
	for ctx.Err() == nil {
		changed := s.disk.space.changed()
		room := s.disk.space.room()
		switch room {
		case RoomLow:
			pause(ctx, asideNews)
		case RoomNone:
			pause(ctx, asideWait)
		}
		if r := s.voterRoom(); room != RoomEnough && r.majority(r.enough) && ctx.Err() == nil {
			s.log.Warn("little free space, handing leadership over", "room", room)
			if err := s.TransferLeader(ctx, ""); err != nil {
				s.log.Warn("can't hand leadership over", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(asideRetry):
		}
	}
}
