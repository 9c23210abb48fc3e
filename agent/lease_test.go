package agent

import (
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// S2: a node that was given up comes back into a new epoch, and its lease is held before a server has said what is assigned. What ran there may run only once
// has a holder elsewhere by now, so it is not started again, whether the agent was there all the time or the machine was rebooted.
func TestNothingFencedStartsUntilItIsAssignedAgain(t *testing.T) {
	for name, back := range map[string]func(*bubble){
		"cut off": func(*bubble) {},
		"rebooted": func(b *bubble) {
			b.end()
			clear(b.mem.tasks)
			b.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				v := newVotes()
				b.beats = v
				b.start()
				g := sh("")
				g.Exclusive = true
				id := b.run("one", g)
				b.pass(time.Second)
				b.want(id, fsm.ObservedReady, "")
				v.set(true)
				b.pass(time.Minute)
				b.mem.task(id).finish(fencedExit())
				b.pass(time.Second)
				n, _ := b.m.State().Nodes.Get(b.node())
				b.apply(&fsm.NodeHealth{ID: n.ID, Health: fsm.HealthOffline, BootID: n.Agent.BootID, Version: n.Version})
				b.apply(&fsm.NodeConfirmDead{ID: n.ID, Force: true})
				b.change(func(*transport.Assignments) { time.Sleep(20 * time.Second) })
				v.givenUp <- struct{}{}
				back(b)
				b.pass(time.Second)
				v.set(false) // servers answer for the new epoch
				b.pass(9 * time.Second)
				if n, _ = b.m.State().Nodes.Get(n.ID); n.Agent.Epoch < 2 {
					t.Fatalf("the node is still at epoch %d", n.Agent.Epoch)
				}
				if got := b.mem.starts(); got != 1 {
					t.Errorf("started %d times before it was assigned again", got)
				}
				b.change(nil)
				b.pass(time.Minute)
				if got := b.mem.starts(); got != 1 || b.mem.running() != 0 {
					t.Errorf("started %d times, and its slot is somebody else's", got)
				}
				next := b.run("two", g) // and the lease is held again
				b.pass(time.Second)
				b.want(next, fsm.ObservedReady, "")
			})
		})
	}
}
