package cluster

import (
	"fmt"
	"time"

	"github.com/outspan/outspan/model"
)

// memberIndex indexes the members among the servers that the leader knows. It leaves out all others: gossip may invent
// thousands, and each of them is checked against the index. It points into the servers of its Membership.
type memberIndex struct {
	Format    uint16
	LastIndex uint64
	SettleFor time.Duration

	byID    map[model.ServerID]*ServerView
	address map[string]*ServerView
	name    map[string][]*ServerView // living members; several may have the same name
	voters  []*ServerView
}

func (m Membership) index() *memberIndex {
	r := &memberIndex{
		Format: m.Format, LastIndex: m.LastIndex, SettleFor: m.SettleFor,
		byID: map[model.ServerID]*ServerView{}, address: map[string]*ServerView{}, name: map[string][]*ServerView{},
	}
	for i := range m.Servers {
		s := &m.Servers[i]
		if !s.member() {
			continue
		}
		r.byID[s.ID] = s
		if r.address[s.Configured] == nil {
			r.address[s.Configured] = s
		}
		if s.Alive && s.Name != "" {
			r.name[s.Name] = append(r.name[s.Name], s)
		}
		if s.Voter {
			r.voters = append(r.voters, s)
		}
	}
	return r
}

// namesake returns a living member with the name of another server, or nil. A second server with the same name is not
// taken in, because its name in a command would be ambiguous.
func (r *memberIndex) namesake(s ServerView) *ServerView {
	for _, one := range r.name[s.Name] {
		if one.ID != s.ID {
			return one
		}
	}
	return nil
}

// at returns the member with this address in the configuration.
func (r *memberIndex) at(address string) *ServerView { return r.address[address] }

func (r *memberIndex) move(s ServerView) (Change, bool) {
	if !s.member() || !s.Alive || s.Address == "" || s.Address == s.Configured || r.at(s.Address) != nil {
		return Change{}, false
	}
	return Change{Kind: ChangeMove, ID: s.ID, Address: s.Address, Voter: s.Voter, Reason: "it has a new address"}, true
}

// replace removes a dead member whose address a fresh server has. The member's directory was wiped, so it will not come
// back.
func (r *memberIndex) replace(s ServerView) (Change, bool) {
	if s.member() || !s.Alive || !s.Fresh || s.Foreign {
		return Change{}, false
	}
	old := r.at(s.Address)
	if old == nil || old.Alive || r.checkRemove(old.ID) != nil {
		return Change{}, false
	}
	return Change{Kind: ChangeRemove, ID: old.ID, Successor: s.ID, Address: s.Address,
		Reason: fmt.Sprintf("the new server %s has its address", s.ID)}, true
}

// add takes in a server that has no state. An operator has to decide about a server with state: it was removed before,
// or belongs to another cluster.
func (r *memberIndex) add(s ServerView) (Change, bool) {
	if s.member() || !s.Alive || !s.Fresh || s.Foreign || s.Format < r.Format || s.Address == "" ||
		r.at(s.Address) != nil || r.namesake(s) != nil {
		return Change{}, false
	}
	return Change{Kind: ChangeAdd, ID: s.ID, Address: s.Address, Reason: "a new server"}, true
}

func (r *memberIndex) promote(s ServerView) (Change, bool) {
	if s.HealthyFor < r.SettleFor || r.checkPromote(s.ID) != nil {
		return Change{}, false
	}
	return Change{Kind: ChangePromote, ID: s.ID, Address: s.Configured, Reason: "it has caught up"}, true
}

// succeed removes a dead member if a living voter has its name. That voter took its place at another address.
func (r *memberIndex) succeed(s ServerView) (Change, bool) {
	if !s.Voter || s.Alive || s.Name == "" || r.checkRemove(s.ID) != nil {
		return Change{}, false
	}
	next := r.namesake(s)
	if next == nil || !next.Voter || !next.works() {
		return Change{}, false
	}
	return Change{Kind: ChangeRemove, ID: s.ID, Successor: next.ID, Address: next.Address, Name: s.Name,
		Reason: fmt.Sprintf("server %s has its name", next.ID)}, true
}

// checkPromote returns why a server can't get a vote now. Codes: not_found; conflict (it has one, does not answer, or
// is too far behind).
func (r *memberIndex) checkPromote(id model.ServerID) *model.Error {
	s, ok := r.byID[id]
	switch {
	case !ok:
		return noServer(id)
	case s.Voter:
		return model.Refuse(model.CodeConflict, "server %s has a vote already", id)
	case !s.works():
		return model.Refuse(model.CodeConflict, "server %s does not answer", id).WithHint("start it, then try again")
	case s.LastIndex+maxLogLag < r.LastIndex:
		return model.Refuse(model.CodeConflict, "server %s is %d entries behind", id, r.LastIndex-s.LastIndex).
			WithHint("wait until it has caught up")
	}
	return nil
}

// checkRemove returns why a server can't be removed now. Codes: not_found; conflict if the rest would have no working
// majority.
func (r *memberIndex) checkRemove(id model.ServerID) *model.Error {
	s, ok := r.byID[id]
	if !ok {
		return noServer(id)
	}
	if !s.Voter {
		return nil
	}
	voters, working := r.votersWithout(id)
	if voters == 0 {
		return model.Refuse(model.CodeConflict, "server %s is the last one with a vote", id)
	}
	if working < voters/2+1 {
		return model.Refuse(model.CodeConflict, "without server %s only %d of %d servers would work, which is no majority",
			id, working, voters).
			WithHint("bring another server back first, or use --force")
	}
	return nil
}

// checkForcedRemove is checkRemove for an operator who insists: only the last vote is protected.
func (r *memberIndex) checkForcedRemove(id model.ServerID) *model.Error {
	s, ok := r.byID[id]
	if !ok {
		return noServer(id)
	}
	if voters, _ := r.votersWithout(id); s.Voter && voters == 0 {
		return model.Refuse(model.CodeConflict, "server %s is the last one with a vote", id)
	}
	return nil
}

func (r *memberIndex) votersWithout(id model.ServerID) (voters, working int) {
	for _, s := range r.voters {
		if s.ID != id {
			voters++
			if s.works() {
				working++
			}
		}
	}
	return voters, working
}
