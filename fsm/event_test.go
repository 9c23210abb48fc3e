package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
)

// pack writes the same bytes as the CBOR library, and open, valid and head can read these bytes.
func TestPackedEventIsTheLibrarysEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e Event
		arbitrary(t, reflect.ValueOf(&e).Elem())
		e.Before = strings.Repeat(e.Before, rapid.SampledFrom([]int{1, 30, 300, 70_000}).Draw(t, "longer"))
		for i := range rapid.IntRange(0, 30).Draw(t, "more data") {
			if e.Data == nil {
				e.Data = map[string]string{}
			}
			e.Data[strings.Repeat(fmt.Sprint(i), i)] = fmt.Sprint(i)
		}
		want, err := wire.enc.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		p := pack(&e)
		if !bytes.Equal(want, []byte(p)) {
			t.Fatalf("the bytes of %+v differ (-library +pack):\n%s", e, cmp.Diff(want, []byte(p)))
		}
		got, ok := p.open()
		if diff := cmp.Diff(&e, got); diff != "" || !ok {
			t.Fatalf("read as (ok %v, -want +got):\n%s", ok, diff)
		}
		if key, ok := p.valid(); key != e.Key || !ok {
			t.Fatalf("valid: %v, %v", key, ok)
		}
		if head := p.head(); head.Key != e.Key || head.Type != e.Type || head.Subject != e.Subject || head.Wall != e.Wall {
			t.Fatalf("the head is %+v of %+v", head, e)
		}
	})
}

// If open can read a row, pack writes the same bytes again. So each event has one encoding, and no part of a row is
// ignored. The CBOR library reads the same event.
func FuzzPackedEvent(f *testing.F) {
	var e Event
	sample(reflect.ValueOf(&e).Elem(), "event", 1)
	f.Add([]byte(pack(&e)))
	f.Add([]byte(pack(&Event{Key: 1 << 40, Type: model.EventJob, Subject: "job/web", Wall: -1})))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := packedEvent(data)
		p.head()
		e, ok := p.open()
		if key, valid := p.valid(); valid != ok || ok && key != e.Key {
			t.Fatalf("open says %v %v, valid %v %v", e.Key, ok, key, valid)
		}
		if !ok {
			return
		}
		if again := pack(e); again != p {
			t.Fatalf("%x is read as %+v, which is written as %x", p, e, again)
		}
		var byLibrary Event
		if err := wire.row.Unmarshal(data, &byLibrary); err != nil {
			t.Fatalf("the library does not read it: %v", err)
		}
		if diff := cmp.Diff(&byLibrary, e); diff != "" {
			t.Fatalf("-library +open:\n%s", diff)
		}
	})
}

func TestEventRowsThatAreRefused(t *testing.T) {
	good := map[int]any{1: 1 << 20, 2: "job.changed", 3: "job/web", 11: 5, 4: 5, 10: map[string]string{"a": "1", "b": "2"}}
	canonical := func(row map[int]any) []byte {
		data, err := wire.enc.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	with := func(key int, value any) []byte {
		row := map[int]any{}
		for k, v := range good {
			row[k] = v
		}
		if row[key] = value; value == nil {
			delete(row, key)
		}
		return canonical(row)
	}
	plain := canonical(good)
	tests := []struct {
		name string
		row  []byte
		code model.Code
		says string
	}{
		{"a field of a newer program", with(12, "x"), model.CodeNeedsFormat, "field"},
		{"no subject", with(3, nil), model.CodeInvalid, "canonical"},
		{"an empty text that is never written", with(8, ""), model.CodeInvalid, "canonical"},
		{"no data, but room for it", with(10, map[string]string{}), model.CodeInvalid, "canonical"},
		{"data of another type", with(10, 5), model.CodeInvalid, "damaged"},
		{"bytes as a subject", with(3, []byte("x")), model.CodeInvalid, "damaged"},
		{"a key in more bytes than it needs", []byte{0xa5, 1, 0x18, 1, 2, 0x61, 'x', 3, 0x61, 'x', 4, 0, 11, 0},
			model.CodeInvalid, "canonical"},
		{"keys out of order", []byte{0xa5, 2, 0x61, 'x', 1, 1, 3, 0x61, 'x', 4, 0, 11, 0}, model.CodeInvalid, "canonical"},
		{"a time too large", []byte{0xa5, 1, 1, 2, 0x61, 'x', 3, 0x61, 'x', 4, 0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
			0xff, 11, 0}, model.CodeInvalid, "damaged"},
		{"data in another order", []byte(strings.Replace(string(plain), "aa", "ac", 1)), model.CodeInvalid, "canonical"},
		{"cut", plain[:len(plain)-1], model.CodeInvalid, "damaged"},
		{"longer", append(plain[:len(plain):len(plain)], 0), model.CodeInvalid, "damaged"},
		{"nothing", nil, model.CodeInvalid, "no map"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := NewState().fork()
			err := eventRows(11, "events").add(s, tt.row, nil)
			if err == nil || !errors.Is(err, &model.Error{Code: tt.code}) || !strings.Contains(err.Message, tt.says) ||
				s.Events.Len() != 0 {
				t.Errorf("got %v, want code %s and a message with %q", err, tt.code, tt.says)
			}
		})
	}
	s := NewState().fork()
	if err := eventRows(11, "events").add(s, plain, nil); err != nil {
		t.Fatal(err)
	}
	if err := eventRows(11, "events").add(s, plain, nil); err == nil || !strings.Contains(err.Message, "out of order") {
		t.Errorf("the same event twice: %v", err)
	}
}

func TestFindEvents(t *testing.T) {
	s := NewState().fork()
	for i, subject := range []string{"job/a", "job/b", "job/a", "job/b"} {
		s.Events.put(EventKey(i), &Event{Key: EventKey(i), Type: model.EventJob, Subject: subject, After: fmt.Sprint(i)})
	}
	var got []string
	for key, e := range s.Events.Find(1, func(typ model.EventType, subject string) bool {
		return typ == model.EventJob && subject == "job/b"
	}) {
		got = append(got, key.String()+" "+e.After)
	}
	if diff := cmp.Diff([]string{"0.1 1", "0.3 3"}, got); diff != "" {
		t.Error(diff)
	}
	for range s.Events.All() {
		break // the iterator must accept an early end
	}
	if _, _, ok := NewState().Events.Min(); ok {
		t.Error("an empty table has an oldest event")
	}
	if _, ok := s.Events.Get(9); ok {
		t.Error("an event that is not there was found")
	}
}

// pack allocates only the packed event.
func TestPackAllocatesOnce(t *testing.T) {
	var kept packedEvent
	allocs := testing.AllocsPerRun(100, func() {
		e := Event{Key: 1 << 30, Type: model.EventStatus, Subject: "instance/abc", Wall: 1_700_000_000_000,
			Actor: model.ActorLeader,
			Data:  map[string]string{"node": "n", "group": "web/api", "reason": "why"}}
		kept = pack(&e)
	})
	if allocs > 1 {
		t.Errorf("%v allocations for an event of %d bytes", allocs, len(kept))
	}
}
