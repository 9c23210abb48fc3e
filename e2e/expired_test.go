package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const day = 24 * time.Hour

// TestExpiredAgent switches two machines off for 60 days, and one of them later for another 130 days. Certificates last
// 30 days, and rejoin_grace is 90 days. One machine has the data of a volume. After 60 days it returns without a token,
// and its instance starts on the same data. The other one was revoked meanwhile, and stays out. After 130 days the
// servers refuse the first one and say what to do, and outspan join brings it back with its volume.
func TestExpiredAgent(t *testing.T) {
	long(t)
	t.Parallel()
	c := newClocks(t, options{servers: 3, agents: 2})
	c.found(t)
	c.waitEligible(t, c.agents...)
	c.waitVotersWithin(t, 3, patience)
	c.run(t, job{name: "db", count: 1, more: volumeBlock("local", c.path("place"))})
	home := c.member(c.living(t, "db")[0].Node)
	sum := fillVolume(t, home.large(), 1<<20)
	revoked := without(c.agents, home)[0]
	c.switchOff(t, c.agents...)
	c.must(t, "node", "revoke", revoked.Name, "--yes")
	c.passTime(t, 60*day)

	for _, m := range c.agents {
		m.start(t)
	}
	c.checkReturned(t, home, sum, 60*day)
	waitFor(t, "the refusal of "+revoked.Name, patience, func() error { return revoked.logged("was revoked") })
	if n := c.node(t, revoked); n.Health == "online" {
		t.Errorf("%s is %+v", revoked.Name, n)
	}

	c.switchOff(t, home)
	c.passTime(t, 190*day)
	home.start(t)
	waitFor(t, "the refusal of "+home.Name, patience, func() error {
		return errors.Join(home.logged("longer ago than rejoin_grace"), home.logged("outspan token create --role agent"))
	})
	token := tokenText.FindString(c.must(t, "token", "create", "--role", "agent"))
	if err := home.join(token); err != nil {
		t.Fatal(err)
	}
	c.checkReturned(t, home, sum, 190*day)
}

// switchOff kills machines with all that they run, and waits until the servers know that their nodes are offline.
func (c *cluster) switchOff(t *testing.T, machines ...*member) {
	t.Helper()
	for _, m := range machines {
		m.die(t)
	}
	for _, m := range machines {
		waitFor(t, m.Name+" offline", patience, func() error {
			if n := c.node(t, m); n.State != "offline" {
				return fmt.Errorf("%+v", n)
			}
			return nil
		})
	}
}

// passTime moves the clocks of all members, and starts the servers again. So their certificates have expired before
// they start.
func (c *cluster) passTime(t *testing.T, ahead time.Duration) {
	t.Helper()
	for _, s := range c.servers {
		s.Kill()
	}
	setClocks(t, c.members(), ahead)
	for _, s := range c.servers {
		s.start(t)
	}
	c.waitVotersWithin(t, 3, patience)
}

// checkReturned waits until the instance of the job db is ready on a node that has returned, and checks the data of its
// volume. ahead is the time by the member's clock.
func (c *cluster) checkReturned(t *testing.T, home *member, sum string, ahead time.Duration) {
	t.Helper()
	c.waitEligible(t, home)
	c.waitReady(t, "db", 1)
	if now := c.living(t, "db")[0].Node; now != home.Name {
		t.Errorf("the instance is on %s, its volume on %s", now, home.Name)
	}
	if now := sumOf(t, home.large()); now != sum {
		t.Error("the volume has other data")
	}
	home.checkRenewed(t, ahead)
}

// checkRenewed waits until the certificate in the member's files is at most some minutes old. ahead is the time by the
// member's clock.
func (m *member) checkRenewed(t *testing.T, ahead time.Duration) {
	t.Helper()
	waitFor(t, "a new certificate of "+m.Name, patience, func() error {
		life, err := m.certificate()
		if err == nil && time.Now().Add(ahead).Sub(life.From) > time.Hour {
			err = fmt.Errorf("it is of %s and ends at %s", life.From, life.Until)
		}
		return err
	})
}

// logText returns the member's whole log.
func (m *member) logText(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(m.Log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// logged returns an error if the member's log lacks some words.
func (m *member) logged(words string) error {
	text, err := os.ReadFile(m.Log)
	if err == nil && !strings.Contains(string(text), words) {
		err = fmt.Errorf("the log of %s does not say %q", m.Name, words)
	}
	return err
}

// All servers and agents are off for 60 days, so that the certificate of each has expired. When they start, each gets a
// new certificate, without a token. The programs run all the time.
func TestClusterExpired(t *testing.T) {
	long(t)
	t.Parallel()
	c := newClocks(t, options{servers: 3, agents: 2, unhurried: true})
	c.found(t)
	c.waitEligible(t, c.agents...)
	c.waitVotersWithin(t, 3, patience)
	c.run(t, job{name: "web", count: 2, more: apart})
	before := c.programs()
	for _, m := range c.members() {
		m.Kill()
	}
	setClocks(t, c.members(), 60*day)

	for _, m := range c.members() {
		m.start(t)
	}
	c.waitVotersWithin(t, 3, patience)
	for _, m := range c.members() {
		m.checkRenewed(t, 60*day)
	}
	c.waitEligible(t, c.agents...)
	c.waitReady(t, "web", 2)
	c.must(t, "node", "label", c.agents[0].Name, "returned=yes")
	if now := c.programs(); !maps.EqualFunc(before, now, slices.Equal) {
		t.Errorf("the instances ran as %v, and run as %v", before, now)
	}
}

// found starts a managed cluster: the first server by outspan up, all others by join tokens.
func (c *cluster) found(t *testing.T) {
	t.Helper()
	first := c.servers[0]
	if err := first.found(); err != nil {
		t.Fatal(err)
	}
	first.configure(t, first.settings())
	first.start(t)
	for _, group := range [][]*member{c.servers[1:], c.agents} {
		var token struct{ Text string }
		waitFor(t, "a token", patience, func() error {
			r := c.cli(t, "token", "create", "--role", group[0].role, "--uses", fmt.Sprint(len(group)))
			if token.Text = tokenText.FindString(r.out); token.Text == "" {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
		for _, m := range group {
			waitFor(t, m.Name+" joins", patience, func() error { return m.join(token.Text) })
			m.configure(t, m.settings())
			m.start(t)
		}
	}
}
