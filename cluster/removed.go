package cluster

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// errNotMember is the answer to a pre-vote request from a server that is not in this server's configuration.
var errNotMember = errors.New("this server is not a member of the cluster")

// removedSettle is how long removed must return true before this server stops. During this time a leader may add it
// again.
const removedSettle = 10 * time.Second

// removed reports whether this server has no leader and was evidently removed: its own configuration does not contain
// it, or more than half of the other voters in that configuration refused this server's last pre-vote request with
// errNotMember. A server without a configuration is new, so it was not removed.
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

// knows reports whether a server is in this server's configuration. It returns true while this server is opening or has
// no configuration yet.
func (s *Server) knows(id raft.ServerID) bool {
	if !s.opened.Load() {
		return true
	}
	all := s.servers()
	return len(all) == 0 || slices.ContainsFunc(all, func(one raft.Server) bool { return one.ID == id })
}

// refusals records which servers refused this server's last pre-vote request with errNotMember. Safe for concurrent
// use.
type refusals struct {
	mu sync.Mutex
	by map[raft.ServerID]bool
}

// note records the result of a pre-vote request to a server. Errors other than errNotMember change nothing. note
// compares the text, because an error that came over the wire is never errNotMember itself.
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

// count returns how many of the given servers are recorded.
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
