package fsm

import (
	"github.com/outspan/outspan/model"
)

// ActorLedger lists the stops that one kind of actor has begun within its rate's window. The first stop under a rate
// creates the row. If the kind no longer has a rate, its next stop removes the row.
type ActorLedger struct {
	Actor model.StopOrigin `cbor:"1,keyasint"`
	Stops []model.Time     `cbor:"2,keyasint,omitempty"`
}

// NextOf returns the earliest time at which the rate of a kind of actor allows another stop to begin. That time may be
// in the past. It is 0 if the kind has no rate, or if fewer stops than the rate allows are in the ledger.
func (s *rules) NextOf(k model.StopOrigin) model.Time {
	rate := s.Settings.ActorRate(k)
	l, ok := s.Actors.Get(k)
	if !ok {
		return 0
	}
	return nextOf(l.Stops, rate.Max, rate.Window)
}

// UsedBy returns how many stops a kind of actor has begun within its rate's window. It returns 0 without a rate.
func (s *State) UsedBy(k model.StopOrigin) int {
	l, ok := s.Actors.Get(k)
	if !ok {
		return 0
	}
	return usedOf(l.Stops, s.Settings.ActorRate(k).Window, s.Now)
}

// spendActor adds a stop that begins now to the ledger of the kind of actor that begins it.
func (s *State) spendActor(k model.StopOrigin) {
	rate := s.Settings.ActorRate(k)
	if rate.Max == 0 {
		if s.Actors.Has(k) { // the kind had a rate earlier
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
