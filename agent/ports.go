package agent

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
)

// portWatch knows the ports on which the cluster itself listens on this machine, and reports ports that can't be
// opened. Safe for many goroutines.
type portWatch struct {
	host string                    // the node's own address
	tell func([]model.PortProblem) // it does not block

	mu       sync.Mutex
	reserved map[int]bool
	servers  map[int]bool // ports of servers on this machine
	own      map[int]model.PortProblem
	doors    map[doorPort]*doorCount
	last     []model.PortProblem
}

type doorPort struct {
	port    int
	service model.ServiceName
}

// doorCount follows one exposed port, as selfCount follows a check. A port that opens and closes repeatedly must not
// cost the servers an entry of the log each time.
type doorCount struct {
	problem   model.PortProblem // as reported
	seen      model.PortProblem // at the last bad look
	bad, good int               // in a row
	same      int               // bad looks in a row with the same problem
	shown     bool
}

func newPortWatch(own ...int) *portWatch {
	p := &portWatch{
		tell: func([]model.PortProblem) {}, reserved: map[int]bool{}, servers: map[int]bool{},
		own: map[int]model.PortProblem{}, doors: map[doorPort]*doorCount{},
	}
	p.reserve(own...)
	return p
}

// reserve reserves ports for the agent, or for a server in its process.
func (p *portWatch) reserve(ports ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range ports {
		if port > 0 {
			p.reserved[port] = true
		}
	}
}

// learn records the ports of the servers' listeners at the node's own address.
func (p *portWatch) learn(listens []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.servers)
	for _, address := range listens {
		host, text, err := net.SplitHostPort(address)
		port, bad := strconv.Atoi(text)
		if err == nil && bad == nil && host == p.host {
			p.servers[port] = true
		}
	}
}

// check refuses a port of the cluster. Code: port_taken.
func (p *portWatch) check(port int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.reserved[port]:
		return model.Refuse(driver.CodePortTaken, "this agent listens on it: port %d", port)
	case p.servers[port]:
		return model.Refuse(driver.CodePortTaken, "a server of this machine listens on it: port %d", port)
	}
	return nil
}

// setOwn notes why a port of the agent itself is not open; nil: it is.
func (p *portWatch) setOwn(port int, problem *model.PortProblem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.own, port)
	if problem != nil {
		p.own[port] = *problem
	}
	p.say()
}

// look counts the exposed ports that are not open now. It is called about once a second.
func (p *portWatch) look(closed []model.PortProblem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := map[doorPort]bool{}
	for _, problem := range closed {
		key := doorPort{problem.Port, problem.Service}
		now[key] = true
		d := p.doors[key]
		if d == nil {
			d = &doorCount{}
			p.doors[key] = d
		}
		if problem != d.seen {
			d.seen, d.same = problem, 0
		}
		d.bad, d.good, d.same = d.bad+1, 0, d.same+1
		if d.bad >= selfBad && !d.shown || d.same >= selfBad {
			d.shown, d.problem = true, problem
		}
	}
	for key, d := range p.doors {
		if now[key] {
			continue
		}
		d.bad, d.same, d.good = 0, 0, d.good+1
		if !d.shown || d.good >= selfGood {
			delete(p.doors, key)
		}
	}
	p.say()
}

// pending reports whether a port is being counted, so that look must be called again soon.
func (p *portWatch) pending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.doors) > 0
}

// say reports a changed list. p.mu is held.
func (p *portWatch) say() {
	var list []model.PortProblem
	for _, problem := range p.own {
		list = append(list, problem)
	}
	for _, d := range p.doors {
		if d.shown {
			list = append(list, d.problem)
		}
	}
	slices.SortFunc(list, func(a, b model.PortProblem) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Service, b.Service))
	})
	list = list[:min(len(list), model.MaxPortProblems)]
	if slices.Equal(list, p.last) {
		return
	}
	p.last = list
	p.tell(list)
}
