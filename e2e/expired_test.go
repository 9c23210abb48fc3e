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

// TestExpiredAgent switches two machines off until their certificates have expired. One has the data of a volume: it
// returns without a token, with a new certificate, and its instance starts on the same data. The other one was revoked
// meanwhile, and stays out.
func TestExpiredAgent(t *testing.T) {
	long(t)
	c := newMembers(t, options{servers: 3, agents: 2, managed: true, bin: taggedProgram(t, "ephemeral", "brief")})
	c.found(t)
	c.waitEligible(t, c.agents...)
	c.run(t, job{name: "db", count: 1, more: volumeBlock("local", c.path("place"))})
	home := c.member(c.living(t, "db")[0].Node)
	sum := fillVolume(t, home.large(), 1<<20)
	revoked := without(c.agents, home)[0]
	for _, m := range c.agents {
		m.die(t)
	}
	ends := c.lastEnd(t, c.agents)
	c.must(t, "node", "revoke", revoked.Name, "--yes")
	time.Sleep(time.Until(ends) + time.Second)

	for _, m := range c.agents {
		m.start(t)
	}
	c.waitEligible(t, home)
	c.waitReady(t, "db", 1)
	if now := c.living(t, "db")[0].Node; now != home.Name {
		t.Errorf("the instance is on %s, its volume on %s", now, home.Name)
	}
	if now := sumOf(t, home.large()); now != sum {
		t.Error("the volume has other data")
	}
	if life, err := home.certificate(); err != nil || !life.Until.After(ends) {
		t.Errorf("the certificate ends at %s, %v", life.Until, err)
	}
	waitFor(t, "the refusal of "+revoked.Name, patience, func() error {
		if text, err := os.ReadFile(revoked.Log); err != nil || !strings.Contains(string(text), "was revoked") {
			return errors.Join(errors.New("its log does not say that it was revoked"), err)
		}
		return nil
	})
	if n := c.node(t, revoked); n.Health == "online" {
		t.Errorf("%s is %+v", revoked.Name, n)
	}
}

// All servers and agents are off until the certificate of each has expired. When they start, each gets a new
// certificate, without a token. The programs run all the time.
func TestClusterExpired(t *testing.T) {
	long(t)
	c := newMembers(t, options{servers: 3, agents: 2, managed: true, unhurried: true,
		bin: taggedProgram(t, "ephemeral", "brief")})
	c.found(t)
	c.waitEligible(t, c.agents...)
	c.waitVotersWithin(t, 3, patience)
	c.run(t, job{name: "web", count: 2, more: apart})
	before := c.programs()
	for _, m := range c.members() {
		m.Kill()
	}
	ends := c.lastEnd(t, c.members())
	time.Sleep(time.Until(ends) + time.Second)

	for _, m := range c.members() {
		m.start(t)
	}
	c.waitVotersWithin(t, 3, patience)
	for _, m := range c.members() {
		waitFor(t, "a new certificate of "+m.Name, patience, func() error {
			life, err := m.certificate()
			if err == nil && !life.Until.After(ends) {
				err = fmt.Errorf("it ends at %s", life.Until)
			}
			return err
		})
	}
	c.waitEligible(t, c.agents...)
	c.waitReady(t, "web", 2)
	c.must(t, "node", "label", c.agents[0].Name, "returned=yes")
	if now := c.programs(); !maps.EqualFunc(before, now, slices.Equal) {
		t.Errorf("the instances ran as %v, and run as %v", before, now)
	}
}

// lastEnd returns when the last of the members' certificates ends.
func (c *cluster) lastEnd(t *testing.T, members []*member) (ends time.Time) {
	t.Helper()
	for _, m := range members {
		life, err := m.certificate()
		if err != nil {
			t.Fatal(err)
		}
		if ends.Before(life.Until) {
			ends = life.Until
		}
	}
	return ends
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
