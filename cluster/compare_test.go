package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// compareRig is a rig that records the results of comparisons.
type compareRig struct {
	*rig
	inMemory bool // the logs are in memory, for tests that write a lot and restart no server

	mu   sync.Mutex
	seen map[string][]ComparisonResult // by host
}

func newCompareRig(t *testing.T) *compareRig {
	return &compareRig{rig: newRig(t), seen: map[string][]ComparisonResult{}}
}

func (r *compareRig) start(i int) *rigServer {
	r.t.Helper()
	return r.rig.start(i, func(c *Config) {
		if r.inMemory {
			store := newFaultyStore()
			c.Disk.OpenLog = func(string) (LogStore, error) { return store, nil }
		}
		c.Compare.Compared = func(result ComparisonResult) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen[host(i)] = append(r.seen[host(i)], result)
		}
	})
}

func (r *compareRig) startAll() *rigServer {
	r.t.Helper()
	for i := 1; i <= 3; i++ {
		r.start(i)
	}
	r.mustRegister("n1")
	r.agree(5 * time.Second)
	return r.leader(20 * time.Second)
}

// results returns the results of all comparisons of one server so far.
func (r *compareRig) results(s *rigServer) []ComparisonResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen[s.host])
}

func (r *compareRig) follower(leader *rigServer) *rigServer {
	for _, s := range r.running() {
		if s != leader {
			return s
		}
	}
	r.t.Fatal("there is no follower")
	return nil
}

// spoil changes a row of a server's state outside the log. The state keeps its index.
func (s *rigServer) spoil() {
	t := s.rig.t
	t.Helper()
	before := s.machine.State()
	id, _, ok := before.Nodes.Min()
	if !ok {
		t.Fatal("there is no node to spoil")
	}
	after, results := before.Apply(before.Index+1, before.LogTerm, fsm.Entry{
		Format: before.Format, At: before.Now, Wall: before.Wall, Actor: model.ActorLeader,
		Groups: [][]fsm.Command{{&fsm.NodeLabel{ID: id, Labels: map[string]string{"wrong": "yes"}}}},
	})
	if results[0].Refusal != nil {
		t.Fatal(results[0].Refusal)
	}
	after.Index = before.Index
	var buf bytes.Buffer
	if err := fsm.WriteSnapshot(&buf, after); err != nil {
		t.Fatal(err)
	}
	if err := s.machine.Restore(&buf); err != nil {
		t.Fatal(err)
	}
}

// stopped waits until a server has stopped, and checks that the reason is a majority with a different state.
func (r *compareRig) stopped(s *rigServer, limit time.Duration) {
	r.t.Helper()
	eventually(r.t, limit, s.host+" stops", func() bool {
		select {
		case <-s.done:
			return true
		default:
			return false
		}
	})
	if !errors.Is(s.fatal, &model.Error{Code: model.CodeStateDiffers}) || !errors.Is(s.err, s.fatal) {
		r.t.Fatalf("it ended with %v, told %v", s.err, s.fatal)
	}
}

// proves S5 where nothing is wrong: servers compare at their start and every ten minutes, and write nothing (L3).
func TestEqualStatesAreComparedAndNothingIsWritten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newCompareRig(t)
		leader := r.startAll()
		time.Sleep(time.Minute)
		before, state := leader.raft.LastIndex(), leader.machine.State().Index
		time.Sleep(35 * time.Minute)
		if now := leader.raft.LastIndex(); now != before || leader.machine.State().Index != state {
			t.Errorf("L3: a settled cluster wrote: the log was at %d and is at %d", before, now)
		}
		for _, s := range r.all() {
			got := r.results(s)
			if len(got) < 4 || slices.ContainsFunc(got[1:], func(c ComparisonResult) bool { return c != StatesEqual }) {
				t.Errorf("%s: %v, want equal four times", s.host, got)
			}
			if s.fatal != nil {
				t.Errorf("%s ended: %v", s.host, s.fatal)
			}
		}
	})
}

