package sim

import (
	"fmt"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/testbed/invariant"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// committed is an entry of the log with its results, and the state before and after it.
type committed struct {
	index, term   uint64
	entry         fsm.Entry
	results       []fsm.Result
	basis         *fsm.State // state on which the leader decided; nil if the entry is stale or not a leader's decision
	before, after *fsm.State
}

// taken calls visit for each command that the entry carried out, with the command's group. Refused and replayed groups
// are skipped.
func (c *committed) taken(visit func(group []fsm.Command, command fsm.Command)) {
	for i, group := range c.entry.Groups {
		if c.results[i].Refusal != nil || c.results[i].Replay {
			continue
		}
		for _, command := range group {
			visit(group, command)
		}
	}
}

// judge checks every entry, every decision and every start of a program against the rules. Package
// internal/testbed/invariant checks the rules that concern only rows.
type judge struct {
	*world
	rows     *invariant.Judge
	requests requestBook
	rates    rateBook
	filled   map[string][]model.Time     // times at which each slot was recently filled, for S7
	sick     map[model.NodeID]model.Time // cluster time since which a node has had troubles
	sample   uint64                      // number of decisions judged so far
}

func newJudge(w *world) *judge {
	return &judge{world: w, rows: invariant.New(), requests: newRequestBook(), rates: newRateBook(),
		filled: map[string][]model.Time{}, sick: map[model.NodeID]model.Time{}}
}

func (j *judge) entry(c *committed) {
	j.describe(c)
	step := invariant.Step{Before: c.before, After: c.after, Index: c.index, Term: c.term,
		Entry: c.entry, Results: c.results}
	if found := j.rows.Step(&step); len(found) > 0 {
		j.fail(found.First(), "entry %d (%s): %v", c.index, kinds(c.entry), found)
		return
	}
	for _, rule := range [...]func(*committed){
		j.checkEntry, j.budgets, j.roles, j.storms, j.purged, j.preemptions, j.sickness, j.count,
	} {
		if rule(c); j.failure != nil {
			return
		}
	}
}

// describe adds an entry to the trace.
func (j *judge) describe(c *committed) {
	j.trace.note(j.now, 'c', c.index, c.term, c.entry.Term)
	if !j.trace.on() {
		return
	}
	j.trace.say("%d/%d %s%s", c.term, c.index, c.entry.Actor, requestText(c.entry))
	for i, group := range c.entry.Groups {
		text := ""
		for _, command := range group {
			text += " " + describeCommand(command)
		}
		if r := c.results[i]; r.Refusal != nil {
			text += fmt.Sprintf(" -> %s: %s", r.Refusal.Code, r.Refusal.Message)
		} else if r.Replay {
			text += fmt.Sprintf(" -> as at index %d", r.Index)
		}
		j.trace.say("   %s", text)
	}
}

func requestText(e fsm.Entry) string {
	if e.Request == "" {
		return ""
	}
	return " " + string(e.Request) + " (" + e.Body + ")"
}

// kinds describes an entry by its actor and the kinds of its commands.
func kinds(e fsm.Entry) string {
	text := string(e.Actor)
	for _, group := range e.Groups {
		for _, c := range group {
			text += " " + fsm.KindName(c.Kind())
		}
	}
	return text
}

// plan judges a decision. Its entries must have the leader's term, and must not declare a node offline that a majority
// of servers hears. For a decision that places instances, and for every 32nd decision, Decide must give the same plan
// again. For every 32nd decision, plan also checks S14.
func (j *judge) plan(in reconcile.Input, plan reconcile.Plan) {
	for _, e := range plan.Entries {
		if e.Term != in.Term {
			j.fail(fsm.S10, "a decision of term %d has an entry of term %d", in.Term, e.Term)
		}
		for _, group := range e.Groups {
			if health, ok := group[0].(*fsm.NodeHealth); ok && health.Health == model.HealthOffline {
				j.offline(health)
			}
		}
	}
	for _, r := range plan.Refused {
		j.trace.text(string(r.Code))
		j.trace.text(r.Subject)
	}
	j.sample++
	if j.sample%32 == 0 || places(plan) {
		if again := reconcile.Decide(in); !cmp.Equal(plan, again) {
			j.fail(fsm.S5, "the same state gives another decision:\n%s", cmp.Diff(plan, again))
		}
	}
	if j.sample%32 == 0 {
		j.explained(in, plan)
	}
}

func places(plan reconcile.Plan) bool {
	for _, e := range plan.Entries {
		for _, group := range e.Groups {
			for _, c := range group {
				if _, ok := c.(*fsm.InstancePlace); ok {
					return true
				}
			}
		}
	}
	return false
}

// explained checks S14: if a group lacks instances and nothing is planned, Explain must give a reason.
func (j *judge) explained(in reconcile.Input, plan reconcile.Plan) {
	if len(plan.Entries) > 0 {
		return
	}
	e := reconcile.Explain(in)
	for id, g := range in.State.Groups.All() {
		if g.Role != model.RoleSystem && g.Running < g.Count && e.Pending(id) == nil && !waits(in.State, e, id) {
			j.fail(fsm.S14, "%s has %d of %d, nothing is planned, and there is no reason", id, g.Running, g.Count)
			return
		}
	}
}

// waits reports whether the explanation gives a reason why some instance of the group waits.
func waits(s fsm.State, e *reconcile.Explanation, id model.GroupID) bool {
	for i := range s.InstancesOf(id) {
		if !i.Terminal() && len(e.Waiting(i.ID)) > 0 {
			return true
		}
	}
	return false
}
