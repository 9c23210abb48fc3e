package agent

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// leaseCheck is how often lease looks for answers to heartbeats, and how often an instance checks again while it waits
// for the servers or for a lease.
const leaseCheck = 200 * time.Millisecond

// fenced reports whether the assignment's group has a lease, so that its program may run only while the lease is held.
func fenced(a transport.Assignment) bool { return a.Spec != nil && a.Spec.Fenced() }

func leaseOf(a transport.Assignment) time.Duration { return asDuration(a.Spec.Exclusive.Lease) }

// lease decides whether instances with a lease may run. Each group sets the length of its lease. A lease is held while
// the newest heartbeat that a majority of the voters answered is younger than that length. The shims run the timers, on
// the clock of driver.BootTime; lease only extends them. Safe for concurrent use.
type lease struct {
	boot func() driver.BootTime

	mu          sync.Mutex
	beats       Heartbeats      // nil while this agent sends no heartbeats; then no lease is held
	now         registration    // the newest registration
	assignedFor registration    // the newest registration with known assignments; zero while a restore is not confirmed
	incarnation uint64          // incarnation of the servers' state; a new one clears confirmed
	confirmed   time.Time       // the latest time at which the restore may have been confirmed; zero if it was not
	heard       driver.BootTime // when the newest heartbeat that a majority answered was sent; 0 if there is none
	moved       chan struct{}   // closed and replaced when heard changes
	mark        clocks          // both clocks at the last refresh
	awake       time.Time       // when the last suspend was noticed; heartbeats sent earlier renew no lease
}

// clocks has the readings of two clocks at one moment. Only boot advances while the machine is suspended.
type clocks struct {
	mono time.Time
	boot driver.BootTime
}

func newLease(boot func() driver.BootTime) *lease {
	return &lease{boot: boot, moved: make(chan struct{})}
}

func (l *lease) set(beats Heartbeats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beats = beats
}

// newRegistration sets the newest registration, whose assignments are not known yet.
func (l *lease) newRegistration(now registration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = now
}

// assigned records that the instances have received the assignments a. The parameter now is the registration under
// which the servers sent a. If a comes from a restored state that no operator has confirmed yet, no registration has
// known assignments afterwards.
func (l *lease) assigned(now registration, a transport.Assignments) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.Incarnation != l.incarnation {
		l.incarnation, l.confirmed = a.Incarnation, time.Time{}
	}
	if a.Unconfirmed {
		l.assignedFor = registration{}
		return
	}
	l.assignedFor = now
	if a.Confirmed <= 0 {
		return
	}
	if at := time.Now().Add(-asDuration(a.Confirmed)); l.confirmed.IsZero() || at.Before(l.confirmed) {
		l.confirmed = at
	}
}

// until returns when a lease of the given length ends. It returns 0 if no instance may start under such a lease now.
func (l *lease) until(length, grace time.Duration) driver.BootTime {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.heard.Add(length)
	// After a restore is confirmed, an instance that the restored state does not have may still run in the same slot on
	// another node, for at most length plus grace.
	waits := !l.confirmed.IsZero() && time.Since(l.confirmed) < length+grace
	// Without the assignments of the present registration, what ran here before may run elsewhere by now (S2).
	if l.heard == 0 || end <= l.boot() || l.assignedFor != l.now || waits {
		return 0
	}
	return end
}

// assignedNow reports whether the confirmed assignments of the present registration are known.
func (l *lease) assignedNow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now != (registration{}) && l.assignedFor == l.now
}

func (l *lease) run(ctx context.Context) {
	for sleep(ctx, l.refresh(), nil) {
	}
}

// refresh records when the newest heartbeat that a majority answered was sent. It returns the pause until its next
// call.
func (l *lease) refresh() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.beats == nil {
		return leaseCheck
	}
	// The boot clock is read first. If the machine is suspended between the two reads, the lease then ends too early,
	// never too late.
	now := clocks{boot: l.boot()}
	now.mono = time.Now()
	if slept := time.Duration(now.boot-l.mark.boot) - now.mono.Sub(l.mark.mono); !l.mark.mono.IsZero() &&
		slept > 20*time.Millisecond {
		l.awake = now.mono
	}
	l.mark = now
	if sent := l.beats.LeaseUntil(0); !sent.IsZero() && sent.After(l.awake) {
		if heard := now.boot.Add(sent.Sub(now.mono)); heard > l.heard {
			l.heard = heard
			close(l.moved)
			l.moved = make(chan struct{})
		}
	}
	return leaseCheck
}

// hand sends each new end of a lease of the given length to the program's shim. It returns when ctx or the program
// ends.
func (l *lease) hand(ctx context.Context, length time.Duration, task Task, log hclog.Logger) {
	var given driver.BootTime
	for {
		l.mu.Lock()
		end, moved := l.heard.Add(length), l.moved
		known := l.heard != 0
		l.mu.Unlock()
		if known && end > given {
			if err := task.Renew(ctx, end); err == nil {
				given = end
			} else if ctx.Err() == nil && !ended(task) {
				log.Warn("lease could not be renewed", "error", err)
			}
		}
		select {
		case <-moved:
		case <-task.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// holdLease blocks until an instance with a lease may run, and returns the end of the lease. ok is false if the
// assignment changed meanwhile or ctx ended. For an instance without a lease, holdLease returns 0 and true at once.
func (i *instance) holdLease(ctx context.Context, want transport.Assignment) (until driver.BootTime, ok bool) {
	if !fenced(want) {
		return 0, true
	}
	_, grace := i.shared.stopPolicy(want)
	for first := true; ; first = false {
		if until = i.shared.lease.until(leaseOf(want), grace); until != 0 {
			break
		}
		if first {
			i.notStarted()
			i.log.Warn("waiting for a lease: too few servers answer heartbeats, or none has told yet what is assigned, or a " +
				"restore is not confirmed for long enough")
		}
		if !i.wait(ctx, leaseCheck) {
			return 0, false
		}
	}
	// The assignment that ended the wait may also stop this instance.
	return until, i.wanted().Desired == model.DesiredRunning
}

// keepLease renews the lease of a program, if it has a lease, until stop is called. stop blocks until the renewing
// goroutine has returned.
func (i *instance) keepLease(ctx context.Context, task Task) (stop func()) {
	want := i.wanted()
	if !fenced(want) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { i.shared.lease.hand(ctx, leaseOf(want), task, i.log) })
	return func() { cancel(); wg.Wait() }
}
