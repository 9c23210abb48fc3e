package sim

import (
	"maps"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// requestBook records the requests and node labels in the log. The judge compares them with the answers that clients
// got, and with the states.
type requestBook struct {
	firstEntry  map[model.RequestID]uint64         // index of the request's first entry
	refused     map[model.RequestID]bool           // whether the first entry refused a group of the request
	labels      map[model.NodeID]map[string]string // labels that clients wrote
	agentLabels map[model.NodeID]map[string]string // labels that agents sent when they registered
}

func newRequestBook() requestBook {
	return requestBook{
		firstEntry: map[model.RequestID]uint64{}, refused: map[model.RequestID]bool{},
		labels: map[model.NodeID]map[string]string{}, agentLabels: map[model.NodeID]map[string]string{},
	}
}

// checkEntry checks S4 for one entry. A request must take effect once, however often it is in the log. A node must have
// the labels that its agent sent when it registered, overridden by those that clients wrote.
func (j *judge) checkEntry(c *committed) {
	if id := c.entry.Request; id != "" {
		j.effect(c, id)
	}
	written, said := j.requests.labels, j.requests.agentLabels
	c.taken(func(_ []fsm.Command, command fsm.Command) {
		switch one := command.(type) {
		case *fsm.NodeLabel:
			if written[one.ID] == nil {
				written[one.ID] = map[string]string{}
			}
			maps.Copy(written[one.ID], one.Labels)
		case *fsm.NodeRegister:
			if one.Shape.Labels != nil {
				said[one.ID] = one.Shape.Labels
			}
		case *fsm.NodeForget:
			delete(written, one.ID)
			delete(said, one.ID)
		}
	})
	for id, n := range c.after.Nodes.All() {
		want := maps.Clone(said[id])
		if want == nil {
			want = map[string]string{}
		}
		maps.Copy(want, written[id])
		if !maps.Equal(n.Shape.Labels, want) {
			j.fail(fsm.S4, "node %s has the labels %v, what was committed gives %v", id, n.Shape.Labels, want)
			return
		}
	}
}

func (j *judge) effect(c *committed, id model.RequestID) {
	replay := c.results[0].Replay
	first, seen := j.requests.firstEntry[id]
	switch {
	case replay && !seen:
		j.fail(fsm.S4, "entry %d: request %s is answered from memory and never took effect", c.index, id)
	case !replay && seen:
		j.fail(fsm.S4, "entry %d: request %s takes effect again, it did at index %d", c.index, id, first)
	case replay:
		j.counts[CountReplays]++
		if (c.results[0].Refusal != nil) != j.requests.refused[id] {
			j.fail(fsm.S4, "entry %d: request %s had refused %v, now %v", c.index, id,
				j.requests.refused[id], c.results[0].Refusal)
		}
	default:
		j.requests.firstEntry[id] = c.index
		for _, r := range c.results {
			j.requests.refused[id] = j.requests.refused[id] || r.Refusal != nil
		}
	}
}

// checkAnswer checks S4 for one answer: the log must have the request, with the index and the outcome that the client
// got.
func (j *judge) checkAnswer(r *request) {
	index, ok := j.requests.firstEntry[r.id]
	switch {
	case !ok:
		j.fail(fsm.S4, "request %s (%s) was answered and is not in the log", r.id, r.name)
	case index != r.index:
		j.fail(fsm.S4, "request %s (%s) was answered for index %d and took effect at %d", r.id, r.name, r.index, index)
	case (r.refused != nil) != j.requests.refused[r.id]:
		j.fail(fsm.S4, "request %s (%s) was answered %v, the log says refused %v", r.id, r.name,
			r.refused, j.requests.refused[r.id])
	}
}

// checkStoredAnswers checks S4 at the end of a history: the state must still have every answer that a client got.
func (j *judge) checkStoredAnswers() {
	s := &j.log.first
	for _, r := range j.clients.all {
		row, ok := s.Requests.Get(r.id)
		switch {
		case !r.answered:
		case !ok:
			j.fail(fsm.S4, "request %s (%s) was answered and the state does not know it", r.id, r.name)
		case row.Index != r.index || (row.Refusal != nil) != (r.refused != nil):
			j.fail(fsm.S4, "request %s (%s) was answered for index %d, refused %v; the state says index %d, %v", r.id, r.name,
				r.index, r.refused, row.Index, row.Refusal)
		}
		if index := j.requests.firstEntry[r.id]; ok && index != row.Index {
			j.fail(fsm.S4, "request %s took effect at index %d, the state says %d", r.id, index, row.Index)
		}
	}
}
