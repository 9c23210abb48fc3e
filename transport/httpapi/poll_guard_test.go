package httpapi

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLookout shows that one goroutine makes the checks for all polls together, that all polls that wait learn of a
// failed check, and that no goroutine runs once all polls have left.
func TestLookout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
		var looks atomic.Int64
		var bad atomic.Bool
		l := &pollGuard{every: time.Second, look: func() error {
			looks.Add(1)
			if bad.Load() {
				return errors.New("bad")
			}
			return nil
		}}
		first, leaveFirst := l.join()
		second, leaveSecond := l.join()
		time.Sleep(10*time.Second + time.Millisecond)
		if n := looks.Load(); n != 10 {
			t.Errorf("%d looks in 10 s for two who wait, want 10", n)
		}
		leaveFirst()
		bad.Store(true)
		<-second
		<-first
		third, leaveThird := l.join() // after the failed check, before the second poll leaves
		select {
		case <-third:
			t.Error("who comes later is told of the earlier look")
		default:
		}
		<-third
		leaveSecond()
		leaveThird()
		bad.Store(false)
		again, leaveAgain := l.join()
		leaveAgain()
		time.Sleep(5 * time.Second)
		select {
		case <-again:
			t.Error("a look that went well ended a wait")
		default:
		}
		if n := looks.Load(); n != 12 {
			t.Errorf("%d looks, want none while nobody waits", n)
		}
	})
}
