package fsm

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/outspan/outspan/model"
)

// Limits of the events that an agent's reports on its own machine make, so that they don't push out the events of
// others. A report that arrives below the limit still emits all of its events: at most three, and one for each instance
// that went above its disk limit or back below it.
const (
	selfEvents = 128
	selfWindow = model.Hour
)

// leftOutAnEntry is the largest number of nodes whose present state one entry reports after their hour is over.
const leftOutAnEntry = 16

// SelfEvents counts the events that resulted from an agent's reports on its own machine.
type SelfEvents struct {
	Since   model.Time `cbor:"1,keyasint,omitempty"` // beginning of the hour that Emitted counts
	Emitted int        `cbor:"2,keyasint,omitempty"` // events emitted in that hour
	LeftOut int        `cbor:"3,keyasint,omitempty"` // events left out since one was last emitted
	// what the last emitted events said, if newer ones were left out; nil means that none were left out
	Last *LastEmitted `cbor:"4,keyasint,omitempty"`
}

// LastEmitted holds, for each kind of event that was left out, what the last emitted event of that kind said of the
// node. A field is empty if none was left out.
type LastEmitted struct {
	State  string `cbor:"1,keyasint,omitempty"`
	Checks string `cbor:"2,keyasint,omitempty"`
	Ports  string `cbor:"3,keyasint,omitempty"`
}

// noteLeftOut records in e that an event of one kind is left out or emitted; field selects the kind. If the event is
// left out, the field keeps what the last emitted event of the kind said. That is before, unless an earlier event was
// left out, too. If the event is emitted, the field is cleared.
func (s *State) noteLeftOut(e *SelfEvents, field func(*LastEmitted) *string, before string) {
	var last LastEmitted
	if e.Last != nil {
		last = *e.Last
	}
	switch f := field(&last); {
	case !s.entry.muted:
		*f = ""
	case *f == "":
		*f = before
	}
	if e.Last = nil; last != (LastEmitted{}) {
		e.Last = &last
	}
}

func lastState(t *LastEmitted) *string  { return &t.State }
func lastChecks(t *LastEmitted) *string { return &t.Checks }
func lastPorts(t *LastEmitted) *string  { return &t.Ports }

// boundSelfEvents begins to count the events that an agent's report makes. It mutes them if the hour's limit is
// reached. The returned function ends that and writes the count. Unless the events were muted, it first emits events
// for what was left out before.
func (s *State) boundSelfEvents(n *Node) (done func()) {
	count, id := n.Self.Events, n.ID
	if s.Now.Sub(count.Since) >= selfWindow {
		count = SelfEvents{Since: s.Now, LeftOut: count.LeftOut}
	}
	before, muted := s.entry.made, count.Emitted >= selfEvents
	s.entry.muted, s.entry.leftOut = muted, count.LeftOut
	return func() {
		if !muted {
			s.emitPresent(id)
		}
		s.entry.muted, s.entry.leftOut = false, 0
		switch made := s.entry.made - before; {
		case made == 0:
			return
		case muted:
			count.LeftOut += made
		default:
			count.Emitted, count.LeftOut = count.Emitted+made, 0
		}
		n, _ := s.Nodes.Get(id)
		next := *n
		count.Last = n.Self.Events.Last
		next.Self.Events = count
		s.putNode(&next)
	}
}

// emitPresent emits at most three events with the present state of a node, if that differs from what the last emitted
// events said.
func (s *State) emitPresent(id model.NodeID) {
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
	// other ports may be closed with the same codes
	if now := portCodes(n.Self.Ports); last.Ports != "" && (last.Ports != now || len(n.Self.Ports) > 0) {
		s.emit(n.portsEvent(last.Ports, n.Self.Ports, nil))
	}
}

// emitLeftOut emits the present state of at most leftOutAnEntry nodes whose hour is over, as part of an entry that is
// written anyway.
func (s *State) emitLeftOut() {
	var due []model.NodeID
	for key := range s.leftOutEvents.All() {
		n, ok := s.Nodes.Get(leftOutNode(key))
		if !ok || s.Now.Sub(n.Self.Events.Since) < selfWindow || len(due) == leftOutAnEntry {
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

// leftOutKey orders nodes that have left-out events, by the beginning of their hour.
func leftOutKey(n *Node) string { return fmt.Sprintf("%020d/%s", n.Self.Events.Since, n.ID) }

func leftOutNode(key string) model.NodeID {
	_, id, _ := strings.Cut(key, "/")
	return model.NodeID(id)
}

// addLeftOut adds to an event how many events before it were left out.
func (s *State) addLeftOut(e *Event) {
	if s.entry.leftOut == 0 {
		return
	}
	e.Data = maps.Clone(e.Data)
	if e.Data == nil {
		e.Data = map[string]string{}
	}
	e.Data["untold"] = strconv.Itoa(s.entry.leftOut)
	s.entry.leftOut = 0
}

func (c SelfEvents) sound(now model.Time) bool {
	return c.Since <= now && c.Emitted >= 0 && c.LeftOut >= 0 &&
		(c.Last == nil || *c.Last != LastEmitted{} && c.LeftOut > 0)
}
