package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// When a stop begins, the instance is no longer ready. Its program gets the stop signal after the drain delay, and is
// killed if it still runs at the end of the grace.
func TestDrainTimes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.mem.stubborn = true
		b.start()
		g := sh("")
		g.Stop = model.StopSpec{DrainDelay: 2 * model.Second, Grace: 7 * model.Second}
		id := b.run("web", g)
		b.pass(time.Second)
		b.want(id, model.ObservedReady, "")
		b.stop(id, nil)
		b.pass(100 * time.Millisecond)
		b.want(id, model.ObservedDraining, "")
		b.pass(1800 * time.Millisecond)
		if task := b.mem.task(id); ended(task) || task.asked() {
			t.Error("the signal was sent within the drain delay")
		}
		b.pass(200 * time.Millisecond)
		if task := b.mem.task(id); ended(task) || !task.asked() {
			t.Error("no signal after the drain delay")
		}
		b.pass(6800 * time.Millisecond)
		if ended(b.mem.task(id)) {
			t.Error("killed within its grace")
		}
		b.pass(200 * time.Millisecond)
		b.want(id, model.ObservedStopped, "killed_after_grace")
	})
}

func (t *memTask) asked() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kill != nil
}

// Each restart is delayed twice as long as the one before. When the program ends more than Attempts times within
// Interval, the instance fails.
func TestRestartBackOff(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.mem.lifetime = 10 * time.Second
		b.start()
		g := sh("")
		g.Restart = model.RestartSpec{Attempts: 3, Interval: 2 * model.Minute, Delay: 5 * model.Second}
		id := b.run("web", g)
		b.pass(9200 * time.Millisecond)
		b.want(id, model.ObservedReady, "")
		// The program ends 10 s after each start. The delays before its restarts are 5, 10 and 20 s.
		for n, delay := range []time.Duration{5, 10, 20} {
			b.pass(time.Second)
			b.want(id, model.ObservedUnready, "exited")
			b.pass(delay*time.Second - time.Second)
			if b.mem.starts() != n+1 {
				t.Errorf("restart %d came early", n+1)
			}
			b.pass(time.Second + 500*time.Millisecond)
			if b.mem.starts() != n+2 {
				t.Errorf("restart %d did not come", n+1)
			}
			b.want(id, model.ObservedReady, "")
			b.pass(8600 * time.Millisecond)
		}
		b.pass(time.Second)
		if i := b.want(id, model.ObservedFailed, "crash_loop"); i.Status.Restarts != 3 {
			t.Errorf("%d restarts", i.Status.Restarts)
		}
		b.pass(10 * time.Minute)
		if b.mem.starts() != 4 {
			t.Error("a failed instance was started again")
		}
	})
}

// A program that crashes now and then, but never too often within the interval, is restarted forever.
func TestRareCrashesAreForgiven(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.mem.lifetime = time.Minute
		b.start()
		g := sh("")
		g.Restart = model.RestartSpec{Attempts: 3, Interval: 3 * model.Minute, Delay: model.Second}
		id := b.run("web", g)
		b.pass(2 * time.Hour)
		if i := b.instance(id); i.Status.Observed == model.ObservedFailed || i.Status.Restarts < 100 {
			t.Errorf("after two hours: %+v", i.Status)
		}
	})
}

// A program that ends before settleTime is never reported as ready. This also holds if the agent learns of the end
// late, because the machine is busy or the program left child processes.
func TestSettles(t *testing.T) {
	for _, lateness := range []time.Duration{0, settleTime, 10 * time.Second} {
		t.Run(lateness.String(), func(t *testing.T) { testSettles(t, lateness) })
	}
}

func testSettles(t *testing.T, lateness time.Duration) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.mem.lifetime, b.mem.lateness = settleTime/2, lateness
		b.start()
		id := b.run("web", sh(""))
		b.pass(time.Minute)
		b.want(id, model.ObservedFailed, "crash_loop")
		if strings.Contains(strings.Join(b.history(id), ","), "ready") {
			t.Errorf("history %q", b.history(id))
		}
	})
}

