package httpapi

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// maxWatches is the number of remembered topics at which those without a waiting caller are forgotten.
const maxWatches = 4096

// watches remembers, for each polled topic, an index after which the topic has not changed. With it, a caller that
// polls again with the index of its last answer waits until one of its own topics changes, whatever else changes. After
// a topic is forgotten, only the next poll of each caller returns early.
type watches struct {
	store Store
	mu    sync.Mutex
	open  map[fsm.Topic]*watch
}

// watch records that its topic has not changed after index. A change closes woken.
type watch struct {
	index  uint64
	woken  <-chan struct{}
	cancel func()
	users  int // current waiters; guarded by watches.mu
}

func newWatches(store Store) *watches {
	return &watches{store: store, open: map[fsm.Topic]*watch{}}
}

// of returns the watch of a topic. It makes a new watch if there is none, or if the topic has changed since the last
// one was made. The caller must call leave after waiting.
func (w *watches) of(topic fsm.Topic) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, ok := w.open[topic]; ok {
		select {
		case <-old.woken:
			old.cancel()
		default:
			old.users++
			return old
		}
	}
	if len(w.open) >= maxWatches {
		w.forget()
	}
	woken, cancel := w.store.WatchTopic(topic) // before the index is read, so that no change is missed
	fresh := &watch{index: w.store.Current().Index, woken: woken, cancel: cancel, users: 1}
	w.open[topic] = fresh
	return fresh
}

func (w *watches) leave(held []*watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range held {
		one.users--
	}
}

// forget drops the watches without waiters. The number of running requests bounds the watches that are left. w.mu is
// held.
func (w *watches) forget() {
	for topic, old := range w.open {
		if old.users == 0 {
			old.cancel()
			delete(w.open, topic)
		}
	}
}

// until blocks until one of the topics may have changed after index, and then returns true. It returns false when limit
// has passed, the channel over is closed, ctx ends or the server begins to stop. The channel may be nil. On a server
// that lags, until first waits for the state to reach index.
func (w *watches) until(ctx context.Context, over <-chan struct{}, index uint64, limit time.Duration,
	topics ...fsm.Topic) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if !w.reach(ctx, over, index) {
		return false
	}
	cases := []reflect.SelectCase{receive(ctx.Done()), receive(transport.Stopping(ctx)), receive(over)}
	others := len(cases)
	var held []*watch
	defer func() { w.leave(held) }()
	for _, topic := range topics {
		one := w.of(topic)
		held = append(held, one)
		if one.index > index {
			return true
		}
		cases = append(cases, receive(one.woken))
	}
	chosen, _, _ := reflect.Select(cases)
	return chosen >= others
}

func (w *watches) reach(ctx context.Context, over <-chan struct{}, index uint64) bool {
	for w.store.Current().Index < index {
		state, next := w.store.Watch()
		if state.Index >= index {
			break
		}
		select {
		case <-next:
		case <-over:
			return false
		case <-ctx.Done():
			return false
		case <-transport.Stopping(ctx):
			return false
		}
	}
	return true
}

// stops reports whether the server of a request has begun to stop.
func stops(ctx context.Context) bool {
	select {
	case <-transport.Stopping(ctx):
		return true
	default:
		return false
	}
}

func receive(c <-chan struct{}) reflect.SelectCase {
	return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
}
