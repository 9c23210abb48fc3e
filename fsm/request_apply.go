package fsm

import (
	"strings"

	"github.com/outspan/outspan/model"
)

const (
	maxRequests = 100_000 // if this many requests of all actors are stored, new ones are refused
	// If this many requests of one actor are stored, its new ones are refused. While more than this many are stored for
	// all actors together, those older than requestMinimum are forgotten.
	maxRequestsOfActor = 50_000
	// An actor with fewer stored requests is never refused. From this number on, the texts of its refusals are not stored.
	minRequestsOfActor = 1_000
	requestMinimum     = 10 * model.Minute // how long every request is stored
)

// replay answers an entry without applying it if its request id was seen before. The same request of the same actor
// gets the stored outcome; any other request gets a conflict. A new id is refused if RequestsFull returns a refusal.
// Otherwise replay returns false.
func (s *State) replay(e Entry) ([]Result, bool) {
	old, seen := s.Requests.Get(e.Request)
	if !seen {
		if refusal := s.RequestsFull(e.Actor); refusal != nil {
			return refuseAll(e.Groups, refusal), true
		}
		return nil, false
	}
	if refusal := old.Conflict(e.Actor, e.Body); refusal != nil {
		return refuseAll(e.Groups, refusal), true
	}
	results := refuseAll(e.Groups, old.FirstRefusal())
	for i := range results {
		results[i].Index, results[i].Replay = old.Index, true
	}
	return results, true
}

// RequestsFull returns a refusal for a request with a new id if the actor, or all actors together, have reached their
// limit and no stored request is old enough to be forgotten. It returns nil for an actor with fewer than
// minRequestsOfActor requests. Code: busy.
func (s *State) RequestsFull(actor model.Actor) *model.Error {
	own, _ := s.requestsOf.Get(actor)
	switch {
	case own < minRequestsOfActor || s.oldRequest() != nil:
		return nil
	case own >= maxRequestsOfActor:
		return model.Refuse(model.CodeBusy, "%s made %d requests in the last %s", actor, own, requestMinimum).
			WithHint("try again later")
	case s.Requests.Len() >= maxRequests:
		return model.Refuse(model.CodeBusy, "%d requests were made in the last %s", maxRequests, requestMinimum).
			WithHint("try again later")
	}
	return nil
}

// RequestsBeyondShare returns a refusal if RequestsFull does, or if the state keeps so many requests of one actor that
// no room would be left for another actor with as many. The share of an actor is the room divided by the number of
// actors with at least minRequestsOfActor requests, plus one. The leader asks before it proposes an entry. Apply does
// not, so that it treats old entries as before. Code: busy.
func (s *State) RequestsBeyondShare(actor model.Actor) *model.Error {
	own, _ := s.requestsOf.Get(actor)
	if own < minRequestsOfActor || s.Requests.Len() < maxRequests/2 || s.oldRequest() != nil {
		return nil
	}
	many := 0
	for _, n := range s.requestsOf.All() {
		if n >= minRequestsOfActor {
			many++
		}
	}
	if share := maxRequests / (many + 1); own >= share {
		return model.Refuse(model.CodeBusy, "%s made %d requests in the last %s, its share is %d", actor, own, requestMinimum,
			share).WithHint("send fewer writes, or wait until its requests are %s old", requestMinimum)
	}
	return s.RequestsFull(actor)
}

// remember stores the outcome of a request, which is the first refusal among its results, if there is one. If many
// requests are stored, it removes old ones.
func (s *State) remember(e Entry, results []Result) {
	r := &Request{ID: e.Request, Body: e.Body, Index: s.Index, At: s.Now, Actor: e.Actor}
	for _, result := range results {
		if result.Refusal != nil {
			r.Refusal = s.kept(result.Refusal, e.Actor)
			break
		}
	}
	s.putRequest(r)
	for s.Requests.Len() > maxRequestsOfActor {
		old := s.oldRequest()
		if old == nil {
			break
		}
		s.delRequest(old)
	}
}

// kept returns a refusal in the form that a request's row stores. If the actor has many rows, it returns only the code.
// So 50,000 rows take 17 MB in each server instead of 200 MB.
func (s *State) kept(refusal *model.Error, actor model.Actor) *model.Error {
	if own, _ := s.requestsOf.Get(actor); own >= minRequestsOfActor {
		return &model.Error{Code: refusal.Code}
	}
	short := *refusal
	// Cloned, because a substring keeps the whole string in memory.
	short.Message, short.Hint = strings.Clone(model.ClipText(refusal.Message, maxRefusal)),
		strings.Clone(model.ClipText(refusal.Hint, maxRefusal))
	return &short
}

// oldRequest returns the oldest request if it is old enough to be forgotten, or nil.
func (s *State) oldRequest() *Request {
	_, id, ok := s.requestLog.Min()
	if !ok {
		return nil
	}
	if r, _ := s.Requests.Get(id); r.At.Add(requestMinimum) <= s.Now {
		return r
	}
	return nil
}
