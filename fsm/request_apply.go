package fsm

const (
	keptRequests   = 100_000
	requestMinimum = 10 * Minute // no request is forgotten before
)

// replay answers a request that was seen before: the same body gets the stored outcome, another one is a conflict.
func (s *State) replay(e Entry) ([]Result, bool) {
	old, seen := s.Requests.Get(e.Request)
	if !seen {
		if refusal := s.RequestsFull(); refusal != nil {
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

// RequestsFull refuses one more request with an id while so many were made lately that none of them may be forgotten yet. Code: busy.
func (s *State) RequestsFull() *Error {
	_, oldest, ok := s.requestLog.Min()
	if !ok || s.Requests.Len() < keptRequests {
		return nil
	}
	if r, _ := s.Requests.Get(oldest); r.At.Add(requestMinimum) <= s.Now {
		return nil
	}
	return Refuse(CodeBusy, "%d requests were made in the last %s", keptRequests, requestMinimum).WithHint("try again later")
}

// remember stores the outcome of a request: its first refusal, or none.
func (s *State) remember(e Entry, results []Result) {
	r := &Request{ID: e.Request, Body: e.Body, Index: s.Index, At: s.Now}
	for _, result := range results {
		if result.Refusal != nil {
			r.Refusal = result.Refusal
			break
		}
	}
	s.Requests.put(r.ID, r)
	s.requestLog.put(s.Index, r.ID)
	for s.Requests.Len() > keptRequests {
		index, oldest, _ := s.requestLog.Min()
		s.Requests.del(oldest)
		s.requestLog.del(index)
	}
}
