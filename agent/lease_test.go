package agent

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// votes replaces the heartbeats of an agent. The test sets whether servers answer them.
type votes struct {
	mu      sync.Mutex
	last    time.Time // when the last confirmed heartbeat was sent
	silent  bool
	every   time.Duration
	givenUp chan uint64
	facts   [][2]uint64 // epoch and generation of each call of SetFacts
}

func newVotes() *votes { return &votes{givenUp: make(chan uint64, 1)} }

func (v *votes) Register([]byte, uint64, time.Duration) {}
func (v *votes) GivenUp() <-chan uint64                 { return v.givenUp }

func (v *votes) SetInterval(every time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.every = every
}

func (v *votes) interval() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.every
}

func (v *votes) SetAnswered(time.Time) {}

func (v *votes) SetVoters(string, uint64, []model.ServerID) {}

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

// exclusive returns a group whose instances may run only under a lease.
func exclusive() model.GroupSpec {
	g := sh("")
	g.Exclusive = &model.ExclusiveSpec{Lease: model.Minute}
	return g
}

// runExclusive runs an exclusive instance, and checks that it is ready after a second. Heartbeats must be answered.
func (b *bubble) runExclusive(job string) model.InstanceID {
	b.t.Helper()
	id := b.run(job, exclusive())
	b.pass(time.Second)
	b.want(id, model.ObservedReady, "")
	return id
}

// An exclusive instance starts only while heartbeats are answered. Without answers, its lease is not extended.
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
		b.want(id, model.ObservedReady, "")
		length := time.Minute
		for range 20 {
			b.pass(time.Second)
			if left := time.Duration(b.mem.task(id).lease() - b.mem.BootNow()); left < length-500*time.Millisecond ||
				left > length {
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
		// The shim kills the program. The program starts again only once heartbeats are answered.
		b.mem.task(id).finish(fencedExit())
		b.pass(time.Minute)
		b.want(id, model.ObservedUnready, "fenced")
		v.set(false)
		b.pass(time.Second)
		b.want(id, model.ObservedReady, "")
	})
}

// The length of a lease is that of its group, whatever the interval of heartbeats. At least six heartbeats are sent
// within the shortest lease.
func TestLeaseIsTheGroupsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		v := newVotes()
		b.beats = v
		b.start()
		settings := b.m.State().Settings
		settings.OfflineAfter = 2 * model.Minute
		b.apply(&fsm.SettingsSet{Settings: settings})
		b.change(func(a *transport.Assignments) { a.Heartbeat = 10 * model.Second })
		long := b.runExclusive("long")
		if every := v.interval(); every != 10*time.Second {
			t.Errorf("a heartbeat every %v, the servers want one every 10s", every)
		}
		g := exclusive()
		g.Exclusive.Lease = 12 * model.Second
		short := b.run("short", g)
		b.pass(time.Second)
		if every := v.interval(); every != 2*time.Second {
			t.Errorf("a heartbeat every %v, want a sixth of the shortest lease, 2s", every)
		}
		for id, length := range map[model.InstanceID]time.Duration{long: time.Minute, short: 12 * time.Second} {
			if left := time.Duration(b.mem.task(id).lease() - b.mem.BootNow()); left < length-time.Second || left > length {
				t.Errorf("%v of the lease left, of %v", left, length)
			}
		}
	})
}

