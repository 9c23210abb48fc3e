package fsm

import "strings"

const (
	keptRequests   = 100_000
	keptOfActor    = 1_000       // an actor may always have so many, however many others have
	keptRefusal    = 160         // bytes of a refusal's message, and of its hint, beyond those
	requestMinimum = 10 * Minute // no request is forgotten before
)

// replay answers a request that was seen before: the same body gets the stored outcome, another one is a conflict.
func (s *State) replay(e Entry) ([]Result, bool) {
	old, seen := s.Requests.Get(e.Request)
	if !seen {
		if refusal := s.RequestsFull(e.Actor); refusal != nil {
			return refuseAll(e.Groups, refusal), true
		}
		return nil, false
	}
	if old.Body != e.Body {
		return refuseAll(e.Groups, Refuse(CodeRequestConflict, "request id %s was used at index %d with another body", e.Request, old.Index).WithHint("choose a new request id")), true
	}
	results := refuseAll(e.Groups, old.Refusal)
	for i := range results {
		results[i].Index, results[i].Replay = old.Index, true
	}
	return results, true
}

// RequestsFull refuses one more request with an id while so many were made lately that none of them may be forgotten yet. An actor
// that made few is not refused for what others made. Code: busy.
func (s *State) RequestsFull(actor Actor) *Error {
	if s.Requests.Len() < keptRequests || s.oldRequest() != nil {
		return nil
	}
	if own, _ := s.requestsOf.Get(actor); own < keptOfActor {
		return nil
	}
	return Refuse(CodeBusy, "%d requests were made in the last %s", keptRequests, requestMinimum).WithHint("try again later")
}

// remember stores the outcome of a request: its first refusal, or none.
func (s *State) remember(e Entry, results []Result) {
	r := &Request{ID: e.Request, Body: e.Body, Index: s.Index, At: s.Now, Actor: e.Actor}
	for _, result := range results {
		if result.Refusal != nil {
			r.Refusal = s.kept(result.Refusal, e.Actor)
			break
		}
	}
	s.Requests.put(r.ID, r)
	s.requestLog.put(s.Index, r.ID)
	s.countRequest(r, +1)
	for s.Requests.Len() > keptRequests {
		old := s.oldRequest()
		if old == nil {
			break
		}
		s.Requests.del(old.ID)
		s.requestLog.del(old.Index)
		s.countRequest(old, -1)
	}
}

// kept is a refusal as its row keeps it. Of an actor with many rows it has only the beginning of its texts: 100,000 of them take 50 MB in each server,
// and not 400.
func (s *State) kept(refusal *Error, actor Actor) *Error {
	room := maxRefusal
	if own, _ := s.requestsOf.Get(actor); own >= keptOfActor {
		room = keptRefusal
	}
	short := *refusal
	short.Message, short.Hint = strings.Clone(clipText(refusal.Message, room)), strings.Clone(clipText(refusal.Hint, room)) // a part of a text keeps all of it
	return &short
}

// oldRequest is the oldest request if it may be forgotten, or nil.
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

func (s *State) countRequest(r *Request, by int) {
	n, _ := s.requestsOf.Get(r.Actor)
	if n += by; n == 0 {
		s.requestsOf.del(r.Actor)
		return
	}
	s.requestsOf.put(r.Actor, n)
}
