package door

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Limits are the limits of each service of a relay.
type Limits struct {
	Places     int           // maximum number of open connections; more wait in the kernel's queue
	PerSource  int           // maximum number of open connections from one address; more are reset
	Idle       time.Duration // when all places are taken, connections that were silent for this long are reset
	HalfClosed time.Duration // how long a client may continue to send after it has received everything
	Stalled    time.Duration // how long a client may receive nothing once the backend has finished
}

// DefaultLimits returns the limits of an agent. docs/operations.md lists them.
func DefaultLimits() Limits {
	return Limits{Places: 4096, PerSource: 2048, Idle: 5 * time.Minute, HalfClosed: time.Minute, Stalled: 10 * time.Minute}
}

// Order says what a relay must do: on which ports of an address to listen, and to which backends to forward.
type Order struct {
	Node     model.NodeID                `cbor:"1,keyasint"` // the node whose backends are preferred
	Address  string                      `cbor:"2,keyasint"`
	Services []transport.ServiceBackends `cbor:"3,keyasint"`
}

// place returns the address to listen on for a port, in the format of net.Listener.Addr, because the keys of
// Relay.inherited have this format.
func (o Order) place(port int) string {
	if ip, err := netip.ParseAddr(o.Address); err == nil {
		return netip.AddrPortFrom(ip, uint16(port)).String()
	}
	return net.JoinHostPort(o.Address, strconv.Itoa(port))
}

// Relay listens on ports and forwards each connection to a backend. Safe for concurrent use.
type Relay struct {
	limits Limits
	log    hclog.Logger
	conns  context.Context // context of open connections; Set does not cancel it
	hangUp context.CancelFunc
	wg     sync.WaitGroup
	open   atomic.Int64 // number of open connections, also of removed services

	mu        sync.Mutex
	order     Order
	services  map[model.ServiceName]*served
	inherited map[string]*net.TCPListener // the old door's listeners by address, until Set uses or closes them
}

// NewRelay makes a relay that does not listen yet. The caller must call Close.
func NewRelay(limits Limits, log hclog.Logger) *Relay {
	conns, hangUp := context.WithCancel(context.Background())
	return &Relay{limits: limits, log: log, conns: conns, hangUp: hangUp, services: map[model.ServiceName]*served{},
		inherited: map[string]*net.TCPListener{}}
}

// Set makes listeners and backends match the order. Open connections continue, even those of a removed service.
func (r *Relay) Set(o Order) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order = o
	wanted := make(map[model.ServiceName]transport.ServiceBackends, len(o.Services))
	for _, s := range o.Services {
		if s.Expose > 0 {
			wanted[s.Name] = s
		}
	}
	for name, s := range r.services {
		if w, ok := wanted[name]; !ok || s.address != o.place(w.Expose) {
			s.close()
			delete(r.services, name)
		}
	}
	for name, w := range wanted {
		s, known := r.services[name]
		if !known {
			s = newServed(r, name, o.place(w.Expose))
			r.services[name] = s
			listening, stop := context.WithCancel(r.conns)
			s.close = stop
			inherited := r.inherited[s.address]
			delete(r.inherited, s.address)
			s.set(o.Node, w)
			r.wg.Go(func() { s.listen(listening, inherited) })
			continue
		}
		s.set(o.Node, w)
	}
	for address, l := range r.inherited { // no service uses these ports
		_ = l.Close()
		delete(r.inherited, address)
	}
}

func (r *Relay) ordered() Order {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order
}

// inherit takes over listeners of the old door. The next Set uses them or closes them.
func (r *Relay) inherit(listeners []*net.TCPListener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range listeners {
		r.inherited[l.Addr().String()] = l
	}
}

// stop closes every listener, waits up to moment for open connections to finish, and resets those that have not.
func (r *Relay) stop(moment time.Duration) {
	r.Set(Order{})
	t := time.AfterFunc(moment, r.hangUp)
	defer t.Stop()
	r.wg.Wait()
	r.hangUp()
}

// Close closes every listener, and resets the connections that have not finished after a second.
func (r *Relay) Close() { r.stop(time.Second) }

// Status describes one exposed service, for the agent's status and metrics.
type Status struct {
	Name        model.ServiceName `json:"name" cbor:"1,keyasint"`
	Address     string            `json:"address" cbor:"2,keyasint"`
	Generation  uint64            `json:"generation" cbor:"3,keyasint"`
	Backends    int               `json:"backends" cbor:"4,keyasint"`
	Down        int               `json:"backends_down" cbor:"5,keyasint"`
	Connections int               `json:"connections" cbor:"6,keyasint"`
	Accepted    uint64            `json:"accepted_total" cbor:"7,keyasint"`
	Refused     uint64            `json:"refused_total" cbor:"8,keyasint"` // connections that found no backend
	Problem     string            `json:"problem,omitempty" cbor:"9,keyasint"`
	// Code is the kind of the problem. A door of an older release leaves it empty.
	Code model.PortCode `json:"code,omitempty" cbor:"10,keyasint,omitempty"`
}

// Status returns the status of each service, in order of name.
func (r *Relay) Status() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Status, 0, len(r.services))
	for _, s := range r.services {
		list = append(list, s.status())
	}
	slices.SortFunc(list, func(a, b Status) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list
}
