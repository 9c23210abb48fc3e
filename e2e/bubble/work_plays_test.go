package bubble

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/internal/testbed/invariant"
	"github.com/outspan/outspan/model"
)

// The commands that simulated programs answer. An answer depends on what the group simulates (PLAY in its environment)
// and on the troubles that the test causes.
const (
	askFacts   = "/facts"   // the role check
	askResign  = "/resign"  // the before_stop hook
	askHealthy = "/healthy" // a check
)

// What a group can simulate: a leader with followers, copies of data that synchronize, or shards that can be moved to
// other programs.
const (
	playLeader = "leader"
	playCopies = "copies"
	playShards = "shards"
)

// part is the simulated state of one program.
type part struct {
	synced  time.Time // copies: when it came or will come in sync; zero if it has not begun to synchronize
	lost    time.Time // copies: when it stopped being in sync
	drained bool      // shards: its shards were moved away
	sick    time.Time // its check fails until this time
}

// stage is the simulated state of all groups. Guarded by truth.mu.
type stage struct {
	leaders  map[model.GroupID]model.InstanceID
	mute     map[model.GroupID]time.Time // no role check of the group gets an answer until this time
	stubborn map[model.GroupID]time.Time // no hook of the group succeeds until this time
}

func newStage() stage {
	return stage{
		leaders: map[model.GroupID]model.InstanceID{}, mute: map[model.GroupID]time.Time{},
		stubborn: map[model.GroupID]time.Time{},
	}
}

// perform answers a check, a role check or a hook of a program.
func (tr *truth) perform(ctx context.Context, p *program, c driver.Command) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	now := time.Now()
	switch c.Argv[0] {
	case askHealthy:
		if p.env["BAD"] != "" || now.Before(p.part.sick) {
			return 1, nil
		}
		return 0, nil
	case askFacts:
		if now.Before(tr.stage.mute[p.group]) {
			return 1, nil
		}
		raw, err := json.Marshal(tr.facts(p, now))
		if err == nil {
			_, err = c.Stdout.Write(raw)
		}
		return 0, err
	case askResign:
		if now.Before(tr.stage.stubborn[p.group]) || !tr.resign(p) {
			return 1, ctx.Err()
		}
		return 0, nil
	}
	return 127, fmt.Errorf("nobody knows the command %q", c.Argv)
}

// peers lists the other programs of p's group that have run for at least settled and were not asked to stop. The oldest
// is first.
func (tr *truth) peers(p *program) []*program {
	var all []*program
	for _, other := range tr.alive {
		if other.group == p.group && other != p && tr.stopped[other.instance].IsZero() && time.Since(other.began) >= settled {
			all = append(all, other)
		}
	}
	slices.SortFunc(all, func(a, b *program) int { return a.began.Compare(b.began) })
	return all
}

func (tr *truth) facts(p *program, now time.Time) map[string]any {
	switch p.env["PLAY"] {
	case playLeader:
		if tr.alive[tr.stage.leaders[p.group]] == nil {
			tr.stage.leaders[p.group] = p.instance // the first program that is asked becomes the leader
		}
		leader := tr.stage.leaders[p.group]
		return map[string]any{model.FactLeader: leader == p.instance,
			model.FactLeaderName: string(leader), model.FactIndex: 7}
	case playCopies:
		return map[string]any{model.FactInSync: tr.inSync(p, now)}
	case playShards:
		said := map[string]any{model.FactDrained: p.part.drained, model.FactLeadsShards: !p.part.drained,
			model.FactShardsSafe: len(tr.peers(p)) > 0}
		if now.Sub(tr.losses[p.group]) > toFailOver {
			for slot := range slotsPlayed {
				if !tr.plays(p.group, slot) {
					said[fmt.Sprintf("slot.%d.%s", slot, model.FactLeadsShards)] = false // other programs took over these shards
				}
			}
		}
		return said
	}
	return map[string]any{}
}

const (
	slotsPlayed = 6
	toFailOver  = 3 * time.Second // time until other programs lead the shards of a program that is gone
)

// plays reports whether a program of a slot runs.
func (tr *truth) plays(group model.GroupID, slot int) bool {
	for _, p := range tr.alive {
		if p.group == group && p.slot == fmt.Sprint(slot) {
			return true
		}
	}
	return false
}

const toSync = 2 * time.Second // how long a copy takes to come in sync once it has begun

// inSync reports whether a copy is in sync. A copy begins to synchronize when its role check finds a peer in sync, and
// is in sync toSync later. If no other copy is in sync or synchronizes, the copy begins with the data that it has.
func (tr *truth) inSync(p *program, now time.Time) bool {
	if p.part.synced.IsZero() {
		source := slices.ContainsFunc(tr.peers(p), func(peer *program) bool { return peer.part.inSync(now) })
		if source || !tr.otherSyncs(p) {
			p.part.synced = now.Add(toSync)
		}
	}
	return p.part.inSync(now)
}

// inSync reports whether the copy is in sync. Unlike truth.inSync, it never begins to synchronize.
func (p *part) inSync(now time.Time) bool { return !p.synced.IsZero() && !now.Before(p.synced) }

