package invariant

import (
	"errors"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Step is one entry of a log, with the states around it.
type Step struct {
	Before, After *fsm.State
	Index, Term   uint64
	Entry         fsm.Entry
	Results       []fsm.Result // of its groups
}

// Judge judges every entry of one history, in order. It reads only rows, and computes itself the sums that the product
// keeps, so that an error must be in both to go unnoticed. It is not safe for concurrent use.
type Judge struct {
	windows map[string]*window // S3: by budget or actor
	rails   []unorderedStops   // S7
	retried map[model.GroupID][]model.Time
	ended   map[model.InstanceID]uint64 // S9: the index at which each instance ended
	gone    map[model.InstanceID]bool   // S9: ended instances whose row is gone too
	ids     map[model.RequestID]uint64  // S4: index of the entry that carried out each request
}

// New returns a judge for a history that has not begun yet, or that continues from a restored state.
func New() *Judge {
	return &Judge{
		windows: map[string]*window{}, retried: map[model.GroupID][]model.Time{}, ended: map[model.InstanceID]uint64{},
		gone: map[model.InstanceID]bool{}, ids: map[model.RequestID]uint64{},
	}
}

// Step returns what is wrong with the next entry: first what this package finds, then what fsm.Check and fsm.CheckStep
// find. It reads every row.
func (j *Judge) Step(s *Step) fsm.Findings {
	found := j.rows(s)
	checked, _ := errors.AsType[fsm.Findings](fsm.Check(*s.After))
	found = append(found, checked...)
	if s.Before.Index > 0 {
		checked, _ = errors.AsType[fsm.Findings](fsm.CheckStep(*s.Before, *s.After))
		found = append(found, checked...)
	}
	return found
}

// rows judges an entry without the product's own checks.
func (j *Judge) rows(s *Step) (found fsm.Findings) {
	for _, one := range [...]func(*fsm.Findings, *Step){
		j.rooms, j.holders, j.budgets, j.rates, j.once, j.reasons, j.surges, j.waves, j.unordered, j.deleted, j.terms,
		j.preemptions, j.holds, j.unknownHoldings,
	} {
		one(&found, s)
	}
	return found
}

// taken calls visit for the commands of the groups that the entry carried out, group by group.
func (s *Step) taken(visit func(group []fsm.Command, command fsm.Command)) {
	for i, group := range s.Entry.Groups {
		if s.Results[i].Refusal != nil || s.Results[i].Replay {
			continue
		}
		for _, command := range group {
			visit(group, command)
		}
	}
}

// began calls visit for each instance whose stop began with this entry, with its rows before and after.
func (s *Step) began(visit func(was, now *fsm.Instance)) {
	for id, now := range s.After.Instances.All() {
		was, ok := s.Before.Instances.Get(id)
		if ok && was != now && was.Desired == model.DesiredRunning && now.Desired != model.DesiredRunning {
			visit(was, now)
		}
	}
}

// placed calls visit for each new instance.
func (s *Step) placed(visit func(*fsm.Instance)) {
	if s.Before.Instances.Same(s.After.Instances) {
		return
	}
	for id, now := range s.After.Instances.All() {
		if !s.Before.Instances.Has(id) {
			visit(now)
		}
	}
}

// Runs reports whether an instance has a running program, according to its agent.
func Runs(i *fsm.Instance) bool {
	switch i.Status.Observed {
	case model.ObservedBooting, model.ObservedReady, model.ObservedUnready:
		return true
	}
	return false
}

// ran reports whether a stop hit a running program. It did not if the same entry first declared its node offline.
func ran(was, now *fsm.Instance) bool {
	return Runs(was) && now.Status.Observed != model.ObservedLost
}

// Bypassed reports whether a stop was ordered to skip budgets, which its row records.
func Bypassed(i *fsm.Instance) bool {
	return strings.HasPrefix(i.Marks.StopReason, "budget bypassed")
}