func TestMinorityFollowerStops(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newCompareRig(t)
		leader := r.startAll()
		wrong := r.follower(leader)
		wrong.spoil()
		digest, id := fsm.Digest(wrong.machine.State()), wrong.ID()
		r.stopped(wrong, 2*compareEvery)
		checkReportOf(t, wrong, digest, fsm.Digest(leader.machine.State()), false)
		if d := leader.Differing(); len(d) != 1 || d[id].Digest != digest {
			t.Errorf("the leader remembers %v", d)
		}
		r.mustRegister("after")
		if len(r.running()) != 2 || r.leader(20*time.Second) != leader {
			t.Errorf("%d run, led by %s", len(r.running()), r.leader(time.Second).host)
		}

		// Each attempt to start the server with its wrong state fails, and so does a recovery from that state.
		for range 2 {
			if again := r.open(hostNumber(wrong.host), nil); !errors.Is(again.err, &model.Error{Code: model.CodeStateDiffers}) {
				t.Fatalf("it started again: %v", again.err)
			}
		}
		if _, err := Recover(RecoverConfig{DataDir: wrong.dir, Cluster: "test", Address: wrong.host + ":7640"}); !errors.Is(
			err, &model.Error{Code: model.CodeStateDiffers}) {
			t.Errorf("its state can be made the cluster's: %v", err)
		}

		// After everything but the report is deleted, the server joins with a new id and gets the right state.
		entries, err := os.ReadDir(wrong.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() == dirDiffers {
				continue
			}
			if err := os.RemoveAll(filepath.Join(wrong.dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
		back := r.start(hostNumber(wrong.host))
		eventually(t, time.Minute, "the new server votes", func() bool {
			_, voters := back.Voters()
			return slices.Contains(voters, back.ID()) && back.ID() != id
		})
		r.agree(10 * time.Second)
		back.stop()
		r.start(hostNumber(wrong.host)) // the report about its earlier id doesn't prevent a start
	})
}

func checkReportOf(t *testing.T, s *rigServer, own, majority string, led bool) {
	t.Helper()
	report, ok, err := ReadReport(s.dir)
	if err != nil || !ok {
		t.Fatalf("the report: %v, %v", ok, err)
	}
	if report.Server != s.ID() || report.Digest != own || report.Majority != majority || len(report.Agreeing) != 2 ||
		len(report.Voters) != 3 || report.Led != led || report.Name != s.cfg.Name {
		t.Errorf("it reports %+v; want digest %s against %s", report, own, majority)
	}
	if names := namesOf(report.Tables); !slices.Equal(names, []string{"nodes"}) {
		t.Errorf("the tables that differ are %v, want nodes", names)
	}
	f, err := os.Open(filepath.Join(s.dir, dirDiffers, report.State))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if kept, err := fsm.ReadSnapshot(f); err != nil || fsm.Digest(kept) != own || kept.Index != report.Index ||
		kept.LogTerm != report.Term {
		t.Errorf("the state that it kept is at index %d (%v)", kept.Index, err)
	}
}

// A leader stops too if the majority has a different state. After that it takes no entries and doesn't answer as the
// leader.
func TestMinorityLeaderStops(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newCompareRig(t)
		wrong := r.startAll()
		right := r.follower(wrong).machine
		wrong.spoil()
		r.stopped(wrong, 2*compareEvery)
		checkReportOf(t, wrong, fsm.Digest(wrong.machine.State()), fsm.Digest(right.State()), true)
		if _, self, _ := wrong.Leader(); self {
			t.Error("it still answers as the leader")
		}
		if _, err := wrong.Submit(t.Context(), fsm.Entry{}); !errors.Is(err, &model.Error{Code: model.CodeNoLeader}) {
			t.Errorf("it still takes entries: %v", err)
		}
		if next := r.leader(20 * time.Second); next == wrong {
			t.Error("it still leads")
		}
		r.mustRegister("after")
		r.agree(5 * time.Second)
	})
}

// If only two of three servers run and their states differ, nobody knows which state is right. Both servers continue
// and report the difference. Once the third server is back, two states are equal, and the server with the other state
// stops.
func TestTwoServersThatDifferGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newCompareRig(t)
		leader := r.startAll()
		wrong := r.follower(leader)
		var third *rigServer
		for _, s := range r.running() {
			if s != leader && s != wrong {
				third = s
			}
		}
		third.crash()
		wrong.spoil()
		time.Sleep(2 * compareEvery)
		for _, s := range []*rigServer{leader, wrong} {
			if s.fatal != nil || !slices.Contains(r.results(s), StatesUndecided) || slices.Contains(r.results(s), InMinority) {
				t.Errorf("%s: %v, ended with %v", s.host, r.results(s), s.fatal)
			}
		}
		r.mustRegister("meanwhile")
		v, err := leader.Verify(t.Context(), time.Second)
		if err != nil || v.Verdict != VerdictUndecided || v.Digest != "" {
			t.Errorf("verified: %+v, %v", v, err)
		}
		if got := verdicts(v); got[wrong.ID()] != VerdictDiffers || got[leader.ID()] != VerdictDiffers ||
			got[third.ID()] != VerdictUnreached {
			t.Errorf("verdicts %v", got)
		}
		r.net.Heal()
		r.start(hostNumber(third.host))
		r.stopped(wrong, 2*compareEvery)
	})
}

func verdicts(v Verification) map[model.ServerID]Verdict {
	out := map[model.ServerID]Verdict{}
	for _, s := range v.Servers {
		out[s.ID] = s.Verdict
	}
	return out
}

