package invariant

import (
	"errors"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Step is one log entry with the states before and after it.
type Step struct {
	Before, After *fsm.State
	Index, Term   uint64
	Entry         fsm.Entry
	Results       []fsm.Result // results of the entry's groups of commands
}

// Judge checks the entries of one history, one by one in their order. It computes sums from the rows, although the
// state also keeps these sums. So an error goes unnoticed only if both computations make it. A Judge is not safe for
// concurrent use.
type Judge struct {
	windows map[string]*window             // S3: by budget or actor
	rails   []unorderedStops               // S7: one element for each entry with unordered stops
	retried map[model.GroupID][]model.Time // S7: when the failed instances of each group were replaced
	ended   map[model.InstanceID]uint64    // S9: the index at which each instance became terminal or was deleted
	gone    map[model.InstanceID]bool      // S9: instances whose row has been deleted
	ids     map[model.RequestID]uint64     // S4: the index of the entry that carried out each request
}

// New returns a judge for a new history, or for a history that continues from a restored state.
func New() *Judge {
	return &Judge{
		windows: map[string]*window{}, retried: map[model.GroupID][]model.Time{}, ended: map[model.InstanceID]uint64{},
		gone: map[model.InstanceID]bool{}, ids: map[model.RequestID]uint64{},
	}
}

// fewPast is how many events and stored requests the judge checks after each entry. If there are more, it checks them
// only after each entry whose index is a multiple of fewPast. Most of them never change, and to check them more often
// would take most of the time for a long log.
const fewPast = 1000

// Step checks the next entry. It returns the findings of this package, followed by those of fsm.Check and, unless the
// state before the entry is empty, of fsm.CheckStep. If the state has more than fewPast events and stored requests,
// Step calls fsm.CheckPresent in place of fsm.Check for most entries.
func (j *Judge) Step(s *Step) fsm.Findings {
	found := j.rows(s)
	check := fsm.CheckPresent
	if s.After.Events.Len()+s.After.Requests.Len() <= fewPast || s.Index%fewPast == 0 {
		check = fsm.Check
	}
	checked, _ := errors.AsType[fsm.Findings](check(*s.After))
	found = append(found, checked...)
	if s.Before.Index > 0 {
		checked, _ = errors.AsType[fsm.Findings](fsm.CheckStep(*s.Before, *s.After))
		found = append(found, checked...)
	}
	return found
}

// rows checks an entry without the checks of fsm.
func (j *Judge) rows(s *Step) (found fsm.Findings) {
	for _, one := range [...]func(*fsm.Findings, *Step){
		j.rooms, j.holders, j.budgets, j.rates, j.once, j.reasons, j.surges, j.waves, j.unordered, j.deleted, j.terms,
		j.preemptions, j.holds, j.unknownHoldings, j.admissions,
	} {
		one(&found, s)
	}
	return found
}

// taken calls visit for each command that the entry carried out, with the command's group. It skips groups that were
// refused or whose stored result was repeated.
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
	for id, now := range s.After.Instances.All() {
		if !s.Before.Instances.Has(id) {
			visit(now)
		}
	}
}

// Runs reports whether an instance's program runs and the instance is not draining, according to the agent's reports.
func Runs(i *fsm.Instance) bool {
	switch i.Status.Observed {
	case model.ObservedBooting, model.ObservedReady, model.ObservedUnready:
		return true
	}
	return false
}

// ran reports whether the program of an instance was running when the instance's stop began. It returns false if the
// same entry also declared the instance lost.
func ran(was, now *fsm.Instance) bool {
	return Runs(was) && now.Status.Observed != model.ObservedLost
}

// Bypassed reports whether an operator let an instance's stop bypass budgets, according to the reason in the instance's
// row.
func Bypassed(i *fsm.Instance) bool {
	return strings.HasPrefix(i.Marks.StopReason, "budget bypassed")
}
