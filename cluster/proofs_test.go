package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Servers that exist only in gossip, at addresses that don't answer, don't keep a new server from becoming a member and
// getting its vote.
func TestLiarsDelayNoNewServer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		leader := r.leader(time.Second)
		const liars = 6
		for i := range liars {
			r.net.Vanish(host(60 + i))
			meta := ServerMeta{Fresh: true, Format: model.CurrentFormat}
			startPool(t, r.net, fmt.Sprintf("000-liar-%d", i), host(40+i), func(c *PoolConfig) {
				c.Meta = Meta{Role: pki.RoleServer, API: host(60+i) + ":7640", Name: fmt.Sprintf("liar-%d", i), Server: &meta}
				c.Join = []string{leader.host + ":7642"}
			})
		}
		eventually(t, 20*time.Second, "the leader sees the liars", func() bool {
			seen := 0
			for i := range liars {
				if m, ok := leader.seen.pool.Member(fmt.Sprintf("000-liar-%d", i)); ok && m.State == fsm.GossipAlive {
					seen++
				}
			}
			return seen == liars
		})
		time.Sleep(time.Minute)
		fourth := r.start(4, nil)
		eventually(t, 45*time.Second, "the new server has a vote", func() bool {
			v, ok := leader.membership().Find(fourth.ID())
			return ok && v.Voter
		})
		if got := len(leader.servers()); got != 4 {
			t.Errorf("there are %d servers", got)
		}
	})
}

// The pauses between attempts to reach a server grow while it can't be reached, even if its address changes all the
// time. A claim that was proven must be proven again after a while.
func TestProofsBackOff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		began := time.Now()
		var tried []string
		p := newProofs(func(c Change) error {
			tried = append(tried, fmt.Sprintf("%s %d", c.ID, int(time.Since(began).Seconds())))
			if c.ID == "honest" {
				return nil
			}
			return errors.New("no answer")
		}, func(Change, error) {})
		holds := 0
		for i := range 150 {
			now := time.Now()
			p.holds(Change{Kind: ChangeMove, ID: "liar", Address: host(i) + ":7640"})
			if i >= 120 && p.holds(Change{Kind: ChangeAdd, ID: "honest", Address: "10.1.0.1:7640"}) {
				holds++
			}
			p.start(t.Context(), now)
			time.Sleep(time.Second)
			p.wait()
		}
		want := []string{
			"liar 0", "liar 5", "liar 15", "liar 35", "liar 75", "honest 120", "honest 130", "liar 135", "honest 140",
		}
		if !slices.Equal(tried, want) {
			t.Errorf("tried %q, want %q", tried, want)
		}
		if holds != 27 {
			t.Errorf("it held %d times", holds)
		}
		if n := len(p.claims); n > 12 {
			t.Errorf("%d claims are kept", n)
		}
	})
}

// However many claims there are, at most proofsAtOnce attempts to prove one run at the same time. Servers with the
// fewest failures are tried first.
func TestProofsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		let := make(chan struct{})
		p := newProofs(func(Change) error { <-let; return errors.New("no answer") }, func(Change, error) {})
		ask := func() {
			now := time.Now()
			for i := range 3 * proofsAtOnce {
				p.holds(Change{Kind: ChangeAdd, ID: model.ServerID(fmt.Sprintf("liar-%02d", i))})
			}
			p.start(t.Context(), now)
		}
		for round := range 4 {
			ask()
			time.Sleep(proofRetry)
			if got := p.flying[false] + p.flying[true]; got != proofsAtOnce {
				t.Errorf("round %d: %d are tried at once", round, got)
			}
			for range proofsAtOnce {
				let <- struct{}{}
			}
			p.wait()
		}
		for id, r := range p.record {
			if r.failures < 1 || r.failures > 2 {
				t.Errorf("%s was tried %d times in four rounds", id, r.failures)
			}
		}
	})
}

// Every second, two or three more invented servers are claimed, for a minute each, and their names sort first. They
// don't delay the proof of a new server for long, even if the first attempt to reach that server fails.
func TestMadeUpNamesDelayNoProofForLong(t *testing.T) {
	for _, rate := range []int{2, 3} {
		for _, once := range []bool{false, true} {
			inBubble(t, func(t *testing.T) {
				var proven, fails atomic.Bool
				fails.Store(once)
				p := newProofs(func(c Change) error {
					if c.ID == "zz-honest" && !fails.Load() {
						proven.Store(true)
						return nil
					}
					if c.ID == "zz-honest" {
						fails.Store(false)
						return errors.New("it is not up yet")
					}
					time.Sleep(helloTimeout)
					return errors.New("no answer")
				}, func(Change, error) {})
				look := func(second int) {
					now := time.Now()
					for i := max(0, (second-60)*rate); i <= (second+1)*rate; i++ {
						name := fmt.Sprintf("000-liar-%06d", 999999-i)
						p.holds(Change{Kind: ChangeAdd, ID: model.ServerID(name), Address: "10.9.9.9:1"})
					}
					if second > 60 {
						p.holds(Change{Kind: ChangeAdd, ID: "zz-honest", Address: "10.1.0.1:7640"})
					}
					p.start(t.Context(), now)
					time.Sleep(time.Second)
				}
				seconds := 0
				for ; !proven.Load() && seconds < 1800; seconds++ {
					look(seconds)
				}
				p.wait()
				if waited := seconds - 60; waited > 150 {
					t.Errorf("%d names a second, failing once %v: the new server waited for %d s", rate, once, waited)
				}
				if len(p.claims) > 80*rate || len(p.record) > 80*rate+2*600 {
					t.Errorf("%d claims and %d records are kept", len(p.claims), len(p.record))
				}
			})
		}
	}
}

// Between two calls of start, at most claimsNew new claims of each kind are recorded. In all, at most claimsMost are
// kept.
func TestProofsTakeInFewClaims(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProofs(func(Change) error { return nil }, func(Change, error) {})
		ask := func(looks int) {
			for look := range looks {
				for i := range maxMembers {
					id := model.ServerID(fmt.Sprintf("liar-%d-%d", look, i))
					p.holds(Change{Kind: ChangeAdd, ID: id})
					p.holds(Change{Kind: ChangeRemove, Successor: id})
				}
				clear(p.fresh)
			}
		}
		ask(1)
		if got := len(p.claims); got != 2*claimsNew {
			t.Errorf("%d claims are taken in by one look", got)
		}
		ask(claimsMost/claimsNew/2 + 10)
		if got := len(p.claims); got != claimsMost {
			t.Errorf("%d claims are kept", got)
		}
	})
}
