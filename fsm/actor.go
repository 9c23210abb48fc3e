package fsm

import (
	"github.com/outspan/outspan/model"
)

// ActorLedger is the stops that one kind of actor has begun within its window. Kept only while it has a rate.
type ActorLedger struct {
	Actor model.ActorKind `cbor:"1,keyasint"`
	Stops []model.Time    `cbor:"2,keyasint,omitempty"`
}

// NextOf is the earliest time at which an actor's rate allows another stop to begin; it may be past.
func (s *rules) NextOf(k model.ActorKind) model.Time {
	rate := s.Settings.ActorRate(k)
	l, ok := s.Actors.Get(k)
	if !ok {
		return 0
	}
	return nextOf(l.Stops, rate.Max, rate.Window)
}

// UsedBy is how many stops of its window an actor has begun.
func (s *State) UsedBy(k model.ActorKind) int {
	l, ok := s.Actors.Get(k)
	if !ok {
		return 0
	}
	return usedOf(l.Stops, s.Settings.ActorRate(k).Window, s.Now)
}

// spendActor notes a stop in the rate of who began it.
func (s *State) spendActor(k model.ActorKind) {
	rate := s.Settings.ActorRate(k)
	if rate.Max == 0 {
		if s.Actors.Has(k) { // what a rate of before left
			s.delActor(k)
		}
		return
	}
	next := ActorLedger{Actor: k}
	if l, ok := s.Actors.Get(k); ok {
		next = *l
	}
	next.Stops = noteStop(next.Stops, rate.Max, rate.Window, s.Now)
	s.putActor(&next)
}
