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

// portWatch knows the ports on which this agent and the servers of this machine listen, and reports ports that can't be
// opened. Safe for concurrent use.
type portWatch struct {
	host string                    // the node's own address
	tell func([]model.PortProblem) // receives the ports that can't be opened; must not block

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

// doorCount counts how often in a row an exposed port was found open or closed, as selfCount does for a check. So a
// port that opens and closes repeatedly does not cause an entry in the servers' log each time.
type doorCount struct {
	problem   model.PortProblem // the problem that is reported if shown is true
	seen      model.PortProblem // the problem when the port was last found closed
	bad, good int               // how often in a row the port was found closed, or open
	same      int               // how often in a row the port was found closed with the same problem
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

// reserve adds ports on which the agent, or a server in its process, listens. It ignores 0.
func (p *portWatch) reserve(ports ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range ports {
		if port > 0 {
			p.reserved[port] = true
		}
	}
}

// learn sets the ports of servers on this machine. listens has the addresses of all servers. Servers with the node's
// own address are on this machine.
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

// check refuses a port on which this agent or a server of this machine listens. Code: port_taken.
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

// setOwn records why one of the agent's own ports is not open. A nil problem means that the port is open.
func (p *portWatch) setOwn(port int, problem *model.PortProblem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.own, port)
	if problem != nil {
		p.own[port] = *problem
	}
	p.say()
}

// look takes the exposed ports that are closed now. A port is reported once selfBad calls in a row had it, and no
// longer once selfGood calls in a row did not have it. look is called about once a second.
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

// pending reports whether an exposed port was closed recently, so that look must be called again soon.
func (p *portWatch) pending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.doors) > 0
}

// say reports the ports that can't be opened, if their list changed. The caller holds p.mu.
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