// Two instances of one slot never run at once on a volume, whatever the servers say.
func TestVolumeIsExclusive(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.mem.stubborn = true
		b.start()
		g := sh("")
		g.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
		g.Stop = model.StopSpec{DrainDelay: model.Second, Grace: 20 * model.Second}
		group := b.submit("db", g)
		old := b.place(group, 0, b.node(), nil)
		b.pass(time.Second)
		b.want(old, model.ObservedReady, "")
		b.stop(old, nil)
		b.pass(5 * time.Second)
		// The agent gets a second instance of the slot, as from a faulty server, because the real state would refuse the
		// placement. The servers' answers lack this instance. The agent does not stop it, because the answers are
		// unconfirmed.
		b.change(func(a *transport.Assignments) { a.Unconfirmed = true })
		next := b.wantedOf(old)
		next.ID = "next"
		b.agent.supervisors.begin(newInstance(b.agent.shared, newEntry(next), nil, false))
		b.pass(5 * time.Second)
		if b.mem.starts() != 1 {
			t.Fatal("a second program was started on the volume")
		}
		b.pass(12 * time.Second) // now the grace is over
		b.want(old, model.ObservedStopped, "killed_after_grace")
		if b.mem.starts() != 2 || b.mem.running() != 1 {
			t.Errorf("%d starts, %d running", b.mem.starts(), b.mem.running())
		}
	})
}

func (b *bubble) wantedOf(id model.InstanceID) transport.Assignment {
	a := b.agent.supervisors.member(id).wanted()
	a.Desired = model.DesiredRunning
	return a
}

// If no server can be reached, reports are only delayed. The servers get the newest state of each instance afterwards.
func TestReportsAreResent(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.start()
		id := b.run("web", sh(""))
		b.pass(time.Second)
		b.want(id, model.ObservedReady, "")
		b.setDown(true)
		b.mem.task(id).finish(memExit(9))
		b.pass(3 * time.Minute)
		if b.mem.starts() != 2 {
			t.Error("it was not restarted while the servers were away")
		}
		b.want(id, model.ObservedReady, "") // the state that was reported before the servers were down
		b.setDown(false)
		b.pass(10 * time.Second)
		if i := b.want(id, model.ObservedReady, ""); i.Status.Restarts != 1 {
			t.Errorf("%+v", i.Status)
		}
	})
}

// Simultaneous changes of many instances are sent in few reports.
func TestReportsAreBatched(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.start()
		g := sh("")
		g.Count = 40
		group := b.submit("web", g)
		before := b.count("report")
		for slot := range 40 {
			b.place(group, slot, b.node(), nil)
		}
		b.pass(2 * time.Second)
		st := b.m.State()
		if row, _ := st.Groups.Get(group); row.Ready != 40 {
			t.Errorf("%d ready", row.Ready)
		}
		if n := b.count("report") - before; n > 8 {
			t.Errorf("%d reports for 40 instances", n)
		}
	})
}

// A settled node sends no report and no registration, however long it runs.
func TestQuiet(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.start()
		b.run("web", sh(""))
		b.pass(5 * time.Second)
		reports, registrations, index := b.count("report"), b.count("register"), b.m.State().Index
		b.pass(24 * time.Hour)
		if b.count("report") != reports || b.count("register") != registrations || b.m.State().Index != index {
			t.Errorf("reports %d -> %d, registrations %d -> %d, index %d -> %d", reports, b.count("report"), registrations,
				b.count("register"), index, b.m.State().Index)
		}
	})
}

