package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// lanesSay is true in the page once a lane says a text.
func lanesSay(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('.lane .how')].some(e => e.innerText.includes(%q))`, text)
}

// fill puts a text into the first field that a selector finds.
func (p *webPage) fill(selector, text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("document.querySelector(%q)", selector))
	p.run(fmt.Sprintf(`(() => { const f = document.querySelector(%q); f.value = %q
		f.dispatchEvent(new Event('input', { bubbles: true })) })()`, selector, text))
}

// A person drains a node from the page: the forecast turns into lanes that move, the drain outlives its leader and a
// time without one, and ends once its blocker is acknowledged. Then the page rolls two nodes, which are rebooted. When
// most agents are silent, the page says that there is a HOLD, which nodes cause it and how it ends, and ends it.
func TestPageDrain(t *testing.T) {
	long(t)
	t.Parallel()
	require(t, "unshare", "mount")
	needChromium(t)
	c := startCluster(t, options{servers: 3, agents: 4})
	c.run(t, job{name: "db", count: 1, more: `    volume "data" {
      kind = "local"
      path = "/data"
    }`})
	c.run(t, job{name: "web", count: 8, more: "    budget { min_ready = 7 }"})
	home := c.member(list[instanceView](t, c, "/v1/instances?job=db")[0].Node)
	p := c.openPage(t)
	p.shows("4 of 4 nodes active, 9 of 9 instances ready")
	p.run("window.same = true") // gone when the page is loaded again
	drain := testPageLanes(t, c, p, home)
	testPageAcknowledge(t, c, p, home, drain)
	testPageRoll(t, c, p, home)
	p.until("window.same === true")
	// Chromium notes each answer that is an error, and each request that was not answered.
	if troubles := p.Troubles("Failed to load resource"); len(troubles) > 0 {
		t.Errorf("what went wrong in the page:\n%s", strings.Join(troubles, "\n"))
	}
	testPageHold(t, c, p)
	p.until("window.same === true")
}

// testPageLanes starts a drain after its forecast, and watches its lanes while the leader is killed, and while there is
// no leader. It returns the drain's id.
func testPageLanes(t *testing.T, c *cluster, p *webPage, home *member) string {
	p.goTo("#/drain/"+home.Name, "Show the forecast")
	p.click("Show the forecast")
	p.shows("This drain can't end by itself: 1 instance would stay.")
	p.until(lanesSay("moves to"))
	p.until(lanesSay("stays: volume local"))
	p.shoot("lanes-forecast")
	p.click("Start the drain")
	p.until("location.hash.startsWith('#/drains/')")
	p.until(lanesSay("moved to"))
	p.until(lanesSay("waits: volume local"))
	p.until("document.querySelector('b.ready') && document.querySelector('b.due')")
	p.shoot("lanes-running")
	leader := c.leader(t)
	leader.Kill()
	var other *member
	waitFor(t, "the next leader", patience, func() error {
		other = c.leader(t)
		if other == leader {
			return fmt.Errorf("%s still leads", leader.Name)
		}
		return nil
	})
	other.Kill() // no majority is left
	p.shows("The next leader goes on with it, from where it was")
	p.until(lanesSay("moved to")) // what was known stays
	p.shoot("lanes-no-leader")
	other.start(t)
	leader.start(t)
	p.until("!document.body.innerText.includes('The next leader goes on with it')")
	p.until("document.querySelector('.age').innerText.startsWith('live')")
	var id string
	p.do(p.Eval(t.Context(), "location.hash.split('/')[2]", &id))
	return id
}

// testPageAcknowledge acknowledges what blocks the drain, which then ends.
func testPageAcknowledge(t *testing.T, c *cluster, p *webPage, home *member, drain string) {
	p.shows("1 still here")
	p.click("Acknowledge …")
	p.shows("Whoever switches the machine off stops that too")
	p.fill(".confirm input", home.Name)
	p.click("Acknowledge: it stays")
	p.shows("1 stays as acknowledged")
	waitFor(t, "the end of the drain", patience, func() error {
		for _, d := range list[drainView](t, c, "/v1/drains") {
			if d.ID == drain && d.Phase == "drained" {
				return nil
			}
		}
		return fmt.Errorf("it runs")
	})
	p.until("document.querySelector('h1').innerText.includes('drained')")
	p.until(lanesSay("stays, as acknowledged"))
	p.shoot("lanes-done")
	c.must(t, "node", "uncordon", home.Name)
}

// testPageRoll rolls two nodes by a label. Each is rebooted once the page says so.
func testPageRoll(t *testing.T, c *cluster, p *webPage, home *member) {
	rolled := without(c.agents, home)[:2]
	for _, m := range rolled {
		c.must(t, "node", "label", m.Name, "rack=r1")
	}
	p.goTo("#/rolls", "No roll has begun yet")
	p.click("New roll …")
	p.fill("form input", "rack=r1")
	p.shows(fmt.Sprintf("2 nodes: %s, %s", rolled[0].Name, rolled[1].Name))
	p.click("Dry run")
	p.shows("Each of 2 nodes could be drained now.")
	p.shoot("roll-dry")
	p.click("Start the roll")
	for i, m := range rolled {
		p.until(fmt.Sprintf(`document.querySelector('.board [aria-label=Away]')?.innerText.includes('%s')`, m.Name))
		if n := c.node(t, m); n.Instances != 0 {
			t.Errorf("%s is to be rebooted and has %d instances", m.Name, n.Instances)
		}
		p.shoot(fmt.Sprint("roll-away-", i))
		m.reboot(t, i+1)
		p.until(fmt.Sprintf(`document.querySelector('.board [aria-label=Back]')?.innerText.includes('%s')`, m.Name))
	}
	p.shows("2 of 2 back")
	p.shows("done")
	p.shoot("roll-done")
	for _, m := range rolled {
		if n := c.node(t, m); !n.Eligible {
			t.Errorf("%s was not taken back: %+v", m.Name, n)
		}
	}
	id := c.rollID(t)
	if out := c.must(t, "node", "roll", "--resume", id); !strings.Contains(out, "2 of 2 done") {
		t.Errorf("the command does not understand the page's roll: %s", out)
	}
}

// testPageHold makes three of four agents silent. The page tells of the HOLD, and a person ends it there.
func testPageHold(t *testing.T, c *cluster, p *webPage) {
	c.waitEligible(t, c.agents...)
	before := c.status(t).Index
	for _, m := range c.agents[:3] {
		m.Kill()
	}
	p.shows("so nothing is evicted from them")
	p.goTo("#/problems", "No node is written offline")
	for _, m := range c.agents[:3] {
		p.until(fmt.Sprintf(`[...document.querySelectorAll('.hold tbody tr')].some(
			r => /^%s\s+no heartbeats/.test(r.innerText))`, m.Name))
	}
	p.shows("3 of 4 nodes are silent")
	p.shoot("hold")
	for _, m := range c.agents[:3] {
		m.start(t)
	}
	p.shows("No node is known to be out.")
	p.shows("It ends")
	p.shows("by itself in about")
	p.click("End the HOLD …")
	p.shoot("hold-end")
	p.until("document.querySelector('.confirm label').innerText.includes('Type')")
	var name string
	p.do(p.Eval(t.Context(), "document.querySelector('.confirm label').innerText.match(/Type (\\S+) to/)[1]", &name))
	p.fill(".confirm input", name)
	p.click("End the HOLD")
	p.until("!document.body.innerText.includes('so nothing is evicted')")
	calm(t, c.since(t, before))
	waitFor(t, "the end of the hold", patience, func() error {
		if s := c.status(t); s.Hold.Active {
			return fmt.Errorf("%s", s.Hold.Reason)
		}
		return nil
	})
}
