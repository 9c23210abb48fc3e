package transport

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// proves that only a limited number of handshakes have a turn at once. A free turn goes to a handshake that has begun,
// and if no waiting handshake has begun, to the newest one.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := newHandshakeLimiter(1)
		if err := line.take(t.Context(), "", false); err != nil {
			t.Fatal(err)
		}
		var called []string
		wait := func(ctx context.Context, name string, begun bool) {
			go func() {
				err := line.take(ctx, name, begun)
				if err != nil {
					name += " gave up"
				}
				called = append(called, name)
				if err == nil {
					line.give()
				}
			}()
			synctest.Wait()
		}
		impatient, giveUp := context.WithCancel(t.Context())
		wait(t.Context(), "old", false)
		wait(t.Context(), "begun", true)
		wait(impatient, "impatient", false)
		wait(t.Context(), "begun later", true)
		wait(t.Context(), "new", false)
		if len(called) > 0 {
			t.Errorf("had a turn while another had it: %v", called)
		}
		giveUp()
		synctest.Wait()
		line.give()
		synctest.Wait()
		if want := []string{"impatient gave up", "begun", "begun later", "new", "old"}; !slices.Equal(called, want) {
			t.Errorf("called %v, want %v", called, want)
		}
		if err := line.take(t.Context(), "", false); err != nil { // the turn is free again
			t.Error(err)
		}
	})
}

// A source with many handshakes delays its own, and no other source's.
func TestTurnsOfCrowds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := newHandshakeLimiter(1)
		if err := line.take(t.Context(), "", false); err != nil {
			t.Fatal(err)
		}
		var called []string
		wait := func(source string, begun bool) {
			go func() {
				_ = line.take(t.Context(), source, begun) // the test's context does not end here
				called = append(called, source)
				line.give()
			}()
			synctest.Wait()
		}
		wait("flood", true)
		wait("flood", true)
		wait("quiet", false)
		wait("flood", false)
		line.give()
		synctest.Wait()
		if want := []string{"quiet", "flood", "flood", "flood"}; !slices.Equal(called, want) {
			t.Errorf("called %v, want %v", called, want)
		}
	})
}

// proves that a turn is not lost if it comes at the moment in which its waiter gives up.
func TestTurnOfWhoGaveUp(t *testing.T) {
	for range 1000 {
		line := newHandshakeLimiter(1)
		if err := line.take(t.Context(), "", false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- line.take(ctx, "", false) }()
		go cancel()
		line.give()
		if err := <-gone; err == nil {
			line.give()
		} else if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		cancel()
		if err := line.take(t.Context(), "", true); err != nil {
			t.Fatal(err)
		}
	}
}