// An instance has stopped. The agent hears that it is not assigned any more before it hears that its report arrived. It
// forgets the instance, and what belongs to it, within seconds, and not at the end of a whole poll.
func TestForgetsAfterALateAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.slow = 300 * time.Millisecond
		b.start()
		b.pass(time.Second)
		id := b.run("web", sh(""))
		b.pass(2 * time.Second)
		b.stop(id, nil)
		b.pass(500 * time.Millisecond)
		b.want(id, model.ObservedStopped, "")
		b.pass(2 * forgetWait)
		if n := len(b.agent.supervisors.list()); n != 0 {
			t.Errorf("%d instances are still known", n)
		}
		if b.waits != pollWait {
			t.Errorf("the next poll waits for %s, want %s", b.waits, pollWait)
		}
	})
}

// With on_shutdown = "drain", the agent exits only after all instances have stopped.
func TestShutdownDrains(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var id model.InstanceID
		b.cfg.OnShutdown = ShutdownDrain
		b.cfg.Drain = drainBy(func() { b.stop(id, nil) })
		b.start()
		id = b.run("web", sh(""))
		b.pass(time.Second)
		b.want(id, model.ObservedReady, "")
		b.end()
		if b.mem.running() != 0 {
			t.Error("it still runs")
		}
		b.want(id, model.ObservedStopped, "") // reported before the agent exited
	})
}

func TestShutdownDrainIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.cfg.OnShutdown, b.cfg.DrainTimeout = ShutdownDrain, time.Minute
		b.cfg.Drain = drainBy(func() {})
		b.start()
		id := b.run("web", sh(""))
		b.pass(time.Second)
		began := time.Now()
		b.end()
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("it took %v", took)
		}
		if b.mem.running() != 1 {
			t.Error("what could not be drained was stopped")
		}
		b.want(id, model.ObservedReady, "")
	})
}

// An agent whose name is taken tries less and less often. It still registers soon after a person has solved the
// problem.
func TestRefusedRegistrationBacksOff(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.apply(&fsm.NodeRegister{ID: "other", Name: "n1",
			Agent: model.AgentInfo{BootID: "boot", Address: "127.0.0.1", Key: []byte("k")}})
		b.start()
		b.pass(10 * time.Minute)
		if n := b.count("register"); n < 10 || n > 90 {
			t.Errorf("%d attempts in 10 minutes", n)
		}
		other, _ := b.m.State().Nodes.Get("other")
		b.apply(&fsm.NodeHealth{ID: "other", Health: model.HealthOffline, BootID: "boot", Epoch: other.Agent.Epoch})
		b.apply(&fsm.NodeForget{ID: "other"})
		b.pass(15 * time.Second)
		if _, ok := b.m.State().Nodes.Get(b.node()); !ok {
			t.Error("it did not register when its name was free")
		}
	})
}

// When servers say that they regard the node's epoch as offline, the agent registers again, once for that epoch.
func TestGivenUpRegistersAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		v := newVotes()
		b.beats = v
		b.start()
		before := b.count("register")
		now, _ := b.agent.session.current()
		v.givenUp <- now.epoch
		b.pass(100 * time.Millisecond)
		v.givenUp <- now.epoch // another server sends the same epoch
		b.pass(10 * time.Second)
		if n := b.count("register") - before; n != 1 {
			t.Errorf("it registered %d times", n)
		}
		b.run("web", sh(""))
		b.pass(time.Second)
		if b.mem.running() != 1 {
			t.Error("nothing runs in the new epoch")
		}
	})
}

// A working directory that takes long to remove delays neither the next assignments nor the end of the agent.
func TestSlowRemoval(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.mem.removal = make(chan struct{})
		defer close(b.mem.removal)
		b.start()
		old := b.run("old", sh(""))
		b.pass(time.Second)
		b.stop(old, nil)
		b.pass(time.Minute)
		if n := len(b.agent.supervisors.list()); n != 0 {
			t.Fatalf("%d instances are not forgotten yet", n)
		}
		next := b.run("next", sh(""))
		b.pass(time.Second)
		b.want(next, model.ObservedReady, "")
		b.end()
	})
}
