package fsm

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
)

// TestDraftIsApply checks that commands that a draft accepts are also accepted in an entry of the log, and lead to the
// same state.
func TestDraftIsApply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newRandomLog(t)
		for _, seed := range seeds(40).Draw(t, "steps") {
			h.step(seed, map[string]int{})
		}
		base := h.first
		frozen := Digest(base)
		now := base.Now + 100
		draft := base.NewDraft(now)
		e := Entry{Format: model.CurrentFormat, At: now, Wall: base.WallAt(now), Actor: model.ActorLeader}
		for _, seed := range seeds(10).Draw(t, "tries") {
			group := newWorld(seed, draft.State(), &h.seq).anyGroup()
			if draft.Try(group...) == nil {
				e.Groups = append(e.Groups, group)
			}
		}
		after, results := base.Apply(base.Index+1, base.LogTerm, e)
		if i := slices.IndexFunc(results, func(r Result) bool { return r.Refusal != nil }); i >= 0 {
			t.Fatalf("the draft accepted %s and the log refused it: %v", KindName(e.Groups[i][0].Kind()), results[i].Refusal)
		}
		planned := *draft.State()
		if diff := cmp.Diff(withoutEvents(after), withoutEvents(planned)); diff != "" {
			t.Fatalf("the draft came to another state than the log:\n%s", diff)
		}
		if Digest(base) != frozen {
			t.Fatal("the draft changed the state that it was made of")
		}
	})
}

// TestRefusedGroupLeavesNoTrace checks that a refused group of commands is undone as a whole, and that later groups
// have the same effect as if the refused group did not exist.
func TestRefusedGroupLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newRandomLog(t)
		for _, seed := range seeds(40).Draw(t, "steps") {
			h.step(seed, map[string]int{})
		}
		base := h.first
		impossible := &InstanceRestart{ID: "there is none"}
		with := Entry{Format: model.CurrentFormat, At: base.Now + 100, Actor: "cli:test"}
		without := with
		draft := base.NewDraft(with.At)
		for _, seed := range seeds(10).Draw(t, "groups") {
			w := newWorld(seed, draft.State(), &h.seq)
			group := append(append(w.anyGroup(), w.anyGroup()...), impossible)
			with.Groups = append(with.Groups, group)
			before := dump(*draft.State())
			if draft.Try(group...) == nil {
				t.Fatal("a group with an impossible command was accepted")
			}
			if diff := cmp.Diff(before, dump(*draft.State())); diff != "" {
				t.Fatalf("a refused group left something behind:\n%s", diff)
			}
			good := newWorld(seed+1, draft.State(), &h.seq).anyGroup()
			if draft.Try(good...) == nil {
				with.Groups = append(with.Groups, good)
				without.Groups = append(without.Groups, good)
			}
		}
		a, _ := base.Apply(base.Index+1, base.LogTerm, with)
		b, _ := base.Apply(base.Index+1, base.LogTerm, without)
		if diff := cmp.Diff(dump(b), dump(a)); diff != "" {
			t.Fatalf("refused groups changed what came of the others:\n%s", diff)
		}
	})
}

// withoutEvents returns a dump of s without its events. The events may differ, because an entry drops old events and a
// draft keeps them.
func withoutEvents(s State) map[string]any {
	d := dump(s)
	delete(d, "events")
	return d
}
