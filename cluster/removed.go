package cluster

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// errNotMember refuses a vote to a server that is not in the configuration that this one knows.
var errNotMember = errors.New("this server is not a member of the cluster")

// removedSettle is how long a server that is no member waits for a leader: one that is being taken in again hears of
// it.
const removedSettle = 10 * time.Second

// removed reports whether this server was taken out and no leader turns to it: the configuration that it knows lacks
// it, or it was away meanwhile and more than half of the other voters that it knows say so. A new server knows none
// yet.
func (s *Server) removed() bool {
	if _, _, led := s.Leader(); led {
		s.disk.trans.refused.forget()
		return false
	}
	var others []raft.ServerID
	member := false
	all := s.servers()
	for _, one := range all {
		switch {
		case one.ID == raft.ServerID(s.dir.id):
			member = true
		case one.Suffrage == raft.Voter:
			others = append(others, one.ID)
		}
	}
	return len(all) > 0 && !member || len(others) > 0 && 2*s.disk.trans.refused.count(others) > len(others)
}

// knows reports whether a server is a member as far as this one knows.
func (s *Server) knows(id raft.ServerID) bool {
	if !s.opened.Load() {
		return true
	}
	all := s.servers()
	return len(all) == 0 || slices.ContainsFunc(all, func(one raft.Server) bool { return one.ID == id })
}

// refusals are the servers that last refused this one their vote because it is no member. Safe for many goroutines.
type refusals struct {
	mu sync.Mutex
	by map[raft.ServerID]bool
}

// note takes a server's answer to a request for its vote. The error comes over the wire, as its text.
func (r *refusals) note(id raft.ServerID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		delete(r.by, id)
	case err.Error() == errNotMember.Error():
		if r.by == nil {
			r.by = map[raft.ServerID]bool{}
		}
		r.by[id] = true
	}
}

func (r *refusals) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.by)
}

// count is how many of these servers refused.
func (r *refusals) count(of []raft.ServerID) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range of {
		if r.by[id] {
			n++
		}
	}
	return n
}
