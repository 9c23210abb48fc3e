package fsm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outspan/outspan/model"
)

// Apply returns the state after an entry, and the outcome of each of the entry's groups. s itself does not change. An
// invalid command is refused. Apply panics on an entry of a newer format and on an index that does not grow, because a
// healthy log contains neither. Callers must not recover from the panic.
func (s State) Apply(index, logTerm uint64, e Entry) (State, []Result) {
	f := s.fork()
	results := f.applyNext(index, logTerm, e)
	return f.publish(), results
}

// applyNext applies one more entry to a fork. Until the fork is published, it collects the touched topics of all its
// entries.
func (s *State) applyNext(index, logTerm uint64, e Entry) []Result {
	if e.Format > model.CurrentFormat {
		panic(fmt.Sprintf("fsm: entry %d needs format %d, this program reads formats up to %d", index,
			e.Format, model.CurrentFormat))
	}
	if index <= s.Index {
		panic(fmt.Sprintf("fsm: entry %d applied on a state at %d", index, s.Index))
	}
	s.begin(index, logTerm, e)
	before := s.Events.Bytes()
	results := s.applyEntry(logTerm, e)
	for i := range results {
		if !results[i].Replay {
			results[i].Index = index
		}
	}
	s.emitLeftOut()
	s.dropOldEvents(s.Events.Bytes() - before)
	return results
}

func (s *State) begin(index, logTerm uint64, e Entry) {
	s.tellTime(e, logTerm != s.LogTerm)
	s.Index, s.LogTerm = index, logTerm
	s.entry = entryContext{actor: e.Actor, request: e.Request, touched: s.entry.touched, names: s.entry.names,
		written: s.entry.written}
	s.entry.touched.objects = slices.Grow(s.entry.touched.objects, touchedAGroup*len(e.Groups))
}

func (s *State) applyEntry(logTerm uint64, e Entry) []Result {
	if e.Term != 0 && e.Term != logTerm {
		return refuseAll(e.Groups,
			model.Refuse(model.CodeStaleTerm, "decided in term %d, logged in term %d", e.Term, logTerm))
	}
	if refusal := s.judgedBefore(e); refusal != nil {
		return refuseAll(e.Groups, refusal)
	}
	if e.Request != "" {
		if results, done := s.replay(e); done {
			return results
		}
	}
	results := make([]Result, len(e.Groups))
	for i, group := range e.Groups {
		results[i].Refusal = s.applyGroup(group)
	}
	if e.Request != "" {
		s.remember(e, results)
	}
	return results
}

func refuseAll(groups [][]Command, refusal *model.Error) []Result {
	results := make([]Result, len(groups))
	for i := range results {
		results[i].Refusal = refusal
	}
	return results
}

// applyGroup applies all commands of a group, or refuses the group and changes nothing. A group of one command needs no
// undo log, because a command checks everything before it changes a row.
func (s *State) applyGroup(group []Command) *model.Error {
	s.entry.group, s.entry.paid = group, nil
	if len(group) == 1 {
		refusal := asRefusal(group[0].apply(s))
		s.emitLater()
		return refusal
	}
	before := *s
	s.undo.begin()
	for _, c := range group {
		if refusal := asRefusal(c.apply(s)); refusal != nil {
			s.undo.rollback()
			*s = before
			return refusal
		}
	}
	s.undo.keep()
	s.emitLater()
	return nil
}

func asRefusal(err error) *model.Error {
	if err == nil {
		return nil
	}
	var refusal *model.Error
	if errors.As(err, &refusal) {
		return clipped(refusal)
	}
	panic(fmt.Sprintf("fsm: a command failed without a code: %v", err))
}

// publish returns the fork as a State. From now on the fork must not be written.
func (s *State) publish() State {
	s.entry = entryContext{}
	return *s
}

// Draft is a private fork on which commands are tried with the code that applies the log. A Draft is not safe for
// concurrent use.
type Draft struct{ s *State }

// NewDraft returns a draft of s at cluster time now. Rows that the draft writes carry the index of the next entry.
func (s State) NewDraft(now model.Time) *Draft {
	f := s.fork()
	f.begin(s.Index+1, s.LogTerm, Entry{At: now, Wall: s.WallAt(now), Actor: model.ActorLeader})
	f.entry.draft, f.entry.names, f.entry.written = true, true, nil
	return &Draft{s: f}
}

// Try applies all the commands, or returns a refusal and changes nothing. The log would give the same refusal on this
// state.
func (d *Draft) Try(group ...Command) *model.Error { return d.s.applyGroup(group) }

// Written returns a row of each instance that the accepted commands have written so far. An instance may be listed more
// than once.
func (d *Draft) Written() []*Instance { return d.s.entry.written }

// State returns the draft's state, which the next Try changes. A caller that needs the state of this moment later must
// make another draft of it.
func (d *Draft) State() *State { return d.s }
