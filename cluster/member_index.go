package cluster

import (
	"fmt"
	"time"

	"github.com/outspan/outspan/model"
)

// memberIndex finds members of a Membership by id, address and name. Members are the servers in the configuration.
// Servers that are only in gossip are not in the index, because an attacker may invent thousands of them. The index
// points into the Servers of the Membership.
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

// namesake returns a living member, other than s, that has the name of s, or nil. A new server with the name of a
// living member is not added, because the name would be ambiguous in a command.
func (r *memberIndex) namesake(s ServerView) *ServerView {
	for _, one := range r.name[s.Name] {
		if one.ID != s.ID {
			return one
		}
	}
	return nil
}

// at returns the member with this address in the configuration, or nil.
func (r *memberIndex) at(address string) *ServerView { return r.address[address] }

func (r *memberIndex) move(s ServerView) (Change, bool) {
	if !s.member() || !s.Alive || s.Address == "" || s.Address == s.Configured || r.at(s.Address) != nil {
		return Change{}, false
	}
	return Change{Kind: ChangeMove, ID: s.ID, Address: s.Address, Voter: s.Voter, Reason: "it has a new address"}, true
}

// replace returns the removal of a dead member whose address now belongs to s, a new server without state. The member's
// directory was evidently wiped, so the member will not return.
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

// add returns the addition of s as a non-voter. s must be alive and have no state, support the format, and have an
// address and a name that no member has. A server with state was removed before or belongs to another cluster, so an
// operator has to decide about it.
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

// succeed returns the removal of s, a dead voter, if a living voter with its name has taken its place at another
// address.
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

// checkPromote returns why a server can't get a vote now, or nil. Codes: not_found if it is no member; conflict if it
// has a vote already, does not answer, or is too far behind.
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

// checkRemove returns why a server can't be removed now, or nil. Codes: not_found if it is no member; conflict if the
// remaining voters would have no working majority.
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

// checkForcedRemove returns why a server can't be removed even by force, or nil. Codes: not_found if it is no member;
// conflict if it is the last voter.
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
