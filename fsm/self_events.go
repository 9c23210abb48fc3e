package fsm

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/outspan/outspan/model"
)

// How many events an agent's words on its own machine may make, so that the events of others are kept. A report that
// comes before there are so many has all of its own told: those are at most two for each instance above its disk limit,
// and three.
const (
	selfEvents = 128
	selfWindow = model.Hour
)

// hushedAnEntry is of how many nodes an entry at most tells the present state after their hour.
const hushedAnEntry = 16

// SelfEvents counts the events that an agent's words on its own machine made.
type SelfEvents struct {
	Since  model.Time `cbor:"1,keyasint,omitempty"` // when the hour began in which those told are counted
	Told   int        `cbor:"2,keyasint,omitempty"` // in that hour
	Untold int        `cbor:"3,keyasint,omitempty"` // since one was told last
	Last   *SelfTold  `cbor:"4,keyasint,omitempty"` // of what was left out since; nil: nothing
}

// SelfTold is what events said last of a node, where those that would say otherwise were left out. A field is empty if
// none was.
type SelfTold struct {
	State  string `cbor:"1,keyasint,omitempty"`
	Checks string `cbor:"2,keyasint,omitempty"`
	Ports  string `cbor:"3,keyasint,omitempty"`
}

// noteTold notes in a node's row that an event changes what was told last: the field is set where the event is left
// out, and emptied where it is told.
func (s *State) noteTold(e *SelfEvents, field func(*SelfTold) *string, before string) {
	var last SelfTold
	if e.Last != nil {
		last = *e.Last
	}
	switch f := field(&last); {
	case !s.entry.muted:
		*f = ""
	case *f == "":
		*f = before
	}
	if e.Last = nil; last != (SelfTold{}) {
		e.Last = &last
	}
}

func toldState(t *SelfTold) *string  { return &t.State }
func toldChecks(t *SelfTold) *string { return &t.Checks }
func toldPorts(t *SelfTold) *string  { return &t.Ports }

// boundSelfEvents begins to count the events that an agent's word makes, and leaves them out if there were too many
// lately. The returned function notes how many they were, and tells what was left out earlier.
func (s *State) boundSelfEvents(n *Node) (done func()) {
	count, id := n.Self.Events, n.ID
	if s.Now.Sub(count.Since) >= selfWindow {
		count = SelfEvents{Since: s.Now, Untold: count.Untold}
	}
	before, muted := s.entry.made, count.Told >= selfEvents
	s.entry.muted, s.entry.untold = muted, count.Untold
	return func() {
		if !muted {
			s.tellPresent(id)
		}
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
		count.Last = n.Self.Events.Last
		next.Self.Events = count
		s.putNode(&next)
	}
}

// tellPresent says in at most three events what is so on a node now, where what was told last is not.
func (s *State) tellPresent(id model.NodeID) {
	n, _ := s.Nodes.Get(id)
	last := n.Self.Events.Last
	if last == nil {
		return
	}
	next := *n
	next.Self.Events.Last = nil
	s.putNode(&next)
	if now := string(n.State()); last.State != "" && last.State != now {
		s.emit(n.stateEvent(last.State))
	}
	if last.Checks != "" && last.Checks != n.Self.checks() {
		s.emit(n.checksEvent(last.Checks))
	}
	if last.Ports != "" && last.Ports != portCodes(n.Self.Ports) {
		s.emit(n.portsEvent(last.Ports, n.Self.Ports, nil))
	}
}

// tellHushed tells with an entry that is written anyway what is so now on nodes whose hour is over.
func (s *State) tellHushed() {
	var due []model.NodeID
	for key := range s.hushed.All() {
		n, ok := s.Nodes.Get(hushedNode(key))
		if !ok || s.Now.Sub(n.Self.Events.Since) < selfWindow || len(due) == hushedAnEntry {
			break
		}
		due = append(due, n.ID)
	}
	for _, id := range due {
		n, _ := s.Nodes.Get(id)
		s.entry.actor, s.entry.request = model.ActorAgent(n.Name), ""
		s.boundSelfEvents(n)()
	}
}

// hushKey orders the nodes of which something was left out by when their hour began.
func hushKey(n *Node) string { return fmt.Sprintf("%020d/%s", n.Self.Events.Since, n.ID) }

func hushedNode(key string) model.NodeID {
	_, id, _ := strings.Cut(key, "/")
	return model.NodeID(id)
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
	return c.Since <= now && c.Told >= 0 && c.Untold >= 0 && (c.Last == nil || *c.Last != SelfTold{} && c.Untold > 0)
}
