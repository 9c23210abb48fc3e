package fsm

import (
	"github.com/outspan/outspan/internal/canon"
	"github.com/outspan/outspan/model"
)

// packedEvent is an event encoded as in snapshots and digests: one CBOR map in canonical form. The state stores events
// packed, because they are its most numerous and least read rows. A packed event takes 190 bytes instead of 550, and
// snapshots and digests copy it without encoding.
//
// This file encodes and decodes packed events without the CBOR library, so that emitting an event allocates one object,
// and searching through events allocates nothing.
type packedEvent string

// pack encodes an event. It keeps no reference to e.
func pack(e *Event) packedEvent {
	var buffer [512]byte // on the stack
	b := canon.AppendHead(buffer[:1], canon.Uint, 1)
	b = canon.AppendHead(b, canon.Uint, uint64(e.Key))
	b = canon.AppendText(canon.AppendHead(b, canon.Uint, 2), string(e.Type))
	b = canon.AppendText(canon.AppendHead(b, canon.Uint, 3), e.Subject)
	b = canon.AppendInt(canon.AppendHead(b, canon.Uint, 4), e.Wall)
	fields := byte(5)
	for i, text := range [...]string{string(e.Cause), string(e.Actor), string(e.Request), e.Before, e.After} {
		if text != "" {
			b = canon.AppendText(canon.AppendHead(b, canon.Uint, uint64(5+i)), text)
			fields++
		}
	}
	if len(e.Data) > 0 {
		b = canon.AppendTexts(canon.AppendHead(b, canon.Uint, 10), e.Data)
		fields++
	}
	b = canon.AppendInt(canon.AppendHead(b, canon.Uint, 11), int64(e.At))
	b[0] = canon.Map<<5 | fields
	return packedEvent(b)
}

// open decodes p. The strings of e are parts of p, so open allocates only e and its map. If pack can't have made p, ok
// is false, and e has only the fields before the first fault.
func (p packedEvent) open() (e *Event, ok bool) {
	e = new(Event)
	return e, p.read(e, true)
}

// event decodes p. If p is damaged, the event has only the fields before the first fault.
func (p packedEvent) event() *Event {
	e, _ := p.open()
	return e
}

// head decodes only the first fields of p: key, type, subject and wall time. It allocates nothing.
func (p packedEvent) head() (e Event) {
	in := canon.NewReader(string(p))
	_, _ = in.Head()
	required(&in, &e)
	return e
}

// valid returns the key of the event, and reports whether p is exactly what pack makes of this event.
func (p packedEvent) valid() (key EventKey, ok bool) {
	var e Event
	ok = p.read(&e, false)
	return e.Key, ok
}

// read decodes p into e, and reports whether p is exactly what pack makes of an event. If data is false, read checks
// the encoded map Data, but leaves e.Data nil.
func (p packedEvent) read(e *Event, data bool) bool {
	in := canon.NewReader(string(p))
	major, left := in.Head()
	in.Want(major == canon.Map && left >= 5 && left <= 11)
	required(&in, e)
	left -= 5
	texts := [...]struct {
		key uint64
		to  *string
	}{{5, (*string)(&e.Cause)}, {6, (*string)(&e.Actor)}, {7, (*string)(&e.Request)}, {8, &e.Before}, {9, &e.After}}
	for _, text := range texts {
		if left > 0 && in.NextIs(text.key) {
			*text.to = in.Text()
			in.Want(*text.to != "")
			left--
		}
	}
	if left > 0 && in.NextIs(10) {
		e.Data = in.Texts(data)
		left--
	}
	in.Want(in.NextIs(11))
	e.At = model.Time(in.Int())
	return in.Done() && left == 0
}

// required reads the fields that every event has.
func required(in *canon.Reader, e *Event) {
	in.Want(in.NextIs(1))
	e.Key = EventKey(in.Uint())
	in.Want(in.NextIs(2))
	e.Type = model.EventType(in.Text())
	in.Want(in.NextIs(3))
	e.Subject = in.Text()
	in.Want(in.NextIs(4))
	e.Wall = in.Int()
}
