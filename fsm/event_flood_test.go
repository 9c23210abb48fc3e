package fsm

import (
	"bytes"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// sumOfEvents adds up the sizes of all events, in bytes.
func sumOfEvents(s *State) int {
	n := 0
	for _, p := range s.Events.rows.All() {
		n += len(p)
	}
	return n
}

// flood changes the hold n times. Each change leaves one event, with a reason of size bytes.
func (g *glutton) flood(n, size int) {
	for range n {
		g.must(&HoldSet{Active: !g.s.Hold.Active, Reason: strings.Repeat("x", size)})
	}
}

// The number of events is limited, and so is their total size, because events may contain long texts. Each entry drops
// the oldest events that no longer fit, so a few large events may replace many small ones.
func TestEventsAreBoundedByBytes(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	settings := model.DefaultSettings()
	settings.EventLimit = 4000
	g.must(&SettingsSet{Settings: settings})
	limit := g.s.eventRoom()
	if limit > 4<<20 {
		t.Fatalf("4,000 events may take %d bytes", limit)
	}
	g.flood(4000, 10)
	if n := g.s.Events.Len(); n != 4000 {
		t.Fatalf("%d small events are kept, want all 4,000", n)
	}
	for range 1000 {
		g.flood(1, 15<<10)
		if size := sumOfEvents(&g.s); size > limit {
			t.Fatalf("%d events take %d bytes, more than %d", g.s.Events.Len(), size, limit)
		}
	}
	last, _, _ := g.s.Events.Max()
	if last.Index() != g.s.Index {
		t.Errorf("the newest event is of index %d, want that of the last entry, %d", last.Index(), g.s.Index)
	}
	if n := g.s.Events.Len(); n < limit/(16<<10) {
		t.Errorf("only %d events are kept, there is room for %d", n, limit/(16<<10))
	}
	g.readBack()
}

// EventTable.Bytes stays correct after a refused group, after a snapshot is read, and after old events are dropped.
func TestEventBytesAreCounted(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	g.flood(10, 500)
	if refusal := g.try(&HoldSet{Active: true, Reason: "a group that is taken back"},
		&JobScale{Job: "none", Group: "app", Count: 1}); refusal == nil {
		t.Fatal("a group with a job that does not exist was accepted")
	}
	if got, want := g.s.Events.Bytes(), sumOfEvents(&g.s); got != want || want == 0 {
		t.Errorf("after a refused group %d bytes are counted, there are %d", got, want)
	}
	var buf bytes.Buffer
	if err := WriteSnapshot(&buf, g.s); err != nil {
		t.Fatal(err)
	}
	back, err := ReadSnapshot(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := back.Events.Bytes(), sumOfEvents(&g.s); got != want {
		t.Errorf("read back, %d bytes are counted, there are %d", got, want)
	}
	g.s = back
	settings := model.DefaultSettings()
	settings.EventLimit = 1000
	g.must(&SettingsSet{Settings: settings})
	g.flood(1100, 100)
	if got, want := g.s.Events.Bytes(), sumOfEvents(&g.s); got != want || g.s.Events.Len() != 1000 {
		t.Errorf("after a clean-up %d bytes are counted, there are %d in %d events", got, want, g.s.Events.Len())
	}
}
