package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// RailName is the name of a rate that is counted for the whole cluster. The count is in the state, so a new leader
// continues it.
type RailName string

// The names of the rates.
const (
	RailStops RailName = "stops" // stops that nobody ordered: by the rescheduler, and by the policy on a cordoned node
	RailMoves RailName = "moves" // moves that the rescheduler began
)

const (
	railWindow  = 60 * model.Second
	railPercent = 5 // percent of the instances that should run; RailLimit allows at least one stop
)

// ByPolicy is the value of By in evictions and stops that a policy causes because a node is cordoned.
const ByPolicy = "policy-cordon"

// Rail lists the stops, or the moves, that began within a window of cluster time.
type Rail struct {
	Name  RailName `cbor:"1,keyasint"`
	Begun []Tick   `cbor:"2,keyasint,omitempty"` // oldest first
}

// Tick is the number of stops or moves that began at one moment.
type Tick struct {
	At model.Time `cbor:"1,keyasint"`
	N  int        `cbor:"2,keyasint"`
}

// begun returns how many stops or moves began within the window that ends now, and when the oldest of them leaves the
// window. If there are none, next is Never.
func (s *State) begun(name RailName, window model.Duration) (n int, next model.Time) {
	rail, ok := s.Rails.Get(name)
	if !ok {
		return 0, model.Never
	}
	next = model.Never
	for _, t := range rail.Begun {
		if leaves := t.At.Add(window); s.Now < leaves {
			n, next = n+t.N, min(next, leaves)
		}
	}
	return n, next
}

// spendRail adds one stop or move, which begins now, to a rate. It removes those that have left the window.
func (s *State) spendRail(name RailName, window model.Duration) {
	next := Rail{Name: name}
	if rail, ok := s.Rails.Get(name); ok {
		next.Begun = slices.DeleteFunc(slices.Clone(rail.Begun), func(t Tick) bool { return t.At.Add(window) <= s.Now })
	}
	if last := len(next.Begun) - 1; last >= 0 && next.Begun[last].At == s.Now {
		next.Begun[last].N++
	} else {
		next.Begun = append(next.Begun, Tick{At: s.Now, N: 1})
	}
	s.putRail(&next)
}

// unordered reports whether nobody ordered the stop: the rescheduler decided it, or the policy on a cordoned node.
func (c *InstanceStop) unordered() bool {
	return c.Cause == model.CauseRebalance || c.Cause == model.CauseAffinity || c.By == ByPolicy
}

// spendStop adds a stop to the rate if nobody ordered the stop. It ignores an instance that is already down or never
// began to run.
func (s *State) spendStop(inst *Instance, c *InstanceStop) {
	switch inst.Status.Observed {
	case model.ObservedLost, model.ObservedFailed, model.ObservedPending:
		return
	}
	if c.unordered() {
		s.spendRail(RailStops, railWindow)
	}
}

// RailLimit returns how many instances may be stopped per minute without an order of a person: 5 % of the instances
// that should run, but at least one.
func (s *jobs) RailLimit() int {
	running := 0
	for _, g := range s.Groups.All() {
		running += g.Running
	}
	return max(1, running*railPercent/100)
}

// RailRoom returns how many more stops that nobody ordered may begin now, and when the oldest counted stop leaves the
// window. next is Never if no stop is counted. If the limit has fallen since, several counted stops must leave the
// window before there is room, so next is too early. The leader then looks once more and waits again.
func (s *State) RailRoom() (room int, next model.Time) {
	n, next := s.begun(RailStops, railWindow)
	return max(s.RailLimit()-n, 0), next
}

// checkRail returns nil if one more stop that nobody ordered may begin now. Code: actor_rate. The time in the refusal
// is that of RailRoom, which may be too early. To change it would change the outcomes of old logs.
func (s *State) checkRail() *model.Error {
	room, next := s.RailRoom()
	if room > 0 {
		return nil
	}
	wait := (next.Sub(s.Now) + model.Second - 1) / model.Second * model.Second
	return model.Refuse(model.CodeActorRate,
		"at most %d instances are stopped per %s without an order; the next is allowed in %s",
		s.RailLimit(), railWindow, wait)
}

// rails checks that the ticks of each rate are in order of time, are not in the future, and are not empty.
func (c *checker) rails() {
	for name, r := range c.s.Rails.All() {
		last := model.Time(-1)
		for _, t := range r.Begun {
			c.want(t.N > 0 && t.At > last && t.At <= c.s.Now, "rail %s: %d at %d after %d, the state is at %d",
				name, t.N, t.At, last, c.s.Now)
			last = t.At
		}
	}
}
