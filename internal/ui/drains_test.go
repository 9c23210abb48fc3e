package ui

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// TestDrainsPage shows drains, rolls and a HOLD with answers that a real cluster seldom gives.
func TestDrainsPage(t *testing.T) {
	t.Parallel()
	inBrowser(t, map[string]func(*testing.T, *cluster, *tab){
		"lanes": testLanes, "blocked": testBlocked, "turns": testTurns, "leader gone": testLeaderGone,
		"canceled": testCanceled, "empty": testEmptyDrain, "many": testManyLanes,
		"hold": testHold, "hold without the right": testHoldOnly, "board": testBoard, "roll": testRoll,
		"roll refused": testRollRefused, "roll late": testRollLate,
	})
}

// ago returns the time some seconds ago.
func ago(seconds float64) *time.Time {
	at := time.Now().Add(-time.Duration(seconds * float64(time.Second))).UTC().Truncate(time.Millisecond)
	return &at
}

// moving is a drain of n1 that began 40 s ago: one instance has moved, others are at each step.
func moving() api.Drain {
	lane := func(slot int, target, replacement string) api.DrainLane {
		return api.DrainLane{Node: "n1", NodeID: "1", Instance: model.InstanceID(fmt.Sprint("old", slot)), Group: "web/http",
			Slot: slot, State: model.ObservedReady, Target: target, Replacement: model.InstanceID(replacement)}
	}
	moved, ready, starting, pulling, waiting := lane(0, "n2", "new0"), lane(1, "n3", "new1"), lane(2, "n2", "new2"),
		lane(3, "n3", ""), lane(4, "", "")
	moved.ReservedAt, moved.StartedAt, moved.ReadyAt = ago(38), ago(36), ago(30)
	moved.StoppingAt, moved.StoppedAt, moved.State = ago(29), ago(25), model.ObservedStopped
	ready.ReservedAt, ready.StartedAt, ready.ReadyAt, ready.StoppingAt = ago(30), ago(28), ago(12), ago(6)
	starting.ReservedAt, starting.StartedAt = ago(20), ago(15)
	pulling.ReservedAt, pulling.Pulling = ago(18), "registry/web@sha256:1"
	d := api.Drain{ID: "d1", Phase: model.PhaseDraining, Actor: "cert:me", CreatedAt: *ago(40),
		Options: model.DrainOptions{Deadline: model.Hour}, Rejected: []model.DrainRefusal{},
		Lanes: []api.DrainLane{moved, ready, starting, pulling, waiting}}
	node := api.DrainNode{Node: "n1", NodeID: "1", Phase: model.PhaseDraining, Turn: true, StartedAt: ago(40), Moved: 2,
		Deadline: ago(-3560), Remaining: []api.DrainRemaining{}, Blockers: []api.DrainBlocker{}}
	for _, l := range d.Lanes[1:] {
		node.Remaining = append(node.Remaining, api.DrainRemaining{Instance: l.Instance, State: "ready"})
	}
	node.Remaining[0].InMoved = true
	node.Remaining[3].Blocker = model.CodeBudgetMinReady
	d.Nodes = []api.DrainNode{node}
	return d
}

// blocked is the drain of moving with a local volume that keeps it from ending.
func blocked() api.Drain {
	d := moving()
	n := &d.Nodes[0]
	n.Remaining[3].Blocker = model.CodeVolumeLocal
	n.Blockers = []api.DrainBlocker{{Code: model.CodeVolumeLocal, Instance: "old4",
		Message: "instance old4 holds the local volume db/pg/0/data",
		Unblock: "move the volume: outspan volume migrate db/pg/0/data --to NODE; or accept that it stays: outspan node " +
			"ack-blockers n1 old4"}}
	return d
}

func (c *cluster) show(path string, v any) { c.change(func() { c.answers[path] = jsonOf(v) }) }