// Programs without a lease continue while no server answers. A program that fails meanwhile is restarted in place, also
// by a restarted agent. Only after a reboot of the machine do instances that must not run twice wait for the servers.
func TestOneHolderWithoutServers(t *testing.T) {
	for name, tt := range map[string]struct {
		reboot, restart, starts bool
	}{
		"same agent": {starts: true}, "agent restarted": {restart: true, starts: true},
		"machine rebooted": {restart: true, reboot: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				v := newVotes()
				b.beats, b.host = v, "boot 1"
				b.start()
				g := sh("")
				g.Role, g.RoleCheck = model.RoleQuorum, &model.RoleCheckSpec{Exec: []string{"/bin/true"}}
				one, free := b.run("one", g), b.run("free", sh(""))
				b.pass(time.Second)
				b.want(one, model.ObservedReady, "")
				b.setDown(true)
				v.set(true)
				b.pass(24 * time.Hour)
				if b.mem.running() != 2 {
					t.Fatalf("S17: %d of 2 run on after a day without servers", b.mem.running())
				}
				if tt.reboot {
					b.host = "boot 2"
				}
				if tt.restart {
					b.end()
				}
				b.mem.task(one).finish(memExit(1))
				b.mem.task(free).finish(memExit(1))
				if tt.restart {
					b.start()
				}
				b.pass(time.Hour)
				if got := b.mem.task(free); ended(got) {
					t.Error("what may run anywhere was not started again without servers")
				}
				if got := !ended(b.mem.task(one)); got != tt.starts {
					t.Errorf("S17: runs without servers: %v, want %v", got, tt.starts)
				}
				b.setDown(false)
				v.set(false)
				b.pass(time.Minute)
				b.pass(time.Minute)
				if ended(b.mem.task(one)) {
					t.Error("it does not run although it is assigned again")
				}
			})
		})
	}
}

// S2: a node that was offline returns with a new epoch, and its heartbeats are answered before it gets its assignments.
// By then, another node may run the exclusive instance. So the agent does not start the instance before the servers
// assign it again, whether the agent ran all the time or the machine was rebooted.
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
				b.apply(&fsm.NodeHealth{ID: n.ID, Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch})
				b.apply(&fsm.NodeConfirmDead{ID: n.ID, Force: true})
				b.change(func(*transport.Assignments) { time.Sleep(20 * time.Second) })
				v.givenUp <- n.Agent.Epoch
				back(b)
				b.pass(time.Second)
				v.set(false) // servers answer heartbeats of the new epoch
				b.pass(9 * time.Second)
				if n, _ = b.m.State().Nodes.Get(n.ID); n.Registrations < 2 {
					t.Fatal("the node has not registered again")
				}
				if got := b.mem.starts(); got != 1 {
					t.Errorf("started %d times before it was assigned again", got)
				}
				b.change(nil)
				b.pass(time.Minute)
				if got := b.mem.starts(); got != 1 || b.mem.running() != 0 {
					t.Errorf("started %d times, and its slot is somebody else's", got)
				}
				b.runExclusive("two") // with heartbeats answered again, another instance can start
			})
		})
	}
}

// S2: a restored state may not know that another node runs an exclusive instance by now. The agent does not start the
// instance before an operator has confirmed the restore. After that, the agent waits for the length of the lease and
// the grace, so that a holder elsewhere has stopped. Instances without a lease start at once, and running instances
// continue.
func TestNothingFencedStartsBehindARestore(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted=%v", restarted), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.beats = newVotes()
				b.start()
				running := b.runExclusive("running")
				id := model.InstanceID("one") // the restored state has it, but the agent does not
				b.apply(&fsm.InstancePlace{ID: id, Group: b.submit("one", exclusive()), Version: 1, Node: b.node(),
					Cause: model.CauseScaleUp}, &fsm.RestoreMark{})
				b.pass(time.Second) // nothing is placed here before the agent's inventory has arrived
				free := b.run("free", sh(""))
				b.pass(10 * time.Minute)
				b.want(free, model.ObservedReady, "")
				b.want(running, model.ObservedReady, "")
				if b.mem.task(id) != nil {
					t.Fatal("it was started although nobody has confirmed the restore")
				}
				b.apply(&fsm.RestoreMark{Confirm: true})
				confirmed := time.Now()
				b.stop(free, nil) // so that the long poll is answered
				if restarted {
					b.pass(time.Second)
					b.end()
					b.start()
				}
				length, grace := time.Minute, asDuration(exclusive().Stop.Grace)
				b.pass(length + grace - time.Since(confirmed) - time.Second)
				if b.mem.task(id) != nil {
					t.Fatal("it was started while the holder elsewhere still had its grace")
				}
				b.pass(3 * time.Second)
				b.want(id, model.ObservedReady, "")
			})
		})
	}
}
