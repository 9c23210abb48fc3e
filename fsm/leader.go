package fsm

import (
	"strconv"

	"github.com/outspan/outspan/model"
)

// Leader is the server that last wrote a LeaderBegin.
type Leader struct {
	Term   uint64         `cbor:"1,keyasint"`
	Server model.ServerID `cbor:"2,keyasint"`
	Name   string         `cbor:"3,keyasint"`
}

// LeaderBegin records that a server has begun to lead a term, so that events show who leads. The same LeaderBegin again
// changes nothing. Codes: forbidden if the actor is not the leader, stale_term if the entry is logged in a term other
// than Term, invalid.
type LeaderBegin struct {
	Term   uint64         `cbor:"1,keyasint"`
	Server model.ServerID `cbor:"2,keyasint"`
	Name   string         `cbor:"3,keyasint"` // for people
}

func (c *LeaderBegin) apply(s *State) error {
	switch {
	case s.entry.actor != model.ActorLeader:
		return model.Refuse(model.CodeForbidden, "only a leader writes that it leads")
	case c.Term != s.LogTerm:
		return model.Refuse(model.CodeStaleTerm, "server %s began to lead term %d, logged in term %d",
			c.Name, c.Term, s.LogTerm)
	case !c.sound():
		return model.Refuse(model.CodeInvalid, "a leader needs an id and a name of at most %d bytes each", maxAgentText)
	}
	before, now := s.Leader, Leader(*c)
	if before == now {
		return nil
	}
	s.Leader = now
	s.emit(Event{Type: model.EventLeader, Subject: "cluster", Before: before.Name, After: now.Name,
		Data: map[string]string{"server": string(now.Server), "term": strconv.FormatUint(now.Term, 10)}})
	return nil
}

func (c *LeaderBegin) sound() bool {
	return c.Server != "" && len(c.Server) <= maxAgentText && c.Name != "" && len(c.Name) <= maxAgentText
}
