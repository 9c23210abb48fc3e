package fsm

import "github.com/outspan/outspan/model"

// history is the drawer of the past: events, and the answered requests with their indexes. It only stores rows. Each
// table is written only by its put and del methods.
type history struct {
	Events   EventTable
	Requests Table[model.RequestID, *Request]

	requestLog Table[uint64, model.RequestID] // ids of requests by the index of their entry
	requestsOf Table[model.Actor, int]        // number of requests
}

func (s *history) fork(undo *undoLog) {
	s.Events, s.Requests = s.Events.fork(undo), s.Requests.fork(undo)
	s.requestLog, s.requestsOf = s.requestLog.fork(undo), s.requestsOf.fork(undo)
}

func (s *history) putEvent(e *Event) { s.Events.put(e.Key, e) }

func (s *history) delEvent(key EventKey) { s.Events.del(key) }

func (s *history) putRequest(r *Request) {
	s.Requests.put(r.ID, r)
	s.indexRequest(r)
}

func (s *history) indexRequest(r *Request) {
	s.requestLog.put(r.Index, r.ID)
	s.countRequest(r.Actor, +1)
}

func (s *history) delRequest(r *Request) {
	s.Requests.del(r.ID)
	s.requestLog.del(r.Index)
	s.countRequest(r.Actor, -1)
}

func (s *history) countRequest(actor model.Actor, by int) {
	n, _ := s.requestsOf.Get(actor)
	if n += by; n == 0 {
		s.requestsOf.del(actor)
		return
	}
	s.requestsOf.put(actor, n)
}

// index builds the indexes after the rows were read from a snapshot.
func (s *history) index() {
	for _, r := range s.Requests.All() {
		s.indexRequest(r)
	}
}
