package fsm

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
)

const randomSteps = 120

// TestRandomHistories applies random entries. After each entry, Check and CheckStep find no fault, the old state is
// unchanged, and refused groups of commands have left no trace. At the end, all replicas are equal, whether they
// applied encoded entries one by one or in batches, or started from a snapshot. Rarely, an older snapshot is restored.
func TestRandomHistories(t *testing.T) {
	accepted := map[string]int{} // number of histories with an accepted command, by kind of command
	histories := 0
	rapid.Check(t, func(t *rapid.T) {
		histories++
		h := newRandomLog(t)
		h.restores = true
		mine := map[string]int{}
		for _, seed := range seeds(randomSteps).Draw(t, "steps") {
			h.step(seed, mine)
		}
		h.agree()
		for _, name := range sortedKeys(mine) {
			accepted[name]++
		}
	})
	t.Logf("of %d histories this many got one accepted: %v", histories, accepted)
	for _, info := range kinds {
		if accepted[info.name] == 0 && histories >= 100 {
			t.Errorf("no random history had a %s that was accepted", info.name)
		}
	}
}

// seeds draws one seed for each step. The seed 0 means no step, so that rapid can shrink a failing history to few
// steps.
func seeds(steps int) *rapid.Generator[[]uint64] { return rapid.SliceOfN(rapid.Uint64(), steps, steps) }

// randomLog applies one random log to four replicas.
type randomLog struct {
	t       *rapid.T
	seq     int
	term    uint64
	records map[string]*stopRecord

	first  State      // applies entries without encoding them
	second *Machine   // applies encoded entries
	third  *Machine   // like second, but sometimes starts again from a snapshot of second
	fourth *Machine   // applies encoded entries in batches
	batch  []Logged   // entries that fourth has not applied yet
	wanted [][]Result // the results that fourth must return for batch

	restores bool // the history has people, rights, recoveries and restores; other properties end with a restore

	saved  *State        // the state of the last snapshot that was saved, or nil
	people []*personCert // certificates that were recorded
	tokens []*madeToken  // access tokens that were made
}

// madeToken is an access token.
type madeToken struct {
	id      model.TokenID
	ends    int64
	revoked bool // it was revoked since, or the state was recovered
}

// personCert is a certificate of a person.
type personCert struct {
	name   string
	number uint64
	void   bool // the name was revoked since, or the state was recovered
}

func newRandomLog(t *rapid.T) *randomLog {
	return &randomLog{t: t, term: 1, first: NewState(), second: NewMachine(), third: NewMachine(), fourth: NewMachine()}
}

func (h *randomLog) step(seed uint64, accepted map[string]int) {
	if seed == 0 {
		return
	}
	t := h.t
	before := h.first
	w := newWorld(seed, &before, &h.seq)
	if w.rarely(20) {
		h.term++
	}
	e := w.entry(h.term)
	draws := []func() []Command{w.newcomers}
	if h.restores {
		draws = append(draws, w.people, w.rights, w.founding, w.accessTokens, w.pulling)
	}
	for _, draw := range draws {
		if group := draw(); group != nil {
			e.Groups = append(e.Groups, group)
		}
	}
	if before.Index == 0 {
		e = w.beginning()
	}
	if w.rarely(25) {
		w.leaderBegins(&e, h.term)
	}
	index := before.Index + 1 + uint64(w.int(0, 2))
	frozen := Digest(before)
	after, results := before.Apply(index, h.term, e)
	if Digest(before) != frozen {
		t.Fatalf("%v changed the state that it was applied on", e.names())
	}
	if err := Check(after); err != nil {
		t.Fatalf("after %v:\n%v", e.names(), err)
	}
	if err := CheckStep(before, after); err != nil {
		t.Fatalf("after %v:\n%v", e.names(), err)
	}
	for i, r := range results {
		for _, c := range e.Groups[i] {
			if r.Refusal == nil && !r.Replay {
				accepted[KindName(c.Kind())]++
			}
		}
		if r.Refusal != nil && (r.Refusal.Code == "" || r.Refusal.Message == "") {
			t.Fatalf("%v: refused without saying why: %+v", e.names(), r.Refusal)
		}
	}
	h.budgetHolds(before, e, results)
	h.ledgersHold(before, after, e, results)
	h.lastCopyHolds(before, e, results)
	preemptionHolds(t, before, after, e, results)
	h.noTrace(before, after, index, e, results)
	h.replicate(index, e, results, w.rarely(15))
	if w.rarely(4) {
		h.catchUp()
	}
	h.first = after
	h.peopleHold(e, results)
	h.tokensHold(e, results)
	switch {
	case !h.restores:
	case w.rarely(15):
		h.saved = &after
	case h.saved != nil && w.rarely(60):
		h.restore()
	}
}

