package fsm

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/outspan/outspan/model"
)

// An agent's reports on its own machine may emit at most selfEvents events per selfWindow, so that they don't push out
// the events of others. Events above the limit are left out: they are counted, but not stored. A report that arrives
// below the limit still emits all of its events: at most four, and one for each instance that went above its disk
// limit or back below it.
const (
	selfEvents = 128
	selfWindow = model.Hour
)

// leftOutAnEntry is the most nodes whose present state one entry emits because their hour is over.
const leftOutAnEntry = 16

// SelfEvents counts the events that resulted from an agent's reports on its own machine.
type SelfEvents struct {
	Since   model.Time `cbor:"1,keyasint,omitempty"` // beginning of the hour of Emitted
	Emitted int        `cbor:"2,keyasint,omitempty"` // events emitted in that hour
	LeftOut int        `cbor:"3,keyasint,omitempty"` // events left out since one was last emitted
	// what the last emitted events said of the node; nil if no event was left out since then
	Last *LastEmitted `cbor:"4,keyasint,omitempty"`
}

// LastEmitted has, for each kind of event, what the last emitted event of that kind said of the node. A field is empty
// if no event of its kind was left out since then.
type LastEmitted struct {
	State  string `cbor:"1,keyasint,omitempty"`
	Checks string `cbor:"2,keyasint,omitempty"`
	Ports  string `cbor:"3,keyasint,omitempty"`
	// of the container runtime
	Runtime string `cbor:"4,keyasint,omitempty"`
}

// noteLeftOut records in e that an event of one kind is emitted or, while events are muted, left out. field selects the
// kind. before is what such an event says of the node before the change. The first event that is left out stores before
// in the selected field, later ones don't change it, and an emitted event clears it.
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

func lastRuntime(t *LastEmitted) *string { return &t.Runtime }

// boundSelfEvents begins to count the events that an agent's report makes. If the hour's limit is reached, it mutes
// them until done is called. done stores the count in the node's row. Unless the events were muted, done first emits
// the node's present state in place of the events that were left out before.
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

// emitPresent emits at most four events with the present state of a node: one for each kind that had events left out
// and whose state may differ from what the last emitted event said.
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
	// the codes may be the same although other ports are closed now
	if now := portCodes(n.Self.Ports); last.Ports != "" && (last.Ports != now || len(n.Self.Ports) > 0) {
		s.emit(n.portsEvent(last.Ports, n.Self.Ports, nil))
	}
	if now := n.Self.Runtime.words(); last.Runtime != "" && last.Runtime != now {
		s.emit(n.runtimeEvent(last.Runtime))
	}
}

// emitLeftOut calls emitPresent for at most leftOutAnEntry nodes that had events left out and whose hour is over. It
// runs in entries that are written anyway, so it never causes an entry.
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

// leftOutKey is the key of a node that had events left out. The keys are in the order in which the hours of the nodes
// began.
func leftOutKey(n *Node) string { return fmt.Sprintf("%020d/%s", n.Self.Events.Since, n.ID) }

func leftOutNode(key string) model.NodeID {
	_, id, _ := strings.Cut(key, "/")
	return model.NodeID(id)
}

// addLeftOut adds to an event the number of events that were left out before it.
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
