package agent

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// forwarder holds the services' current backends and, for each exposed service, listens on its port at the agent's own
// address and forwards connections to a ready backend. Safe for many goroutines.
type forwarder struct {
	node    fsm.NodeID
	address string
	problem func(part, problem string)
	log     hclog.Logger
	last    *lastKnown
	// halfClosed is as the constant; tests have it shorter.
	halfClosed time.Duration
	wg         sync.WaitGroup

	mu       sync.Mutex
	before   transport.Services // as they were known last, until there is anything newer
	seen     fsm.Seen           // the state that the services are of
	services map[fsm.ServiceName]*served
}

// newForwarder makes a forwarder that keeps what it knows in the file last; "" keeps nothing.
func newForwarder(node fsm.NodeID, address, last string, problem func(part, problem string), log hclog.Logger) *forwarder {
	f := &forwarder{node: node, address: address, problem: problem, log: log, last: newLastKnown(last, log), halfClosed: halfClosed, services: map[fsm.ServiceName]*served{}}
	f.before = f.last.read()
	return f
}

// exposed returns the exposed services and their ports.
func (f *forwarder) exposed() map[fsm.ServiceName]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	ports := make(map[fsm.ServiceName]int, len(f.services))
	for _, s := range f.before.Services {
		ports[s.Name] = s.Expose
	}
	for name, s := range f.services {
		ports[name] = s.port
	}
	return ports
}

// run follows the services until ctx ends; at first by what was known last, if the servers don't answer soon. Connections in flight get forwardTimeout at
// the end.
func (f *forwarder) run(ctx context.Context, poll func(context.Context, transport.ServicesRequest) (transport.Services, error)) {
	conns, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	var saving sync.WaitGroup
	defer saving.Wait()
	saving.Go(func() { f.last.run(ctx) })
	answered := make(chan struct{})
	first := answered
	f.wg.Go(func() {
		if sleep(ctx, serversFirst, first) {
			f.recall(ctx, conns)
		}
	})
	retry := backoff{first: 100 * time.Millisecond, most: 5 * time.Second}
	older := 0
	for ctx.Err() == nil {
		index := f.seen.Index
		if older > 0 {
			index = 0
		}
		answer, err := f.ask(ctx, poll, index)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			f.log.Log(retry.level(), "services could not be read", "error", err)
			sleep(ctx, retry.next(rand.Float64()), nil)
		case seenOf(answer).Before(f.seen) && older < 3:
			// A server that lags.
			older++
			sleep(ctx, time.Second, nil)
		default:
			older = 0
			retry.reset()
			f.learn(ctx, conns, answer)
			if answered != nil {
				close(answered)
				answered = nil
			}
		}
	}
	f.stop(hangUp)
}

func (f *forwarder) ask(ctx context.Context, poll func(context.Context, transport.ServicesRequest) (transport.Services, error), index uint64) (transport.Services, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return poll(ctx, transport.ServicesRequest{Node: f.node, Index: index, Wait: fsm.Duration(pollWait / time.Millisecond)})
}

// recall makes listeners and backends those that were known last, if the servers have told none yet.
func (f *forwarder) recall(ctx, conns context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before := f.before; len(before.Services) > 0 {
		f.log.Warn("no server tells the services: going on with those known last", "services", len(before.Services))
		f.update(ctx, conns, before)
	}
}

func seenOf(answer transport.Services) fsm.Seen {
	return fsm.Seen{Incarnation: answer.Incarnation, Index: answer.Index}
}

// learn makes listeners and backends those of a server's answer, and keeps them.
func (f *forwarder) learn(ctx, conns context.Context, answer transport.Services) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen, f.before = seenOf(answer), transport.Services{}
	f.update(ctx, conns, answer)
	f.last.keep(answer)
}

// update makes listeners and backends those of the answer. conns is the context of forwarded connections, which a
// service's end does not cut. The lock is held.
func (f *forwarder) update(ctx, conns context.Context, answer transport.Services) {
	wanted := make(map[fsm.ServiceName]transport.ServiceBackends, len(answer.Services))
	for _, s := range answer.Services {
		if s.Expose > 0 {
			wanted[s.Name] = s
		}
	}
	for name, s := range f.services {
		if w, ok := wanted[name]; !ok || w.Expose != s.port {
			s.close()
			delete(f.services, name)
			f.problem(s.part(), "")
		}
	}
	for _, name := range sortedKeys(wanted) {
		w := wanted[name]
		s, known := f.services[name]
		if !known {
			s = newServed(f, w)
			f.services[name] = s
			listening, stop := context.WithCancel(ctx)
			s.close = stop
			f.wg.Go(func() { s.listen(listening, conns) })
		}
		s.set(w)
	}
}

// stop ends every listener, gives connections a moment to finish, and cuts the rest.
func (f *forwarder) stop(hangUp func()) {
	f.mu.Lock()
	for _, s := range f.services {
		s.close()
	}
	f.mu.Unlock()
	t := time.AfterFunc(forwardTimeout, hangUp)
	defer t.Stop()
	f.wg.Wait()
}

// servedStatus is one exposed service, for the status page and metrics.
type servedStatus struct {
	Name        fsm.ServiceName `json:"name"`
	Address     string          `json:"address"`
	Generation  uint64          `json:"generation"`
	Backends    int             `json:"backends"`
	Down        int             `json:"backends_down"`
	Connections int             `json:"connections"`
	Accepted    uint64          `json:"accepted_total"`
	Refused     uint64          `json:"refused_total"` // no backend could be reached
}

func (f *forwarder) status() []servedStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]servedStatus, 0, len(f.services))
	for _, name := range sortedKeys(f.services) {
		list = append(list, f.services[name].status())
	}
	return list
}
