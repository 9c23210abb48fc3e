package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
)

// Machines whose clocks are an hour behind and an hour ahead join and work. Three hours are too much: outspan join says
// so, and works with the same token once the clock is right. Then the leader's clock jumps, first by two hours, then by
// 40 days, so that by this clock each certificate has expired. Nobody loses its session, and an agent that starts again
// is let in. A server that starts with such a clock does not harm the others, and is back once its clock is right.
func TestClocks(t *testing.T) {
	long(t)
	t.Parallel()
	c := newClocks(t, options{servers: 3, agents: 3})
	late := c.agents[2]
	c.agents = c.agents[:2]
	for _, pair := range [][]*member{c.servers[1:], c.agents} {
		pair[0].setClock(t, -time.Hour)
		pair[1].setClock(t, time.Hour)
	}
	c.found(t)
	c.waitEligible(t, c.agents...)
	c.waitVotersWithin(t, 3, patience)
	c.run(t, job{name: "web", count: 2, more: apart})
	c.waitProblem(t, api.ProblemServerClock, c.servers[1].Name, "behind")
	c.waitProblem(t, api.ProblemServerClock, c.servers[2].Name, "ahead")
	c.joinTooLate(t, late)

	setClocks(t, c.members(), 0)
	leader := c.leader(t)
	before, events, epochs := c.living(t, "web"), len(c.events(t)), c.epochs(t)
	for _, jump := range []time.Duration{2 * time.Hour, 40 * day} {
		leader.setClock(t, jump)
		c.waitProblem(t, api.ProblemServerClock, leader.Name, "ahead")
		c.must(t, "node", "label", c.agents[0].Name, fmt.Sprintf("jump=%.0f", jump.Hours()))
		time.Sleep(5 * time.Second) // twice the time after which a silent agent is offline
		if now := c.leader(t); now != leader {
			t.Errorf("after a jump by %s %s leads, want %s", jump, now.Name, leader.Name)
		}
		if now := c.epochs(t); !maps.Equal(epochs, now) {
			t.Errorf("after a jump by %s agents have registered again: %v, now %v", jump, epochs, now)
		}
		c.checkUndisturbed(t, "web", before, events)
	}
	again := c.agents[1]
	again.Kill()
	again.start(t)
	waitFor(t, "the return of "+again.Name, patience, func() error {
		if now := c.epochs(t)[again.Name]; now == epochs[again.Name] {
			return fmt.Errorf("it has the epoch %d", now)
		}
		return nil
	})
	c.waitEligible(t, c.agents...)

	leader.Kill()
	leader.start(t)
	waitFor(t, "a reason in the log of "+leader.Name, patience, func() error { return leader.logged("clock") })
	c.waitEligible(t, c.agents...)
	c.must(t, "node", "label", c.agents[0].Name, "jump-")
	leader.setClock(t, 0)
	c.waitVotersWithin(t, 3, patience)
	c.waitEligible(t, c.agents...)
	if now := c.living(t, "web"); !slices.EqualFunc(before, now, func(x, y instanceView) bool { return x.ID == y.ID }) {
		t.Errorf("the instances were %v, and are %v", before, now)
	}
}

// joinTooLate lets a machine join whose clock is wrong by too much. It is told so. Once the clock is right, it joins
// with the same token.
func (c *cluster) joinTooLate(t *testing.T, m *member) {
	t.Helper()
	token := tokenText.FindString(c.must(t, "token", "create", "--role", "agent"))
	for _, wrong := range []time.Duration{-3 * time.Hour, 3 * time.Hour, -40 * day, 40 * day} {
		m.setClock(t, wrong)
		err := m.join(token)
		if err == nil {
			t.Fatalf("a machine has joined whose clock is wrong by %s", wrong)
		}
		for _, word := range []string{"clock", "date -u", "set the clock that is wrong"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("a clock that is wrong by %s: there is no %q in %v", wrong, word, err)
			}
		}
		t.Logf("wrong by %s: %v", wrong, err)
	}
	m.setClock(t, 0)
	if err := m.join(token); err != nil {
		t.Fatal(err)
	}
}

// epochs returns the epoch of each node. An agent that registers again gets another one.
func (c *cluster) epochs(t *testing.T) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for _, n := range c.nodes(t) {
		all[n.Name] = n.Epoch
	}
	return all
}

// waitProblem waits until the status has a problem of a subject, whose text has some words.
func (c *cluster) waitProblem(t *testing.T, code api.ProblemCode, subject string, words ...string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("the problem %s of %s", code, subject), patience, func() error {
		var s api.Status
		if err := c.get("/v1/status", &s); err != nil {
			return err
		}
		for _, p := range s.Problems {
			lacks := func(word string) bool { return !strings.Contains(p.Message, word) }
			if p.Code == code && strings.Contains(p.Subject, subject) && !slices.ContainsFunc(words, lacks) {
				return nil
			}
		}
		return fmt.Errorf("%+v", s.Problems)
	})
}
