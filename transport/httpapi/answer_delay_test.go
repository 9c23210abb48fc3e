package httpapi

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Answers at a low rate are not delayed, nor are the first delayAtOnce answers of a burst. The delay of the other
// answers grows with their number, up to delayMost. An answer is not delayed if its caller has gone.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAnswerDelay(delayAssigned)
		longest := time.Duration(0)
		burst := func(answers int) (atOnce, late int) {
			began := time.Now()
			var wg sync.WaitGroup
			var mu sync.Mutex
			for range answers {
				wg.Go(func() {
					l.wait(t.Context())
					mu.Lock()
					defer mu.Unlock()
					switch waited := time.Since(began); {
					case waited == 0:
						atOnce++
					case waited >= delayAssigned && waited <= delayMost:
						late++
						longest = max(longest, waited)
					default:
						t.Errorf("an answer waited %s", waited)
					}
				})
			}
			wg.Wait()
			return atOnce, late
		}
		for range 100 { // many answers in a second, but few at a time
			if atOnce, late := burst(3); atOnce != 3 || late != 0 {
				t.Fatalf("of 3 answers %d went at once, %d late", atOnce, late)
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		for range 2 {
			if atOnce, late := burst(500); atOnce != delayAtOnce || late != 500-delayAtOnce {
				t.Errorf("of 500 answers %d went at once, %d late", atOnce, late)
			}
		}
		if want := delayAssigned + (500-delayAtOnce-1)*delayEach; longest != want {
			t.Errorf("the last of 500 answers waited %s, want %s", longest, want)
		}
		time.Sleep(time.Second)
		if burst(5000); longest != delayMost {
			t.Errorf("the last of 5,000 answers waited %s, want %s", longest, delayMost)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		hangUp()
		began := time.Now()
		for range 500 {
			l.wait(ctx)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("answers to callers that have gone waited %s", waited)
		}
	})
}