// Servers are compared even while entries arrive all the time, although the servers are at different indexes when they
// are asked.
func TestBusyServersAreCompared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newCompareRig(t)
		r.inMemory = true
		leader := r.startAll()
		time.Sleep(10 * time.Second) // let the comparisons after the start finish
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_ = leader.register(ctx, fmt.Sprintf("n%d", i%50)) // the last call may fail, because ctx is canceled
				time.Sleep(15 * time.Millisecond)
			}
		})
		time.Sleep(10 * time.Second)
		from := leader.machine.State().Index
		v, err := leader.Verify(t.Context(), 30*time.Second)
		if err != nil || v.Verdict != VerdictEqual || v.Index < from {
			t.Errorf("verified while busy, from index %d: %+v, %v", from, v, err)
		}
		wrong := r.follower(leader)
		wrong.spoil()
		if v, err = leader.Verify(t.Context(), 30*time.Second); err != nil || v.Verdict != VerdictDiffers {
			t.Errorf("verified while busy, with a wrong one: %+v, %v", v, err)
		}
		r.stopped(wrong, time.Minute)
		cancel()
		wg.Wait()
	})
}

// A restore begins a new history. States from before the restore are not compared with later ones.
func TestRestoreIsCompared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newCompareRig(t)
		leader := r.startAll()
		time.Sleep(10 * time.Second)
		before := len(r.results(leader))
		var saved bytes.Buffer
		if err := leader.Save(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		r.mustRegister("later")
		if err := leader.Restore(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "a comparison", func() bool { return len(r.results(leader)) > before })
		for _, s := range r.all() {
			if got := r.results(s); got[len(got)-1] != StatesEqual || s.fatal != nil {
				t.Errorf("%s: %v, %v", s.host, got, s.fatal)
			}
		}
	})
}

// A verification by an operator lists all servers, including one without a vote, one that is cut off, and one with a
// different state. The server with the different state stops without waiting for its next regular comparison.
func TestVerify(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newCompareRig(t)
		leader := r.startAll()
		fourth := r.start(4)
		eventually(t, 20*time.Second, "the fourth server", func() bool { return fourth.machine.State().Nodes.Len() == 1 })
		for _, s := range r.running() {
			v, err := s.Verify(t.Context(), 5*time.Second)
			if err != nil || v.Verdict != VerdictEqual || len(v.Servers) != 4 || v.Index != leader.machine.State().Index ||
				v.Digest != fsm.Digest(leader.machine.State()) {
				t.Errorf("%s: %+v, %v", s.host, v, err)
			}
		}
		eventually(t, time.Minute, "four voters", func() bool { return len(leader.voters()) == 4 })
		r.isolate(fourth.host)
		r.mustRegister("more")
		v, err := leader.Verify(t.Context(), 5*time.Second)
		if err != nil || v.Verdict != VerdictIncomplete || verdicts(v)[fourth.ID()] != VerdictUnreached {
			t.Errorf("with one cut off: %+v, %v", v, err)
		}
		r.net.Heal()
		eventually(t, time.Minute, "it is back", func() bool { return fourth.machine.State().Nodes.Len() == 2 })

		wrong := r.follower(leader)
		time.Sleep(2 * digestFor)
		wrong.spoil()
		v, err = leader.Verify(t.Context(), 5*time.Second)
		if err != nil || v.Verdict != VerdictDiffers || verdicts(v)[wrong.ID()] != VerdictDiffers ||
			verdicts(v)[leader.ID()] != VerdictEqual {
			t.Errorf("with a wrong one: %+v, %v", v, err)
		}
		for _, s := range v.Servers {
			if want := s.ID == wrong.ID(); want != (len(s.Tables) > 0) {
				t.Errorf("%s differs in %v", s.ID, s.Tables)
			}
		}
		r.stopped(wrong, 30*time.Second)
		r.isolate(wrong.host) // as if its process had exited
		v, err = leader.Verify(t.Context(), 5*time.Second)
		if err != nil || v.Verdict != VerdictDiffers || verdicts(v)[wrong.ID()] != VerdictDiffers {
			t.Errorf("after it ended: %+v, %v", v, err)
		}
	})
}

// States with equal digests may all contradict themselves in the same way. So Verify also runs fsm.Check on them.
func TestVerifyFindsContradictions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newCompareRig(t)
		r.startAll()
		for _, s := range r.running() {
			wrong := s.machine.State()
			wrong.SettingsIndex = wrong.Index + 1000
			s.machine.Replace(wrong)
		}
		time.Sleep(2 * digestFor)
		v, err := r.leader(time.Second).Verify(t.Context(), 5*time.Second)
		if err != nil || v.Verdict == VerdictEqual {
			t.Errorf("%+v, %v", v, err)
		}
		for _, s := range v.Servers {
			if s.Verdict != VerdictDiffers || !strings.Contains(s.Detail, "contradicts itself: the settings") {
				t.Errorf("%s: %s, %q", s.ID, s.Verdict, s.Detail)
			}
		}
	})
}

func TestVerifyWithoutACluster(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newCompareRig(t)
		s := r.start(1)
		if _, err := s.Verify(t.Context(), time.Second); !errors.Is(err, &model.Error{Code: model.CodeNoLeader}) {
			t.Errorf("%v", err)
		}
	})
}
