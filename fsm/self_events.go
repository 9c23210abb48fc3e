package fsm

import (
	"maps"
	"strconv"

	"github.com/outspan/outspan/model"
)

// How many events an agent's words on its own machine may make, so that the events of others are kept. A report that
// comes before there are so many has all of its own told: those are at most two for each instance above its disk limit,
// and three.
const (
	selfEvents = 128
	selfWindow = model.Hour
)

// SelfEvents counts the events that an agent's words on its own machine made.
type SelfEvents struct {
	Since  model.Time `cbor:"1,keyasint,omitempty"` // when the hour began in which those told are counted
	Told   int        `cbor:"2,keyasint,omitempty"` // in that hour
	Untold int        `cbor:"3,keyasint,omitempty"` // since one was told last
}

// boundSelfEvents begins to count the events that an agent's word makes, and leaves them out if there were too many
// lately. The returned function notes how many they were.
func (s *State) boundSelfEvents(n *Node) (done func()) {
	count, id := n.Self.Events, n.ID
	if s.Now.Sub(count.Since) >= selfWindow {
		count = SelfEvents{Since: s.Now, Untold: count.Untold}
	}
	before, muted := s.entry.made, count.Told >= selfEvents
	s.entry.muted, s.entry.untold = muted, count.Untold
	return func() {
		s.entry.muted, s.entry.untold = false, 0
		switch made := s.entry.made - before; {
		case made == 0:
			return
		case muted:
			count.Untold += made
		default:
			count.Told, count.Untold = count.Told+made, 0
		}
		n, _ := s.Nodes.Get(id)
		next := *n
		next.Self.Events = count
		s.putNode(&next)
	}
}

// tellUntold has an event say how many before it were left out.
func (s *State) tellUntold(e *Event) {
	if s.entry.untold == 0 {
		return
	}
	e.Data = maps.Clone(e.Data)
	if e.Data == nil {
		e.Data = map[string]string{}
	}
	e.Data["untold"] = strconv.Itoa(s.entry.untold)
	s.entry.untold = 0
}

func (c SelfEvents) sound(now model.Time) bool {
	return c.Since <= now && c.Told >= 0 && c.Untold >= 0
}
