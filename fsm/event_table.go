package fsm

import (
	"iter"

	"github.com/outspan/outspan/model"
)

// EventTable is the table of events, in the order in which they happened. It stores the events packed. Each read
// decodes a new Event, which the caller may keep. To look for a few events among many, use Find.
//
// Reading a published table is safe for concurrent use. If memory was damaged and an event can't be decoded, a read
// returns the fields before the fault. The servers find such damage when they compare their states.
type EventTable struct {
	rows  Table[EventKey, packedEvent]
	bytes int // sum of the lengths of all rows
}

// Get returns the event at key.
func (t EventTable) Get(key EventKey) (e *Event, ok bool) {
	p, ok := t.rows.Get(key)
	if !ok {
		return nil, false
	}
	return p.event(), true
}

// Has reports whether there is an event at key.
func (t EventTable) Has(key EventKey) bool { return t.rows.Has(key) }

// Len returns the number of events.
func (t EventTable) Len() int { return t.rows.Len() }

// All iterates over every event.
func (t EventTable) All() iter.Seq2[EventKey, *Event] { return t.From(0) }

// From iterates over the events whose key is at least pivot.
func (t EventTable) From(pivot EventKey) iter.Seq2[EventKey, *Event] { return t.Find(pivot, nil) }

// Find iterates over the events whose key is at least pivot and whose type and subject wanted accepts. A nil wanted
// accepts all events. An event that wanted does not accept costs a tenth of the time of one that it accepts.
func (t EventTable) Find(pivot EventKey, wanted func(model.EventType, string) bool) iter.Seq2[EventKey, *Event] {
	return func(yield func(EventKey, *Event) bool) {
		for key, p := range t.rows.From(pivot) {
			if wanted != nil {
				if head := p.head(); !wanted(head.Type, head.Subject) {
					continue
				}
			}
			if !yield(key, p.event()) {
				return
			}
		}
	}
}

// Min returns the oldest event, or false if the table is empty.
func (t EventTable) Min() (key EventKey, e *Event, ok bool) {
	key, p, ok := t.rows.Min()
	return key, p.event(), ok
}

// Max returns the newest event, or false if the table is empty.
func (t EventTable) Max() (key EventKey, e *Event, ok bool) {
	key, p, ok := t.rows.Max()
	return key, p.event(), ok
}

// oldest returns the key and the cluster time of the oldest event, or false if the table is empty.
func (t EventTable) oldest() (key EventKey, at model.Time, ok bool) {
	key, p, ok := t.rows.Min()
	var e Event
	_ = p.read(&e, false)
	return key, e.At, ok
}

// Bytes returns the total length of the packed events.
func (t EventTable) Bytes() int { return t.bytes }

func (t EventTable) fork(undo *undoLog) EventTable { return EventTable{t.rows.fork(undo), t.bytes} }

func (t *EventTable) put(key EventKey, e *Event) {
	p := pack(e)
	if len(p) > maxEvent {
		e.clip()
		p = pack(e)
	}
	t.putPacked(key, p)
}

// putPacked writes a row and updates t.bytes. The undo log does not cover t.bytes: when applyGroup refuses a group, it
// restores t.bytes by restoring the whole State struct.
func (t *EventTable) putPacked(key EventKey, p packedEvent) {
	before, _ := t.rows.Get(key)
	t.rows.put(key, p)
	t.bytes += len(p) - len(before)
}

func (t *EventTable) del(key EventKey) {
	before, _ := t.rows.Get(key)
	t.rows.del(key)
	t.bytes -= len(before)
}

// eventRows returns the entry of rowTables for the events.
func eventRows(id tableID, name string) rowTable {
	return rowTable{
		id: id, name: name,
		size: func(s *State) int { return s.Events.Len() },
		diff: func(a, b *State) []RowChange {
			return diffTable(name, a.Events.rows, b.Events.rows, func(p packedEvent) any { return p.event() })
		},
		all: func(s *State) iter.Seq2[string, any] { return rowsByText(s.Events.All()) },
		each: func(s *State, visit func(body []byte) error) error {
			var buf []byte
			for _, p := range s.Events.rows.All() {
				buf = append(buf[:0], p...)
				if err := visit(buf); err != nil {
					return err
				}
			}
			return nil
		},
		add: func(s *State, body []byte, _ sharing) *model.Error {
			p := packedEvent(body)
			key, ok := p.valid()
			if !ok {
				if err := decodeRow(name, body, new(Event)); err != nil {
					return err
				}
				return damaged("an event is not in canonical form")
			}
			if last, _, some := s.Events.rows.Max(); some && key <= last {
				return damaged("table %s is out of order at %v", name, key)
			}
			s.Events.putPacked(key, p)
			return nil
		},
	}
}
