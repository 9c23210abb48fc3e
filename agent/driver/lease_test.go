package driver_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
)

func leased(d time.Duration) func(*driver.Spec) {
	return func(s *driver.Spec) { s.LeaseUntil = driver.BootNow().Add(d) }
}

const holder = "trap '' TERM; echo ready; while :; do sleep 0.01; done"

// fenced waits until the holder is dead. It checks that the holder was killed because of its lease, at most a second
// after the lease had ended.
func fenced(t *testing.T, task *driver.Task, until driver.BootTime) {
	t.Helper()
	eventually(t, "the holder to be killed", func() bool { return !running(task.Process().PID) })
	if late := time.Duration(driver.BootNow() - until); late < 0 || late > time.Second {
		t.Errorf("dead %v after the end of the lease", late)
	}
	if e := wait(t, task); e.Reason != driver.ReasonFenced || !e.Failed() {
		t.Errorf("exit = %+v", e)
	}
}

// leaseLength leaves time for an instance to start on a busy machine before its lease ends.
const leaseLength = 2 * time.Second

func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, b *bench) {
		until := driver.BootNow().Add(leaseLength)
		task := b.start(b.sh(holder, func(s *driver.Spec) { s.LeaseUntil = until }))
		fenced(t, task, until)
	})
}

func TestLeaseRenewed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.start(b.sh(holder, leased(leaseLength)))
	until := driver.BootNow().Add(leaseLength)
	for range 6 {
		until = driver.BootNow().Add(leaseLength)
		must(t, task.Renew(t.Context(), until))
		// An older renewal that arrives late does not shorten the lease.
		must(t, task.Renew(t.Context(), until.Add(10*time.Millisecond-leaseLength)))
		time.Sleep(400 * time.Millisecond) // the test is about real time
		if !task.Alive() {
			t.Fatal("a renewed lease ended")
		}
	}
	fenced(t, task, until)
	if err := task.Renew(t.Context(), driver.BootNow().Add(time.Hour)); err == nil {
		t.Error("renewed after the end")
	}
}

// Without an agent, the shim still kills the program when the lease ends.
func TestLeaseWithoutAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.start(b.sh(holder, leased(leaseLength)))
	must(t, b.d.Close())
	eventually(t, "the holder to be killed", func() bool { return !running(task.Process().PID) })
	b.open()
	if e := wait(t, b.adopt()[0]); e.Reason != driver.ReasonFenced {
		t.Errorf("exit = %+v", e)
	}
}

// A holder and its shim are frozen until the lease has ended. The holder dies within a second of thawing, even if a
// renewal is already waiting in the shim's socket.
func TestLeaseFrozen(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, b *bench) {
		until := driver.BootNow().Add(leaseLength)
		task := b.start(b.sh(holder, func(s *driver.Spec) { s.LeaseUntil = until }))
		b.says(task, "ready")
		shim := parent(t, task.Process().PID)
		must(t, syscall.Kill(-task.Process().PID, syscall.SIGSTOP))
		must(t, syscall.Kill(shim, syscall.SIGSTOP))
		renewed := make(chan error, 1)
		ctx := t.Context()
		go func() { renewed <- task.Renew(ctx, driver.BootNow().Add(time.Hour)) }()
		eventually(t, "the lease to end", func() bool { return driver.BootNow() > until.Add(50*time.Millisecond) })
		if !running(task.Process().PID) {
			t.Fatal("it was to be frozen, not dead")
		}
		must(t, syscall.Kill(-task.Process().PID, syscall.SIGCONT))
		must(t, syscall.Kill(shim, syscall.SIGCONT))
		thawed := time.Now()
		eventually(t, "the holder to be dead", func() bool { return !running(task.Process().PID) })
		if took := time.Since(thawed); took > time.Second {
			t.Errorf("dead %v after thawing", took)
		}
		if e := wait(t, task); e.Reason != driver.ReasonFenced {
			t.Errorf("exit = %+v", e)
		}
		if err := <-renewed; err == nil {
			t.Error("a renewal that came too late was accepted")
		}
	})
}

// An instance that was started without a lease can get one later.
func TestLeaseAddedLater(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.start(b.sh(holder))
	must(t, task.Renew(t.Context(), driver.BootNow().Add(200*time.Millisecond)))
	if e := wait(t, task); e.Reason != driver.ReasonFenced {
		t.Errorf("exit = %+v", e)
	}
}

func TestBootNow(t *testing.T) {
	a, wall := driver.BootNow(), time.Now()
	time.Sleep(10 * time.Millisecond) // the test is about real time
	d := time.Duration(driver.BootNow() - a)
	if d < 10*time.Millisecond || d > time.Since(wall)+time.Second {
		t.Errorf("%v went by on the boot clock, %v on the other", d, time.Since(wall))
	}
	if !strings.Contains(a.Add(time.Second).String(), "s") {
		t.Errorf("%v", a)
	}
}
