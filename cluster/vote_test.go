package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// gate is a Config.MayVote that refuses until it is opened.
type gate struct {
	mu    sync.Mutex
	open  bool
	hangs bool // until ctx ends
	asked map[string]int
}

func (g *gate) mayVote(ctx context.Context, name, address string) error {
	g.mu.Lock()
	g.asked[name+" "+address]++
	open, hangs := g.open, g.hangs
	g.mu.Unlock()
	switch {
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	case !open:
		return model.Refuse(model.CodeConflict, "server %s lacks a key", name)
	}
	return nil
}

func (g *gate) set(open, hangs bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.hangs = open, hangs
}

// about returns how often a permission was asked for the server name at address, and how often for any server.
func (g *gate) about(name, address string) (n, total int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.asked {
		total += one
	}
	return g.asked[name+" "+address], total
}

// A server gets no vote while MayVote refuses it, neither by itself nor because an operator asks, and the leader says
// why. The other servers keep working meanwhile, also if MayVote hangs. It gets its vote soon after MayVote accepts it.
func TestNoVoteBeforeMayVote(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := &gate{asked: map[string]int{}}
		r := newRig(t)
		r.threeServersRunning(func(c *Config) { c.MayVote = g.mayVote })
		if _, total := g.about("", ""); total != 0 {
			t.Errorf("%d questions about the first voters", total)
		}
		leader := r.leader(time.Second)
		fourth := r.start(4, func(c *Config) { c.MayVote = g.mayVote })
		eventually(t, 10*time.Second, "taken in", func() bool { return len(leader.servers()) == 4 })
		time.Sleep(time.Minute)
		if got := len(leader.voters()); got != 3 {
			t.Fatalf("%d voters, although one is refused", got)
		}
		if n, total := g.about("s4", host(4)+":7640"); n < 20 || n != total {
			t.Errorf("%d questions in a minute, %d of them about the fourth server", total, n)
		}
		refused := &model.Error{Code: model.CodeConflict}
		if err := leader.Promote(t.Context(), fourth.ID()); !errors.Is(err, refused) {
			t.Errorf("an operator's promotion: %v", err)
		}
		for _, s := range leader.Servers() {
			if got := errors.Is(s.NoVote, refused); got != (s.ID == fourth.ID()) {
				t.Errorf("%s gets no vote because of %v", s.Name, s.NoVote)
			}
		}
		g.set(false, true)
		r.mustRegister("n1")
		if err := leader.Promote(t.Context(), fourth.ID()); err == nil {
			t.Error("an operator's promotion while nobody answers")
		}
		g.set(true, false)
		eventually(t, 15*time.Second, "a vote", func() bool { return len(leader.voters()) == 4 })
		for _, s := range leader.Servers() {
			if s.NoVote != nil {
				t.Errorf("%s gets no vote because of %v", s.Name, s.NoVote)
			}
		}
	})
}

// A permission ends after a while, and does not count for another address.
func TestPermissionToVoteEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		asked := 0
		v := newVotes(func(context.Context, model.ServerID, string) error { asked++; return nil })
		ask := func(address string, want bool) {
			t.Helper()
			if got := v.allows(t.Context(), "a", address); got != want {
				t.Errorf("at %s: %v", address, got)
			}
			v.wait()
		}
		ask("x", false)
		ask("x", true)
		ask("y", false)
		ask("y", true)
		time.Sleep(voteHolds)
		ask("y", false)
		ask("y", true)
		if asked != 3 {
			t.Errorf("%d questions", asked)
		}
	})
}
