package agent

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/door"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// forwarder polls the services from the servers, and makes the node's door forward connections from the exposed ports
// at the node's address to ready backends. Safe for concurrent use.
type forwarder struct {
	node    model.NodeID
	address string
	door    nodeDoor
	problem func(part, problem string)
	log     hclog.Logger
	last    *lastKnown
	kick    chan struct{} // capacity 1; wakes keepDoor after a change of wanted
	ports   *portWatch

	mu       sync.Mutex
	before   transport.Services          // services that an earlier agent knew last; empty once a server has answered
	lost     []transport.ServiceBackends // services known before a restore; nil once the restore is confirmed
	unsure   bool                        // a restore is not confirmed
	seen     model.Seen                  // the state that the services come from
	known    bool                        // wanted was set
	round    int                         // grows with each change of wanted
	wanted   []transport.ServiceBackends
	statuses []door.Status
}

// nodeDoor is the node's door. It is a process of its own or, if Config.Runtime is given, a part of this process.
type nodeDoor interface {
	// Follow makes the door carry out an order, and returns the status of its services. news must be true if the order
	// differs from the last one.
	Follow(ctx context.Context, o door.Order, news bool) ([]door.Status, error)
	// Busy reports whether Follow must be called again although there are no services.
	Busy() bool
	Close()
}

// doorCheck is the interval at which keepDoor gets the status of the services from the door.
const doorCheck = time.Second

// withdrawTimeout is how long an agent that has drained its node waits for the door to close the ports.
const withdrawTimeout = 3 * time.Second

// newForwarder makes a forwarder that keeps the last known services in the file with the path last. If last is "", it
// keeps them in memory only.
func newForwarder(node model.NodeID, address, last string, way nodeDoor, problem func(part, problem string),
	log hclog.Logger) *forwarder {
	f := &forwarder{node: node, address: address, door: way, problem: problem, log: log, last: newLastKnown(last, log),
		kick: make(chan struct{}, 1), ports: newPortWatch()}
	f.before = f.last.read()
	return f
}

// innerDoor is a door in this process. Its ports close when the agent stops.
type innerDoor struct{ *door.Relay }

func (d innerDoor) Follow(_ context.Context, o door.Order, news bool) ([]door.Status, error) {
	if news {
		d.Set(o)
	}
	return d.Status(), nil
}

func (innerDoor) Busy() bool { return false }

func (f *forwarder) exposed() map[model.ServiceName]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	ports := make(map[model.ServiceName]int, len(f.wanted))
	for _, s := range f.before.Services {
		ports[s.Name] = s.Expose
	}
	for _, s := range f.wanted {
		ports[s.Name] = s.Expose
	}
	return ports
}

// run polls the services and gives them to the door, until ctx ends. If no server answers within serversFirst, the door
// gets the last known services. A door that is a process continues after run has returned.
func (f *forwarder) run(ctx context.Context,
	poll func(context.Context, transport.ServicesRequest) (transport.Services, error)) {
	var below sync.WaitGroup
	defer below.Wait()
	below.Go(func() { f.last.run(ctx) })
	below.Go(func() { f.keepDoor(ctx) })
	answered := make(chan struct{})
	first := answered
	below.Go(func() {
		if sleep(ctx, serversFirst, first) {
			f.recall()
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
			// The answer is older than what is known, so the server lags. Ask again, up to three times. After that, use an older
			// answer too.
			older++
			sleep(ctx, time.Second, nil)
		default:
			older = 0
			retry.reset()
			f.learn(answer)
			if answered != nil {
				close(answered)
				answered = nil
			}
		}
	}
}

func (f *forwarder) ask(ctx context.Context,
	poll func(context.Context, transport.ServicesRequest) (transport.Services, error),
	index uint64) (transport.Services, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return poll(ctx,
		transport.ServicesRequest{Node: f.node, Index: index, Wait: model.Duration(pollWait / time.Millisecond)})
}

// recall gives the door the services that an earlier agent knew last. It does nothing if no such services are known, or
// if a server has answered meanwhile.
func (f *forwarder) recall() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before := f.before; len(before.Services) > 0 {
		f.log.Warn("no server tells the services: going on with those known last", "services", len(before.Services))
		f.want(before)
	}
}

func seenOf(answer transport.Services) model.Seen {
	return model.Seen{Incarnation: answer.Incarnation, Index: answer.Index}
}

// learn gives the door the services of a server's answer, and writes them to disk. Until a restore is confirmed, it
// adds the services that were known before the restore.
func (f *forwarder) learn(answer transport.Services) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !answer.Unconfirmed:
		f.lost = nil
	case !f.unsure && f.known:
		f.lost = f.wanted
	case !f.unsure:
		f.lost = f.before.Services
	}
	f.unsure = answer.Unconfirmed
	f.seen, f.before = seenOf(answer), transport.Services{}
	answer.Services = withLost(answer.Services, f.lost)
	f.want(answer)
	f.last.keep(answer)
}

