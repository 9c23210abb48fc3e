package driver

import (
	"net"
	"net/netip"
	"sort"
	"sync"

	"github.com/outspan/outspan/fsm"
)

// Ports hands out TCP ports of one address, each to one owner at a time. It keeps nothing on disk: the agent
// journals what it hands out, and after a restart claims it again with Claim before it takes new ones. Safe for
// many goroutines.
type Ports struct {
	addr        netip.Addr
	first, last uint16

	mu    sync.Mutex
	next  uint16
	owner map[uint16]ID
}

// NewPorts manages the ports first to last of addr. Choose them outside of the kernel's range for outgoing
// connections (/proc/sys/net/ipv4/ip_local_port_range), or a client's socket may sit on one. CodeInvalidSpec if
// the range is empty.
func NewPorts(addr netip.Addr, first, last uint16) (*Ports, error) {
	if !addr.IsValid() || first == 0 || last < first {
		return nil, fsm.Refuse(CodeInvalidSpec, "port range %d-%d of address %v is empty", first, last, addr)
	}
	return &Ports{addr: addr, first: first, last: last, next: first, owner: make(map[uint16]ID)}, nil
}

// Take gives owner n ports that nobody owns and that can be bound now; all or none. It goes round the range, so
// that a port rests for as long as possible before late connections to its last owner meet the next one. It
// blocks for the time of n binds. CodePortsExhausted when there are too few.
func (p *Ports) Take(owner ID, n int) ([]uint16, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var got []uint16
	size := int(p.last) - int(p.first) + 1
	for i := 0; i < size && len(got) < n; i++ {
		port := p.next
		p.next++
		if port == p.last {
			p.next = p.first
		}
		if _, taken := p.owner[port]; !taken && p.bindable(port) {
			got = append(got, port)
		}
	}
	if len(got) < n {
		return nil, fsm.Refuse(CodePortsExhausted, "%d ports of %v in %d-%d are free, %d are needed for %s", len(got), p.addr, p.first, p.last, n, owner).
			WithHint("widen the agent's port range")
	}
	for _, port := range got {
		p.owner[port] = owner
	}
	return got, nil
}

// Reserve gives owner a certain port, in or out of the range, for a static port. CodePortTaken if it has another
// owner or can't be bound.
func (p *Ports) Reserve(owner ID, port uint16) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if has, taken := p.owner[port]; taken {
		if has == owner {
			return nil
		}
		return fsm.Refuse(CodePortTaken, "port %d of %v belongs to instance %s", port, p.addr, has)
	}
	if !p.bindable(port) {
		return fsm.Refuse(CodePortTaken, "port %d of %v is in use by a process outside of this agent's instances", port, p.addr)
	}
	p.owner[port] = owner
	return nil
}

// Claim gives owner a port that the journal says is its own; the owner may be listening on it, so it isn't
// bound. CodePortTaken if the journal named two owners.
func (p *Ports) Claim(owner ID, port uint16) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if has, taken := p.owner[port]; taken && has != owner {
		return fsm.Refuse(CodePortTaken, "port %d of %v belongs to instance %s, not to %s", port, p.addr, has, owner)
	}
	p.owner[port] = owner
	return nil
}

// Release takes all ports from owner. Call it when its last process is gone.
func (p *Ports) Release(owner ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for port, has := range p.owner {
		if has == owner {
			delete(p.owner, port)
		}
	}
}

// Of lists the ports of owner in order.
func (p *Ports) Of(owner ID) []uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []uint16
	for port, has := range p.owner {
		if has == owner {
			list = append(list, port)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
	return list
}

// bindable tries it. Between this and the instance's own bind a stranger may come first; the instance then fails
// and is started again with others.
func (p *Ports) bindable(port uint16) bool {
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.addr, port)))
	if err != nil {
		return false
	}
	_ = ln.Close()
	return true
}
