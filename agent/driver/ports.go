package driver

import (
	"net"
	"net/netip"
	"sync"

	"github.com/outspan/outspan/model"
)

// Ports records which instance has which TCP ports of one address, one owner each. The servers hand them out. It keeps
// nothing on disk: after a restart the agent calls Claim for the ports of its instances. Safe for many goroutines.
type Ports struct {
	addr netip.Addr

	mu    sync.Mutex
	owner map[uint16]ID
}

// NewPorts manages the ports of addr.
func NewPorts(addr netip.Addr) *Ports { return &Ports{addr: addr, owner: make(map[uint16]ID)} }

// Reserve gives owner a port. CodePortTaken if it has another owner or can't be bound.
func (p *Ports) Reserve(owner ID, port uint16) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if has, taken := p.owner[port]; taken {
		if has == owner {
			return nil
		}
		return model.Refuse(CodePortTaken, "port %d of %v belongs to instance %s", port, p.addr, has)
	}
	if !p.bindable(port) {
		return model.Refuse(CodePortTaken, "port %d of %v is in use by a process outside of this agent's instances",
			port, p.addr)
	}
	p.owner[port] = owner
	return nil
}

// Claim gives owner a port that the journal says is its own. It doesn't bind the port, since the owner may be
// listening. CodePortTaken if it has another owner.
func (p *Ports) Claim(owner ID, port uint16) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if has, taken := p.owner[port]; taken && has != owner {
		return model.Refuse(CodePortTaken, "port %d of %v belongs to instance %s, not to %s", port, p.addr, has, owner)
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

// bindable tries to bind the port. Another process may take it before the instance does; the instance then fails and is
// started again.
func (p *Ports) bindable(port uint16) bool {
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.addr, port)))
	if err != nil {
		return false
	}
	_ = ln.Close()
	return true
}
