package sim

import (
	"github.com/outspan/outspan/model"
)

// event is something that happens at a certain time. Events at the same time happen in the order in which they were
// added.
type event struct {
	at  model.Time
	seq uint64
	do  func()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

type queue struct {
	heap []event
	seq  uint64
}

func (q *queue) push(at model.Time, do func()) {
	q.seq++
	q.heap = append(q.heap, event{at, q.seq, do})
	for i := len(q.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.heap[i].before(&q.heap[up]) {
			return
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
}

// pop takes the earliest event out of the queue. It returns false if the queue is empty.
func (q *queue) pop() (event, bool) {
	if len(q.heap) == 0 {
		return event{}, false
	}
	top, last := q.heap[0], len(q.heap)-1
	q.heap[0] = q.heap[last]
	q.heap[last] = event{} // releases what the event's function refers to
	q.heap = q.heap[:last]
	for i := 0; ; {
		next := 2*i + 1
		if next >= last {
			break
		}
		if next+1 < last && q.heap[next+1].before(&q.heap[next]) {
			next++
		}
		if !q.heap[next].before(&q.heap[i]) {
			break
		}
		q.heap[i], q.heap[next] = q.heap[next], q.heap[i]
		i = next
	}
	return top, true
}
