package ui

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// TestDrainWords looks at how a drain counts, what it calls a wait, and how its nodes are taken back.
func TestDrainWords(t *testing.T) {
	t.Parallel()
	inBrowser(t, map[string]func(*testing.T, *cluster, *tab){
		"counts": testCounts, "stopping": testStopping, "paused": testPausedDrain, "take back": testTakeBack,
		"not taken back": testNotTakenBack,
	})
}

// Each instance counts once, although the servers count it as moved when its stop begins.
func testCounts(_ *testing.T, c *cluster, v *tab) {
	c.show("/v1/drains/d1", moving())
	v.run("location.hash = '#/drains/d1'")
	v.shows("1 of 5 gone")
	v.shows("1 gone, 1 stopping, 3 still here")
	scaled := moving() // somebody else has ordered the stop of the last one
	scaled.Nodes[0].Remaining[3].State, scaled.Nodes[0].Remaining[3].Blocker = "draining", model.CodeStopping
	c.show("/v1/drains/d1", scaled)
	v.shows("1 gone, 2 stopping, 2 still here")
	acked := moving()
	n := &acked.Nodes[0]
	acked.Phase, n.Phase, n.EndedAt, n.Moved, n.Acked, n.Remaining = model.PhaseDrained, model.PhaseDrained, ago(1), 1, 1,
		[]api.DrainRemaining{}
	acked.Lanes = nil
	c.show("/v1/drains/d1", acked)
	v.shows("1 of 2 gone, 1 stays")
	canceled := moving() // and taken back: only the lanes tell what stayed
	n = &canceled.Nodes[0]
	canceled.Phase, n.Phase, n.EndedAt, n.Remaining = model.PhaseCanceled, model.PhaseCanceled, ago(1),
		[]api.DrainRemaining{}
	c.show("/v1/drains/d1", canceled)
	v.shows("1 of 5 gone")
}

// A stop that goes on is no wait. What can't be acknowledged says so.
func testStopping(_ *testing.T, c *cluster, v *tab) {
	d := moving()
	d.Nodes[0].Remaining[0].Blocker = model.CodeStopping
	d.Nodes[0].Blockers = []api.DrainBlocker{{Code: model.CodeStopping, Instance: "old1", Message: "it is stopping"}}
	c.show("/v1/drains/d1", d)
	v.run("location.hash = '#/drains/d1'")
	v.shows("3 still here")
	v.until("!document.querySelector('main .blockers') && !document.body.innerText.includes('reason')")
	d.Nodes[0].Blockers = append(d.Nodes[0].Blockers, api.DrainBlocker{Code: model.CodeBudgetMinReady, Instance: "old4",
		Message: "2 of 3 are ready", Unblock: "outspan budget set web --min-ready 1"})
	c.show("/v1/drains/d1", d)
	v.shows("waits, for 1 reason")
	v.shows("can't be acknowledged")
	v.until("!" + button("Acknowledge …"))
}

// The code of a paused drain is that of a paused cluster.
func testPausedDrain(_ *testing.T, c *cluster, v *tab) {
	d := moving()
	d.Paused = true
	for i := range d.Nodes[0].Remaining[1:] {
		r := &d.Nodes[0].Remaining[1+i]
		r.Blocker = model.CodePaused
		d.Nodes[0].Blockers = append(d.Nodes[0].Blockers, api.DrainBlocker{Code: model.CodePaused, Instance: r.Instance,
			Message: "the drain is paused", Unblock: "outspan drain resume d1"})
	}
	c.show("/v1/drains/d1", d)
	c.answers["/v1/events"] = `{"id":"1.0","type":"drain.phase_changed","subject":"drain/d1","time":"2026-01-01T00:00:00Z",` +
		`"index":1,"cause":"","actor":"me","data":{"before":"draining","after":"draining","paused":"true"}}` + "\n"
	v.run("location.hash = '#/drains/d1'")
	v.shows("waits: the drain is paused")
	v.shows("waits, for 1 reason")
	v.until("!/actuation.paused/.test(document.body.innerText)")
	v.run("location.hash = '#/events'")
	v.until("[...document.querySelectorAll('main td')].some(e => e.innerText === 'paused')")
}

// drained is the node n1 after its drain d1.
func drained() string {
	return strings.Replace(strings.Replace(nodeN1, `"intent":"active"`, `"intent":"draining","drain_id":"d1"`, 1),
		`"drain_phase":""`, `"drain_phase":"drained"`, 1)
}

// A node is taken back on its own page, and on that of its drain.
func testTakeBack(t *testing.T, c *cluster, v *tab) {
	d := moving()
	d.Phase, d.Nodes[0].Phase = model.PhaseDrained, model.PhaseDrained
	c.show("/v1/drains/d1", d)
	c.change(func() {
		c.answers["/v1/nodes"], c.answers["/v1/nodes/n1"] = `{"items":[`+drained()+`]}`, drained()
		c.answers["/v1/nodes/n1/uncordon"] = `{}`
	})
	for i, screen := range []string{"#/nodes/n1", "#/drains/d1"} {
		v.run("location.hash = '" + screen + "'")
		v.click("Take n1 back …")
		v.shows("outspan node uncordon n1")
		v.shoot(fmt.Sprint("take-back", i))
		v.click("Take it back")
		if got := c.posted(t, i+1); got != "/v1/nodes/n1/uncordon {}" {
			t.Errorf("posted %q", got)
		}
	}
	going := strings.Replace(drained(), `"drain_phase":"drained"`, `"drain_phase":"draining"`, 1)
	c.change(func() { c.answers["/v1/nodes/n1"] = going })
	v.run("location.hash = '#/nodes/n1'")
	v.shows("Show its drain")
	v.until("!" + button("Take n1 back …"))
}

// Who may not take a node back, or drain it, reads whom to ask.
func testNotTakenBack(_ *testing.T, c *cluster, v *tab) {
	c.change(func() {
		c.answers["/v1/auth/can-i"], c.answers["/v1/nodes/n1"] = `{"allowed":false}`, drained()
	})
	v.run("location.hash = '#/nodes/n1'")
	v.shows("You may not take n1 back. Ask an administrator")
	v.shows("outspan auth can-i node.cordon n1 --as me")
	v.run("location.hash = '#/drain/n1'")
	v.shows("outspan auth can-i node.drain n1 --as me")
	v.shoot("may-not-drain")
}
