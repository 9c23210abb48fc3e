package agent

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/transport"
)

// leaseCheck is how often answers to heartbeats are looked for, and how often an instance that waits for the servers or
// for a lease checks again.
const leaseCheck = 200 * time.Millisecond

// fenced reports whether the assignment may run only while its group's lease is held.
func fenced(a transport.Assignment) bool { return a.Spec != nil && a.Spec.Fenced() }

func leaseOf(a transport.Assignment) time.Duration { return asDuration(a.Spec.Exclusive.Lease) }

// lease decides whether fenced instances may run. Each group sets the length of its lease. A lease is held while a
// majority of the voters have answered heartbeats that were sent within that length. The shims run the timers, on the
// clock of driver.BootTime; lease only extends them.
//
// No fenced instance is started before the servers have sent the assignments of the present registration, because what
// ran before may run elsewhere by now (S2). After a restore none is started until an operator has confirmed the
// restore, and for a while after that. Until then, instances may run that the restored state does not know. Safe for
// many goroutines.
type lease struct {
	boot func() driver.BootTime

	mu          sync.Mutex
	beats       Heartbeats      // nil: no lease is held
	now         registration    // the newest registration
	assignedFor registration    // the newest registration with known assignments; zero while a restore is not confirmed
	incarnation uint64          // the incarnation of the servers' state to which confirmed belongs
	confirmed   time.Time       // the latest time at which the restore may have been confirmed; zero if none was
	heard       driver.BootTime // when the newest heartbeat that a majority answered was sent; 0: there is none
	moved       chan struct{}   // closed and replaced when heard changes
	mark        clocks          // both clocks at the last refresh
	awake       time.Time       // heartbeats sent before this don't count, because the machine was suspended after them
}

// clocks is one moment, read from two clocks. Only boot continues while the machine is suspended.
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

// newRegistration sets the newest registration. Its assignments are not known yet.
func (l *lease) newRegistration(now registration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = now
}

// assigned records that every instance has received the assignments a. They belong to the registration that is given as
// now. They don't count while a restore is not confirmed.
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

// until returns when a lease of this length ends. It returns 0 if the lease is not held, the confirmed assignments of
// the present registration are not known, or a restore was confirmed less than length plus grace ago. Before that time
// is over, another node may still run an instance of the same slot under a lease of its own.
func (l *lease) until(length, grace time.Duration) driver.BootTime {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.heard.Add(length)
	waits := !l.confirmed.IsZero() && time.Since(l.confirmed) < length+grace
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

// run refreshes the lease until ctx ends.
func (l *lease) run(ctx context.Context) {
	for sleep(ctx, l.refresh(), nil) {
	}
}

// refresh records the newest heartbeat that a majority answered, and returns when to look again.
func (l *lease) refresh() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.beats == nil {
		return leaseCheck
	}
	// The boot clock is read first. If the machine is suspended between the two reads, the lease then ends early, never
	// late.
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

// hand gives each new end of a lease of this length to the program's shim, until ctx or the program ends.
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
