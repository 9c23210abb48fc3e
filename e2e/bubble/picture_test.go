package bubble

import (
	"fmt"
	"strings"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// picture describes the world for the message of a failed test.
func (w *world) picture() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %s\n", time.Now().Format("04:05.000"))
	for _, s := range w.servers {
		if !s.running() {
			fmt.Fprintf(&b, "%s is down\n", s.name)
			continue
		}
		st := s.cluster.Status()
		fmt.Fprintf(&b, "%s leads %v, term %d, last %d, applied %d, state %d, now %d\n", s.name, st.Leads, st.Term,
			st.LastIndex, st.AppliedIndex, st.StateIndex, s.cluster.Now())
		s.mu.Lock()
		for _, r := range s.reports[max(0, len(s.reports)-5):] {
			fmt.Fprintf(&b, "  loop: %v %v\n", r.Err, r.Refused)
		}
		s.mu.Unlock()
	}
	st := w.state()
	fmt.Fprintf(&b, "hold %+v\n", st.Hold)
	if leader := w.leads(); leader != nil {
		live := leader.cluster.Live()
		for id, n := range st.Nodes.All() {
			fmt.Fprintf(&b, "node %s %s: %s, %s, placed %+v, return %+v, live %+v\n", n.Name, id, n.Intent, n.Health,
				n.Placed, n.Return, live[id])
		}
	}
	for id, g := range st.Groups.All() {
		fmt.Fprintf(&b, "group %s: count %d ready %d running %d alive %d budget %+v\n", id, g.Count, g.Ready,
			g.Running, g.Alive, g.Budget)
		for i := range st.InstancesOf(id) {
			fmt.Fprintf(&b, "  %s slot %d on %s: %s %s %s, cause %s, replaces %q by %q, evict %+v\n",
				i.ID, i.Slot, nodeName(st, i.Node), i.Desired, i.Status.Observed, i.Status.Reason, i.Cause, i.Links.Replaces,
				i.Links.ReplacedBy, i.Eviction)
		}
	}
	for id, d := range st.Drains.All() {
		fmt.Fprintf(&b, "drain %s: %+v\n", id, d.Nodes)
	}
	b.WriteString(w.history.tail())
	return b.String()
}

// tail describes the last 30 entries.
func (h *history) tail() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, e := range h.entries[max(0, len(h.entries)-30):] {
		fmt.Fprintf(&b, "entry %d term %d at %d: %s%s\n", e.index, e.term, e.At, kinds(e.Entry), refusals(e.results))
	}
	return b.String()
}

func refusals(results []fsm.Result) string {
	text := ""
	for _, r := range results {
		if r.Refusal != nil {
			text += " refused: " + r.Refusal.Error()
		}
	}
	return text
}

func nodeName(s fsm.State, id model.NodeID) string {
	if n, ok := s.Nodes.Get(id); ok {
		return n.Name
	}
	return string(id)
}
