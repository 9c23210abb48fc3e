package agent

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// votes are heartbeats that are answered, or not, as the test says.
type votes struct {
	mu      sync.Mutex
	last    time.Time // when the last confirmed heartbeat was sent
	silent  bool
	givenUp chan uint64
	facts   [][2]uint64 // epoch and generation, as they were told
}

func newVotes() *votes { return &votes{givenUp: make(chan uint64, 1)} }

func (v *votes) Register([]byte, uint64, time.Duration) {}
func (v *votes) SetInterval(time.Duration)              {}
func (v *votes) GivenUp() <-chan uint64                 { return v.givenUp }

func (v *votes) SetFacts(epoch, generation uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.facts = append(v.facts, [2]uint64{epoch, generation})
}

func (v *votes) LeaseUntil(length time.Duration) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.silent {
		v.last = time.Now()
	}
	if v.last.IsZero() {
		return time.Time{}
	}
	return v.last.Add(length)
}

func (v *votes) set(silent bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.silent = silent
}

func (v *votes) told() [][2]uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.facts)
}

// exclusive is a group whose instances need the lease.
func exclusive() fsm.GroupSpec {
	g := sh("")
	g.Exclusive = true
	return g
}

// runExclusive runs an exclusive instance while the lease is held, so that it is ready at once.
func (b *bubble) runExclusive(job string) fsm.InstanceID {
	b.t.Helper()
	id := b.run(job, exclusive())
	b.pass(time.Second)
	b.want(id, fsm.ObservedReady, "")
	return id
}

// A fenced instance starts under a lease only, and the end of its lease moves as long as servers answer, and no longer.
func TestLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		v := newVotes()
		v.silent = true
		b.beats = v
		b.start()
		id := b.run("one", exclusive())
		free := b.run("free", sh(""))
		b.pass(10 * time.Second)
		if b.mem.task(id) != nil || b.mem.task(free) == nil {
			t.Fatal("it was started without a lease, or the other one was not")
		}
		v.set(false)
		b.pass(time.Second)
		b.want(id, fsm.ObservedReady, "")
		length := 6 * 300 * time.Millisecond
		for range 20 {
			b.pass(time.Second)
			if left := time.Duration(b.mem.task(id).lease() - b.mem.BootNow()); left < length-500*time.Millisecond || left > length {
				t.Fatalf("%v of the lease left, of %v", left, length)
			}
		}
		v.set(true)
		b.pass(100 * time.Millisecond)
		end := b.mem.task(id).lease()
		b.pass(time.Minute)
		if b.mem.task(id).lease() != end {
			t.Error("the lease moved although nobody answered")
		}
		// The shim kills it; it comes back with the lease, not before.
		b.mem.task(id).finish(fencedExit())
		b.pass(time.Minute)
		b.want(id, fsm.ObservedUnready, "fenced")
		v.set(false)
		b.pass(time.Second)
		b.want(id, fsm.ObservedReady, "")
	})
}

// A new interval of heartbeats is that of the lease too: one that lasts for two seconds ends between beats that come every ten.
func TestLeaseFollowsTheInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.beats = newVotes()
		b.start()
		id := b.runExclusive("one")
		b.change(func(a *transport.Assignments) { a.Heartbeat = 10 * fsm.Second })
		settings := b.m.State().Settings
		settings.OfflineAfter = 2 * fsm.Minute
		b.apply(&fsm.SettingsSet{Settings: settings})
		b.pass(time.Second)
		if left := time.Duration(b.mem.task(id).lease() - b.mem.BootNow()); left < 59*time.Second {
			t.Errorf("%v of the lease left, of 1m", left)
		}
	})
}

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
				id := b.runExclusive("one")
				v.set(true)
				b.pass(time.Minute)
				b.mem.task(id).finish(fencedExit())
				b.pass(time.Second)
				n, _ := b.m.State().Nodes.Get(b.node())
				b.apply(&fsm.NodeHealth{ID: n.ID, Health: fsm.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch})
				b.apply(&fsm.NodeConfirmDead{ID: n.ID, Force: true})
				b.change(func(*transport.Assignments) { time.Sleep(20 * time.Second) })
				v.givenUp <- n.Agent.Epoch
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
				b.runExclusive("two") // and the lease is held again
			})
		})
	}
}

// S2: a restored state does not know of the holder that another node has by now. Nothing fenced is started before a person confirms, and then not before
// the other node has heard that it must end it, and has had its grace. What holds no lease is started at once; what runs goes on.
func TestNothingFencedStartsBehindARestore(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted=%v", restarted), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.beats = newVotes()
				b.start()
				running := b.runExclusive("running")
				b.apply(&fsm.RestoreMark{})
				free := b.run("free", sh(""))
				id := b.run("one", exclusive())
				b.pass(10 * time.Minute)
				b.want(free, fsm.ObservedReady, "")
				b.want(running, fsm.ObservedReady, "")
				if b.mem.task(id) != nil {
					t.Fatal("it was started although nobody has confirmed the restore")
				}
				b.apply(&fsm.RestoreMark{Confirm: true})
				confirmed := time.Now()
				b.stop(free, nil) // the poll that is under way is answered
				if restarted {
					b.pass(time.Second)
					b.end()
					b.start()
				}
				length, grace := 6*300*time.Millisecond, asDuration(exclusive().Stop.Grace)
				b.pass(length + grace - time.Since(confirmed) - time.Second)
				if b.mem.task(id) != nil {
					t.Fatal("it was started while the holder elsewhere still had its grace")
				}
				b.pass(3 * time.Second)
				b.want(id, fsm.ObservedReady, "")
			})
		})
	}
}
