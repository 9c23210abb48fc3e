package driver

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// BootTime is a time of CLOCK_BOOTTIME, in nanoseconds since the machine started. This clock is the same for all
// processes of the machine. It does not depend on the wall clock, and advances while the machine is suspended or a
// process is frozen. Therefore the end of a lease is a BootTime.
type BootTime int64

// BootNow returns the present time of CLOCK_BOOTTIME.
func BootNow() BootTime {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("read CLOCK_BOOTTIME: " + err.Error()) // can't happen: the clock exists since Linux 2.6.39
	}
	return BootTime(ts.Nano())
}

// Add returns b + d.
func (b BootTime) Add(d time.Duration) BootTime { return b + BootTime(d) }

// String returns the time since the machine started, as a duration.
func (b BootTime) String() string { return time.Duration(b).String() }

// poll calls cond every step until cond returns true, for at most limit. It returns the last result of cond.
func poll(limit, step time.Duration, cond func() bool) bool {
	end, tick := time.NewTimer(limit), time.NewTicker(step)
	defer end.Stop()
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-end.C:
			return cond()
		}
	}
	return true
}

// bootTimer fires at a BootTime. A time.Timer would not advance while the machine is suspended.
type bootTimer struct {
	C     chan struct{} // capacity 1
	file  *os.File
	fd    int
	until BootTime
	done  chan struct{}
}

func newBootTimer() (*bootTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create lease timer: %w", err)
	}
	t := &bootTimer{C: make(chan struct{}, 1), file: os.NewFile(uintptr(fd), "lease timer"),
		fd: fd, done: make(chan struct{})}
	go t.run()
	return t, nil
}

func (t *bootTimer) run() {
	defer close(t.done)
	var b [8]byte
	for {
		n, err := t.file.Read(b[:])
		if err != nil {
			return
		}
		if n == len(b) && binary.NativeEndian.Uint64(b[:]) > 0 {
			select {
			case t.C <- struct{}{}:
			default:
			}
		}
	}
}

// extend makes the timer fire at the time until. It does nothing if the timer is set to that time or a later one. If
// until is in the past, the timer fires at once.
func (t *bootTimer) extend(until BootTime) error {
	if until <= t.until {
		return nil
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(until))}
	if err := unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		return fmt.Errorf("set lease timer: %w", err)
	}
	t.until = until
	return nil
}

// expired reports whether the time to which the timer is set has passed. It returns false if the timer was never set.
func (t *bootTimer) expired() bool { return t.until != 0 && BootNow() >= t.until }

func (t *bootTimer) close() {
	t.file.Close()
	<-t.done
}
