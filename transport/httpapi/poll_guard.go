package httpapi

import (
	"sync"
	"time"
)

// pollGuard wakes all pending long polls when this server may no longer answer them. One goroutine checks for all of
// them. With a ticker for each poll, the 10,000 long polls of 5,000 agents would wake 5,000 goroutines a second.
type pollGuard struct {
	look  func() error // fails if the server may not answer; must not block
	every time.Duration

	mu    sync.Mutex
	users int
	watch *pollWatch // nil while nothing checks
}

// pollWatch is one run of the goroutine that checks.
type pollWatch struct {
	over chan struct{} // closed when the check has failed
	stop chan struct{}
	done chan struct{}
}

// join returns a channel that is closed when the check fails. The caller must call leave after its poll. When the last
// poll leaves, leave stops the goroutine and waits for its end.
func (l *pollGuard) join() (over <-chan struct{}, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	if l.watch == nil {
		l.watch = &pollWatch{over: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
		go l.run(l.watch)
	}
	return l.watch.over, l.leave
}

func (l *pollGuard) leave() {
	l.mu.Lock()
	l.users--
	last := l.watch
	if l.users > 0 || last == nil {
		l.mu.Unlock()
		return
	}
	l.watch = nil
	l.mu.Unlock()
	close(last.stop)
	<-last.done
}

// run checks until a check fails or no poll is left. A poll that joins after a failed check starts a new run.
func (l *pollGuard) run(w *pollWatch) {
	defer close(w.done)
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		if l.look() == nil {
			continue
		}
		close(w.over)
		l.mu.Lock()
		if l.watch == w {
			l.watch = nil
		}
		l.mu.Unlock()
		return
	}
}
