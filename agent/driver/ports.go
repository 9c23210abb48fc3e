package driver

import (
	"net"
	"net/netip"
	"sync"

	"github.com/outspan/outspan/model"
)

// Ports records which instance owns which TCP ports of one address. The servers choose the ports. The record is not on
// disk, so after a restart the agent calls Claim for the ports of its instances. Safe for concurrent use.
type Ports struct {
	addr netip.Addr

	mu    sync.Mutex
	owner map[uint16]ID
}

// NewPorts returns a record of the ports of addr in which no port has an owner.
func NewPorts(addr netip.Addr) *Ports { return &Ports{addr: addr, owner: make(map[uint16]ID)} }

// Reserve gives a port to owner. It does nothing if owner has the port already. It returns CodePortTaken if the port
// has another owner or can't be bound.
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

// Claim gives a port to an owner that has it according to the agent's journal. Unlike Reserve, Claim doesn't try to
// bind the port, because the owner may be listening on it. It returns CodePortTaken if the port has another owner.
func (p *Ports) Claim(owner ID, port uint16) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if has, taken := p.owner[port]; taken && has != owner {
		return model.Refuse(CodePortTaken, "port %d of %v belongs to instance %s, not to %s", port, p.addr, has, owner)
	}
	p.owner[port] = owner
	return nil
}

// Owner returns the owner of a port, or "".
func (p *Ports) Owner(port uint16) ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owner[port]
}

// Release takes all ports from owner. Call it once no process of the owner is left.
func (p *Ports) Release(owner ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for port, has := range p.owner {
		if has == owner {
			delete(p.owner, port)
		}
	}
}

// bindable reports whether the port can be bound now. Another process may still bind the port before the instance does.
// In that case the program fails and is restarted.
func (p *Ports) bindable(port uint16) bool {
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.addr, port)))
	if err != nil {
		return false
	}
	_ = ln.Close()
	return true
}