// posted waits until a body was posted, and returns the last one with its path.
func (c *cluster) posted(t *testing.T, count int) string {
	t.Helper()
	for range 500 {
		var all []string
		c.change(func() { all = slices.Clone(c.bodies) })
		if len(all) >= count {
			return all[len(all)-1]
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("nothing was posted")
	return ""
}

// Each instance has a lane that says in words and bars how far it is. Pausing can be undone.
func testLanes(t *testing.T, c *cluster, v *tab) {
	c.show("/v1/drains/d1", moving())
	c.answers["/v1/drains/d1/pause"] = `{}`
	v.run("location.hash = '#/drains/d1'")
	for _, text := range []string{"moved to n2 in 13 s", "ready on n3, the old one stops", "starts on n2",
		"n3 pulls its image", "waits: budget min ready"} {
		v.shows(text)
	}
	// The bars stand on one axis: what began earlier is further left, and the replacement begins before the old one stops.
	v.until(`(() => {
		const lanes = document.querySelectorAll('.lanes .lane:not(.head)')
		const at = (lane, kind) => lanes[lane].querySelector('b.' + kind).getBoundingClientRect()
		return at(0, 'placed').left < at(1, 'placed').left && at(1, 'placed').left < at(2, 'placed').left &&
			at(1, 'ready').left < at(1, 'stops').left && at(0, 'ready').left < at(0, 'stops').left
	})()`)
	v.shoot("lanes")
	v.click("Pause")
	if got := c.posted(t, 1); got != "/v1/drains/d1/pause " {
		t.Errorf("posted %q", got)
	}
	v.shows("Paused. The deadline goes on.")
	v.apart(".heading", ".lanes", "main")
	v.click("Undo")
	if got := c.posted(t, 2); got != "/v1/drains/d1/resume " {
		t.Errorf("posted %q", got)
	}
}

// Blockers come first. An acknowledgement says what it means, and needs the name of the node.
func testBlocked(t *testing.T, c *cluster, v *tab) {
	c.show("/v1/drains/d1", blocked())
	c.answers["/v1/nodes/n1/ack-blockers"] = `{}`
	v.run("location.hash = '#/drains/d1'")
	v.shows("holds the local volume db/pg/0/data")
	v.until("document.querySelector('p.legend').compareDocumentPosition(document.querySelector('.lanes')) & 4")
	v.until("document.querySelector('main .blockers').compareDocumentPosition(document.querySelector('.lanes')) & 4")
	v.shoot("blocked")
	v.click("Acknowledge …")
	v.shows("Whoever switches the machine off stops that too")
	v.shoot("acknowledge")
	v.until(button("Acknowledge: it stays") + ".disabled")
	v.fill(".confirm input", "n1")
	more := blocked() // what comes while the form is open was not read, and is not acknowledged
	n := &more.Nodes[0]
	n.Blockers = append(n.Blockers, api.DrainBlocker{Code: model.CodeVolumeLocal, Instance: "old3",
		Message: "instance old3 holds a local volume", Unblock: "outspan node ack-blockers n1 old3"})
	c.show("/v1/drains/d1", more)
	v.shows("waits, for 2 reasons")
	v.until("[...document.querySelectorAll('.confirm li')].map(e => e.innerText).join() === 'old4'")
	v.shows("outspan node ack-blockers n1 old4")
	v.click("Acknowledge: it stays")
	if got := c.posted(t, 1); got != `/v1/nodes/n1/ack-blockers {"instances":["old4"]}` {
		t.Errorf("posted %q", got)
	}
	v.until("!document.querySelector('.confirm')")
	d := blocked()
	d.Nodes[0].Blockers, d.Nodes[0].Acked, d.Lanes[4].Acked = []api.DrainBlocker{}, 1, true
	d.Nodes[0].Remaining[3].Blocker = ""
	c.show("/v1/drains/d1", d)
	v.shows("stays, as acknowledged")
	// Without the right, nothing is offered.
	c.change(func() {
		c.answers["/v1/auth/can-i"] = `{"allowed":false}`
		c.answers["/v1/drains/d1"] = jsonOf(blocked())
	})
	v.until("document.body.innerText.includes('holds the local volume') && !" + button("Pause") + " && !" +
		button("Acknowledge …"))
}

// A drain of several nodes shows whose turn it is.
func testTurns(_ *testing.T, c *cluster, v *tab) {
	d := moving()
	d.Options.MaxParallelNodes = 1
	for i := 2; i <= 4; i++ {
		d.Nodes = append(d.Nodes, api.DrainNode{Node: fmt.Sprint("n", i), NodeID: model.NodeID(fmt.Sprint(i)),
			Phase: model.PhaseDraining, Remaining: []api.DrainRemaining{}, Blockers: []api.DrainBlocker{}})
	}
	c.show("/v1/drains/d1", d)
	v.run("location.hash = '#/drains/d1'")
	v.shows("1 node at once")
	v.until(`(() => {
		const rows = [...document.querySelectorAll('main table tbody tr')].map(r => r.children[1].innerText)
		return rows.join() === 'now,next,1 before it,2 before it'
	})()`)
	v.shoot("turns")
}

// Without a leader the drain is shown as it was last known, and the page says that it isn't lost.
func testLeaderGone(_ *testing.T, c *cluster, v *tab) {
	c.show("/v1/drains/d1", moving())
	v.run("location.hash = '#/drains/d1'")
	v.shows("moved to n2")
	c.change(func() { c.errors["/v1/drains/d1"] = model.Refuse(model.CodeNoLeader, "nobody leads") })
	v.shows("The next leader goes on with it")
	v.shows("what one server knows: nobody leads")
	v.shoot("leader-gone")
	c.change(func() { clear(c.errors) })
	v.until("!document.body.innerText.includes('The next leader goes on')")
}

// A cancel can't be undone: it says what it means and needs the name of the node. A canceled drain stands still.
func testCanceled(t *testing.T, c *cluster, v *tab) {
	c.show("/v1/drains/d1", moving())
	c.answers["/v1/drains/d1/cancel"] = `{}`
	v.run("location.hash = '#/drains/d1'")
	v.click("Cancel the drain …")
	v.shows("what has moved does not come back")
	v.until(button("Cancel the drain") + ".disabled")
	v.run("document.querySelector('.confirm input[type=checkbox]').click()")
	v.shows("outspan drain cancel d1 --uncordon")
	v.fill(".confirm input:not([type=checkbox])", "n1")
	v.click("Cancel the drain")
	if got := c.posted(t, 1); got != `/v1/drains/d1/cancel {"uncordon":true}` {
		t.Errorf("posted %q", got)
	}
	d := moving()
	d.Phase, d.Nodes[0].Phase, d.Nodes[0].EndedAt, d.Nodes[0].Remaining = model.PhaseCanceled, model.PhaseCanceled, ago(1),
		[]api.DrainRemaining{}
	c.show("/v1/drains/d1", d)
	v.until(`[...document.querySelectorAll('.lanes .how')].slice(-3).map(e => e.innerText).join() ===
		'still here,still here,still here'`) // also where a replacement had begun
	v.until("!" + button("Cancel the drain …"))
	v.shoot("canceled")
	done := moving()
	done.Phase, done.Nodes[0].Phase, done.Nodes[0].EndedAt, done.Nodes[0].Moved = model.PhaseDrained, model.PhaseDrained,
		ago(2), 5
	done.Nodes[0].Remaining = []api.DrainRemaining{}
	for i := range done.Lanes {
		l := &done.Lanes[i]
		l.Target, l.Replacement, l.Pulling = "n2", "new", ""
		from := 38 - float64(i)*5
		l.ReservedAt, l.StartedAt, l.ReadyAt, l.StoppingAt, l.StoppedAt = ago(from), ago(from-2), ago(from-8), ago(from-9),
			ago(from-12)
	}
	c.show("/v1/drains/d1", done)
	v.shows("5 of 5 gone")
	v.shoot("done")
}

// A drain of an empty node has no lanes and says so.
func testEmptyDrain(_ *testing.T, c *cluster, v *tab) {
	d := moving()
	d.Lanes, d.Nodes[0].Remaining, d.Nodes[0].Moved = nil, []api.DrainRemaining{}, 0
	c.show("/v1/drains/d1", d)
	v.run("location.hash = '#/drains/d1'")
	v.shows("there is nothing to move")
	v.until("document.querySelector('.facts .num').innerText === 'nothing to move'")
	v.shoot("empty")
}

// Forty lanes fit.
func testManyLanes(_ *testing.T, c *cluster, v *tab) {
	d := moving()
	for i := range 35 {
		l := d.Lanes[i%5]
		l.Slot, l.Instance = i+5, model.InstanceID(fmt.Sprint("more", i))
		d.Lanes = append(d.Lanes, l)
	}
	c.show("/v1/drains/d1", d)
	v.run("location.hash = '#/drains/d1'")
	v.until("document.querySelectorAll('.lanes .lane:not(.head)').length === 40")
	v.shoot("forty")
}