// withLost returns the services in current, and adds services and backends that are only in beforeRestore, because the
// restored state may not know them. It adds no service whose exposed port another service uses now.
func withLost(current, beforeRestore []transport.ServiceBackends) []transport.ServiceBackends {
	all := slices.Clone(current)
	for _, before := range beforeRestore {
		i := slices.IndexFunc(all, func(s transport.ServiceBackends) bool { return s.Name == before.Name })
		if i < 0 {
			if !slices.ContainsFunc(all, func(s transport.ServiceBackends) bool { return s.Expose == before.Expose }) {
				all = append(all, before)
			}
			continue
		}
		all[i].Backends = slices.Clone(all[i].Backends)
		for _, b := range before.Backends {
			if !slices.ContainsFunc(all[i].Backends, func(o model.Backend) bool { return o.Instance == b.Instance }) {
				all[i].Backends = append(all[i].Backends, b)
			}
		}
	}
	return all
}

// want sets the services that the door must expose, which are those of the answer that have an exposed port. It wakes
// keepDoor. The caller holds f.mu.
func (f *forwarder) want(answer transport.Services) {
	f.wanted = nil
	for _, s := range answer.Services {
		if s.Expose > 0 {
			f.wanted = append(f.wanted, s)
		}
	}
	f.known = true
	f.round++
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// keepDoor gives the door its orders, and checks the status of the services, until ctx ends. It gives no order before
// the services are known.
func (f *forwarder) keepDoor(ctx context.Context) {
	defer f.door.Close()
	told, toldServices := 0, []model.ServiceName(nil)
	for ctx.Err() == nil {
		f.mu.Lock()
		known, round, wanted := f.known, f.round, f.wanted
		f.mu.Unlock()
		pause := maxWait
		if known {
			order, refused := f.order(wanted)
			services := namesOf(order) // a new registration may reserve or release ports without a new round
			list, err := f.door.Follow(ctx, order, round != told || !slices.Equal(services, toldServices))
			if err == nil {
				told, toldServices = round, services
			}
			if ctx.Err() == nil {
				f.note(append(list, refused...), err)
				f.ports.look(f.closed(wanted, list, refused, err))
			}
			if err != nil || len(wanted) > 0 || f.door.Busy() || f.ports.pending() {
				pause = doorCheck
			}
		}
		sleep(ctx, pause, f.kick)
	}
}

func namesOf(o door.Order) (names []model.ServiceName) {
	for _, s := range o.Services {
		names = append(names, s.Name)
	}
	return names
}

// order returns the order for the door. It skips services on ports on which this agent or a server of this machine
// listens. refused has a status for each skipped service.
func (f *forwarder) order(wanted []transport.ServiceBackends) (order door.Order, refused []door.Status) {
	order = door.Order{Node: f.node, Address: f.address}
	for _, s := range wanted {
		if err := f.ports.check(s.Expose); err != nil {
			refused = append(refused, door.Status{
				Name: s.Name, Address: net.JoinHostPort(f.address, strconv.Itoa(s.Expose)), Generation: s.Generation,
				Backends: len(s.Backends), Problem: err.Error(), Code: model.PortReserved,
			})
			continue
		}
		order.Services = append(order.Services, s)
	}
	return order, refused
}

// closed lists the exposed ports that are not open, with the reasons. err is the error of the door. If err is not nil,
// all ports are listed.
func (f *forwarder) closed(wanted []transport.ServiceBackends, list, refused []door.Status,
	err error) []model.PortProblem {
	var closed []model.PortProblem
	for _, w := range wanted {
		is := func(s door.Status) bool { return s.Name == w.Name }
		status := door.Status{}
		if i := slices.IndexFunc(refused, is); i >= 0 {
			status = refused[i]
		} else if i := slices.IndexFunc(list, is); i >= 0 {
			status = list[i]
		} else if err != nil {
			status.Problem = "the door does not work: " + err.Error()
		}
		if status.Problem != "" {
			code := cmp.Or(status.Code, model.PortFailed)
			closed = append(closed, model.PortProblem{Port: w.Expose, Service: w.Name, Code: code, Reason: status.Problem})
		}
	}
	return closed
}

// note stores the statuses in list, and reports their problems. If err is not nil, it reports err instead and keeps the
// last statuses.
func (f *forwarder) note(list []door.Status, err error) {
	if err != nil {
		f.log.Error("exposed ports are not looked after", "error", err)
		f.problem("exposed ports", err.Error())
		return
	}
	f.problem("exposed ports", "")
	f.mu.Lock()
	before := f.statuses
	f.statuses = list
	f.mu.Unlock()
	for _, s := range before {
		if !slices.ContainsFunc(list, func(now door.Status) bool { return now.Name == s.Name }) {
			f.problem("service "+string(s.Name), "")
		}
	}
	for _, s := range list {
		f.problem("service "+string(s.Name), s.Problem)
	}
}

// withdraw makes the door close all ports, because the node was drained and the agent stops. It blocks until the ports
// are closed, withdrawTimeout is over, or ctx ends.
func (f *forwarder) withdraw(ctx context.Context) {
	f.mu.Lock()
	f.want(transport.Services{})
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	for len(f.status()) > 0 {
		if !sleep(ctx, 20*time.Millisecond, nil) {
			return
		}
	}
}

func (f *forwarder) status() []door.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]door.Status{}, f.statuses...)
}