// otherSyncs reports whether another copy of p's group is in sync or synchronizes.
func (tr *truth) otherSyncs(p *program) bool {
	for _, other := range tr.alive {
		if other.group == p.group && other != p && !other.part.synced.IsZero() {
			return true
		}
	}
	return false
}

// resign hands over what the program leads. It returns false if no other program can take over.
func (tr *truth) resign(p *program) bool {
	peers := tr.peers(p)
	switch p.env["PLAY"] {
	case playLeader:
		if tr.stage.leaders[p.group] == p.instance {
			if len(peers) == 0 {
				return false
			}
			tr.stage.leaders[p.group] = peers[0].instance
		}
	case playShards:
		if len(peers) == 0 {
			return false
		}
		p.part.drained = true
	}
	return true
}

// any returns a random program for which ok returns true, or nil if there is none.
func (tr *truth) any(random *rand.Rand, ok func(*program) bool) *program {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var all []*program
	for _, p := range tr.alive {
		if ok(p) {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *program) int { return a.began.Compare(b.began) })
	return all[random.IntN(len(all))]
}

// trouble changes the simulated state of a program and its group. It calls the function what while truth.mu is held.
func (tr *truth) trouble(p *program, what func(*stage, *part)) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	what(&tr.stage, &p.part)
}

// calm ends all troubles.
func (tr *truth) calm() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	clear(tr.stage.mute)
	clear(tr.stage.stubborn)
	for _, p := range tr.alive {
		p.part.sick = time.Time{}
	}
}

// factsLag is how long servers may still believe a fact that is no longer true. It is enough for the next role check
// and its report, even during a failover.
const factsLag = 20 * time.Second

// judgeCopies checks S6 by the programs themselves. If a copy in sync is asked to stop for a cause outside its job,
// another copy must be in sync, or have been in sync less than factsLag ago. judgeCopies ignores stops that bypass a
// budget or that a drain's policy allows. It also ignores stops within factsLag after role checks of the group failed
// or a program of the group exited, because servers may not know of these failures yet.
func (w *world) judgeCopies(p *program) {
	now := time.Now()
	w.truth.mu.Lock()
	alone := p.env["PLAY"] == playCopies && p.part.inSync(now)
	for _, other := range w.truth.alive {
		if other.group == p.group && other != p && (other.part.inSync(now) || now.Sub(other.part.lost) < factsLag) {
			alone = false
		}
	}
	gone := now.Sub(w.truth.stage.mute[p.group]) < factsLag
	w.truth.mu.Unlock()
	if !alone || gone {
		return
	}
	state := w.history.last()
	i, ok := state.Instances.Get(p.instance)
	if !ok || !invariant.FromOutside(i.Marks.StopCause) || invariant.Bypassed(i) ||
		invariant.Lenient(&invariant.Step{Before: &state, After: &state}, i) || now.Sub(w.lastLoss(p.group)) < factsLag {
		return
	}
	w.t.Errorf("S6: instance %s of %s gets its stop signal for %s (%s), and no other copy of it has been in sync for %s",
		p.instance, p.group, i.Marks.StopCause, i.Marks.StopReason, factsLag)
}

// lastLoss returns when a program of a group last exited.
func (w *world) lastLoss(group model.GroupID) time.Time {
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	return w.truth.losses[group]
}

// If two copies start together, the first one comes in sync with the data that it has, and the second one after it. A
// copy that falls behind waits for a peer in sync. A copy that was asked to stop is no peer. The last copy begins with
// the data that it has.
func TestCopiesComeInSync(t *testing.T) {
	tr, now := newTruth(t), time.Now()
	began := now.Add(-settled)
	a := &program{instance: "a", group: "db/g", began: began}
	b := &program{instance: "b", group: "db/g", began: began}
	tr.alive["a"], tr.alive["b"] = a, b
	tr.alive["x"] = &program{instance: "x", group: "other/g", began: began, part: part{synced: now}}
	expect := func(when string, wantA, wantB bool) {
		t.Helper()
		if gotA, gotB := tr.inSync(a, now), tr.inSync(b, now); gotA != wantA || gotB != wantB {
			t.Errorf("%s: a in sync %v, b %v; want %v, %v", when, gotA, gotB, wantA, wantB)
		}
	}
	expect("both start", false, false)
	now = now.Add(toSync)
	expect("the first is in sync", true, false)
	now = now.Add(toSync)
	expect("the second is in sync too", true, true)
	b.part.synced, tr.stopped["a"] = time.Time{}, now
	expect("the second has fallen behind", true, false)
	now = now.Add(toSync)
	expect("its peer is about to stop", true, false)
	delete(tr.alive, "a")
	if tr.inSync(b, now) || !tr.inSync(b, now.Add(toSync)) {
		t.Error("the last copy did not begin with what it has")
	}
}

// Enter implements agent.Task. The simulation has no people.
func (t *program) Enter(context.Context, driver.Session) (int, error) {
	return 0, model.Refuse(driver.CodeStartFailed, "a simulated program runs no commands")
}

// Stats implements agent.Task. The simulation has no kernel.
func (t *program) Stats() (driver.Stats, error) {
	return driver.Stats{}, model.Refuse(driver.CodeStateFailed, "nothing counts what a simulated program uses")
}
