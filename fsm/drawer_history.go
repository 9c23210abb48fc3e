package fsm

import "github.com/outspan/outspan/model"

// history is the drawer of what happened: events, and the requests that were answered with their indexes. It only
// stores rows. Its methods put and del of each table are its only writers.
type history struct {
	Events   EventTable
	Requests Table[model.RequestID, *Request]

	requestLog Table[uint64, model.RequestID] // by index of the entry
	requestsOf Table[model.Actor, int]
}

func (s *history) fork(undo *undoLog) {
	s.Events, s.Requests = s.Events.fork(undo), s.Requests.fork(undo)
	s.requestLog, s.requestsOf = s.requestLog.fork(undo), s.requestsOf.fork(undo)
}