// peopleHold checks that a person's certificate is void if the name was revoked since, or if the state was recovered,
// and that no other certificate is void (S19).
func (h *randomLog) peopleHold(e Entry, results []Result) {
	for i, r := range results {
		if r.Refusal != nil || r.Replay {
			continue
		}
		for _, c := range e.Groups[i] {
			switch c := c.(type) {
			case *PersonAdmit:
				h.people = append(h.people, &personCert{name: c.Subject.Name, number: c.Number})
			case *PersonRevoke:
				h.voids(func(p *personCert) bool { return p.name == c.Subject.Name })
			case *RestoreMark:
				h.voids(func(*personCert) bool { return c.VoidPeople })
			}
		}
	}
	for _, p := range h.people {
		if void := h.first.PersonVoid(p.name, p.number); void != p.void {
			h.t.Fatalf("S19: after %v, certificate %d of %s is void: %v, want %v", e.names(), p.number, p.name, void, p.void)
		}
	}
}

// tokensHold checks that an access token counts until it ends or is revoked, or the state is recovered, and never again
// (S19).
func (h *randomLog) tokensHold(e Entry, results []Result) {
	for i, r := range results {
		if r.Refusal != nil || r.Replay {
			continue
		}
		for _, c := range e.Groups[i] {
			switch c := c.(type) {
			case *AccessTokenCreate:
				h.tokens = append(h.tokens, &madeToken{id: c.ID, ends: (h.first.Wall + int64(c.TTL)) * unixMs})
			case *AccessLogin:
				h.tokens = append(h.tokens, &madeToken{id: c.ID, ends: (h.first.Wall + int64(c.TTL)) * unixMs})
			case *AccessTokenRevoke:
				h.revoke(func(t *madeToken) bool { return t.id == c.ID })
			case *RestoreMark:
				h.revoke(func(*madeToken) bool { return c.Recovered && !c.Confirm })
			}
		}
	}
	for _, t := range h.tokens {
		now := h.first.Wall * unixMs
		row, ok := h.first.AccessTokens.Get(t.id)
		if counts := ok && row.CountsAt(now); counts != (!t.revoked && now < t.ends) {
			h.t.Fatalf("S19: after %v, access token %+v counts at %d: %v", e.names(), *t, now, counts)
		}
	}
}

func (h *randomLog) revoke(which func(*madeToken) bool) {
	for _, t := range h.tokens {
		t.revoked = t.revoked || which(t)
	}
}

func (h *randomLog) voids(which func(*personCert) bool) {
	for _, p := range h.people {
		p.void = p.void || which(p)
	}
}

// restore restores the saved snapshot on all replicas, as the leader does. Nothing of what was revoked, spent or
// dropped since may count again.
func (h *randomLog) restore() {
	t, live, next := h.t, h.first, h.saved.WithTrustOf(h.first)
	e := Entry{Format: next.Format, At: live.Now, Wall: live.Wall, Actor: model.ActorLeader,
		Groups: [][]Command{{&RestoreMark{}}}}
	for index := max(live.Index, next.Index) + 1; next.Incarnation <= live.Incarnation; index++ {
		var results []Result
		if next, results = next.Apply(index, h.term, e); results[0].Refusal != nil {
			t.Fatal(results[0].Refusal)
		}
	}
	if err := errors.Join(Check(next), CheckTrust(live, next)); err != nil {
		t.Fatalf("after a restore:\n%v", err)
	}
	h.catchUp()
	h.first, h.records = next, nil
	for _, m := range []*Machine{h.second, h.third, h.fourth} {
		if err := m.Restore(bytes.NewReader(snapshotOf(t, next))); err != nil {
			t.Fatal(err)
		}
	}
	h.peopleHold(Entry{}, nil)
	h.tokensHold(Entry{}, nil)
}

