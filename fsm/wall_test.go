package fsm

import (
	"math"
	"testing"

	"github.com/outspan/outspan/model"
)

const (
	wallDay = 24 * int64(model.Hour)
	begun   = int64(1_790_000_000_000) // wall clock at cluster time 0, in Unix ms
)

// clocked applies entries whose wall clock differs by a given number of milliseconds from begun plus the cluster time.
type clocked struct {
	t    *testing.T
	s    State
	now  model.Time
	term uint64
}

func newClocked(t *testing.T) *clocked {
	c := &clocked{t: t, s: NewState(), now: 1, term: 1}
	c.write(0,
		&NodeRegister{ID: "n1", Name: "n1", Agent: model.AgentInfo{BootID: "b", Address: "10.0.0.1", Key: []byte("k")},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}, PortMin: 20000, PortMax: 21000}})
	return c
}

func (c *clocked) write(off int64, group ...Command) {
	c.t.Helper()
	var results []Result
	c.s, results = c.s.Apply(c.s.Index+1, c.term,
		recode(c.t,
			Entry{Format: 1, At: c.now, Wall: begun + int64(c.now) + off, Actor: "cli:ann", Groups: [][]Command{group}}))
	if results[0].Refusal != nil {
		c.t.Fatal(results[0].Refusal)
	}
}

// later advances cluster time by one second and applies an entry that makes an event.
func (c *clocked) later(off int64) {
	c.t.Helper()
	c.now = c.now.Add(model.Second)
	intent := model.IntentCordoned
	if n, _ := c.s.Nodes.Get("n1"); n.Intent == model.IntentCordoned {
		intent = model.IntentActive
	}
	c.write(off, &NodeIntent{ID: "n1", Intent: intent})
}

// shows checks that the state's wall clock differs by want milliseconds from begun plus the cluster time.
func (c *clocked) shows(when string, want int64) {
	c.t.Helper()
	if got := c.s.Wall - begun - int64(c.now); got != want {
		c.t.Errorf("%s: the wall clock is %d days and %d ms off, want %d days and %d ms", when, got/wallDay, got%wallDay,
			want/wallDay, want%wallDay)
	}
}

// If one entry has a wall clock that is years ahead, the state's wall clock does not follow it, and no event is
// dropped. The state's wall clock follows the next entry as usual.
func TestOneEntryFromTheFuture(t *testing.T) {
	c := newClocked(t)
	for range 50 {
		c.later(0)
	}
	events := c.s.Events.Len()
	c.later(3650 * wallDay)
	c.shows("the entry itself", 0)
	c.later(1000)
	c.shows("the next", 1000)
	if got := c.s.Events.Len(); got != events+2 {
		t.Errorf("%d events are kept, want %d", got, events+2)
	}
}

// If a leader's clock was set forward or back, the state's wall clock follows after entries have had the new clock for
// one minute. Two entries whose clocks contradict each other change nothing, even an hour apart.
func TestWallThatWasSet(t *testing.T) {
	c := newClocked(t)
	for _, off := range []int64{3 * wallDay, -2 * wallDay} {
		before := c.s.Wall - begun - int64(c.now)
		for range 60 {
			c.later(off)
			c.shows("in doubt", before)
		}
		c.later(off)
		c.shows("proven", off)
	}
	c.later(100 * wallDay)
	c.now = c.now.Add(model.Hour)
	c.later(-100 * wallDay)
	c.shows("after an hour, another leap", -2*wallDay)
}

// In the first entry of a new term, the state accepts a jump of up to wallGap at once, because all servers may have
// been down that long. It does not accept a longer jump.
func TestWallOfANewTerm(t *testing.T) {
	c := newClocked(t)
	c.term = 2
	c.later(7 * wallDay)
	c.shows("a week later", 7*wallDay)
	c.term = 3
	c.later(0)
	c.shows("a leader whose clock is right", 0)
	c.term = 4
	c.later(3650 * wallDay)
	c.shows("ten years", 0)
	c.term = 5
	c.later(int64(wallGap))
	c.shows("the longest gap", int64(wallGap))
	c.term = 6
	c.later(2*int64(wallGap) + 1)
	c.shows("a longer gap", int64(wallGap))
}

// Whatever wall clocks entries have, the state's wall clock can be formatted as a time.
func TestStrangeWalls(t *testing.T) {
	for _, first := range []int64{math.MinInt64, -1, math.MaxInt64} {
		s := NewState()
		for i, wall := range []int64{first, math.MaxInt64, math.MinInt64, begun} {
			s, _ = s.Apply(s.Index+1, 1, Entry{Format: 1, At: model.Time(i) * model.Time(wallProof), Wall: wall})
			if s.Wall < 0 || s.Wall > latestWall {
				t.Fatalf("the wall clock is %d", s.Wall)
			}
		}
	}
}