// budgetHolds checks an accepted stop without bypass that is the only command of its entry. If the group's budget
// limits the stop, enough instances must still be ready afterwards (S3). If the cause is a drain or a disabled node,
// the instance must not be one that has to stay, unless the drain is forced (S6).
func (h *randomLog) budgetHolds(before State, e Entry, results []Result) {
	if len(e.Groups) != 1 || len(e.Groups[0]) != 1 || results[0].Refusal != nil || results[0].Replay {
		return
	}
	c, ok := e.Groups[0][0].(*InstanceStop)
	if !ok || c.Bypass || c.Cause == model.CauseJobStopped {
		return
	}
	i, _ := before.Instances.Get(c.ID)
	g, ok := before.Groups.Get(i.Group)
	if !ok || !i.Ready() {
		return
	}
	if c.Cause != model.CauseNodeDisabled && !before.goesWithNode(i, c.Cause) && g.Ready-1 < g.Budget.MinReady {
		h.t.Fatalf("a stop for %s left %d ready of group %s, which must keep %d", c.Cause, g.Ready-1, g.ID, g.Budget.MinReady)
	}
	outside := c.Cause == model.CauseNodeDraining || c.Cause == model.CauseNodeDisabled
	d, _ := before.Drains.Get(model.DrainID(c.By))
	if outside && before.Movable(i) != nil && (d == nil || !d.Options.Force) {
		h.t.Fatalf("a stop for %s of an instance that must stay: %v", c.Cause, before.Movable(i))
	}
}

// noTrace applies the entry to the same state again, but without its refused groups. All other groups must be accepted,
// and the resulting state must be the same as with the refused groups.
func (h *randomLog) noTrace(before, after State, index uint64, e Entry, results []Result) {
	if e.Request != "" || e.Term != 0 && e.Term != h.term {
		return
	}
	kept := e
	kept.Groups = nil
	for i, group := range e.Groups {
		if results[i].Refusal == nil {
			kept.Groups = append(kept.Groups, group)
		}
	}
	again, results2 := before.Apply(index, h.term, kept)
	for _, r := range results2 {
		if r.Refusal != nil {
			h.t.Fatalf("%v: a group is refused once the refused ones before it are gone: %v", e.names(), r.Refusal)
		}
	}
	if Digest(again) != Digest(after) {
		h.t.Fatalf("%v: a refused group left a trace:\n%s", e.names(), cmp.Diff(dump(again), dump(after)))
	}
}

func (h *randomLog) replicate(index uint64, e Entry, want []Result, restore bool) {
	t := h.t
	data, err := EncodeEntry(e)
	if err != nil {
		t.Fatal(err)
	}
	if restore {
		h.third = NewMachine()
		if err := h.third.Restore(bytes.NewReader(snapshotOf(t, h.second.Snapshot()))); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []*Machine{h.second, h.third} {
		got, err := m.Apply(index, h.term, data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%v: replicas give different answers:\n%s", e.names(), diff)
		}
	}
	h.batch, h.wanted = append(h.batch, Logged{index, h.term, data}), append(h.wanted, want)
}

// catchUp applies to the fourth replica, in one batch, all entries that it has not applied yet.
func (h *randomLog) catchUp() {
	got, err := h.fourth.ApplyBatch(h.batch)
	if err != nil {
		h.t.Fatal(err)
	}
	if diff := cmp.Diff(h.wanted, got); diff != "" {
		h.t.Fatalf("a batch gives different answers:\n%s", diff)
	}
	h.batch, h.wanted = nil, nil
}

func (h *randomLog) agree() {
	t := h.t
	h.catchUp()
	for _, m := range []*Machine{h.second, h.third, h.fourth} {
		if diff := cmp.Diff(dump(h.first), dump(m.State()), equateEmpty()); diff != "" {
			t.Fatalf("replicas differ:\n%s", diff)
		}
		if Digest(h.first) != Digest(m.State()) {
			t.Fatal("replicas are equal and their digests differ")
		}
		if err := Check(m.State()); err != nil {
			t.Fatal(err)
		}
	}
}

// names returns the kinds of all commands of an entry, sorted.
func (e Entry) names() []string {
	var names []string
	for _, group := range e.Groups {
		for _, c := range group {
			names = append(names, KindName(c.Kind()))
		}
	}
	slices.Sort(names)
	return names
}
