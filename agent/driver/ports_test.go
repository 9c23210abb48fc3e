package driver_test

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/outspan/outspan/agent/driver"
)

// freePorts returns the loopback address, and the first of n consecutive ports that are free on it.
func freePorts(t *testing.T, n uint16) (netip.Addr, uint16) {
	t.Helper()
	addr := netip.MustParseAddr("127.0.0.1")
	for first := uint16(20000); first < 30000; first += n {
		p := driver.NewPorts(addr)
		free := true
		for port := first; port < first+n && free; port++ {
			free = p.Reserve("probe", port) == nil
		}
		if free {
			return addr, first
		}
	}
	t.Fatal("no free ports on loopback")
	return addr, 0
}

// A port has one owner, until the owner releases all its ports.
func TestPorts(t *testing.T) {
	addr, first := freePorts(t, 3)
	p := driver.NewPorts(addr)
	must(t, p.Reserve("a", first))
	must(t, p.Reserve("a", first+1))
	must(t, p.Reserve("b", first+2))
	must(t, p.Reserve("b", first+2))
	wantCode(t, p.Reserve("b", first+1), driver.CodePortTaken)
	wantCode(t, p.Claim("b", first), driver.CodePortTaken)
	p.Release("a")
	must(t, p.Reserve("b", first+1))
	must(t, p.Claim("c", first))
	wantCode(t, p.Reserve("a", first+2), driver.CodePortTaken)
}

// Reserve refuses a port on which another process listens, at any address. Claim accepts the port, because an agent
// claims only ports that the instance already has according to the agent's journal.
func TestPortsBound(t *testing.T) {
	addr, first := freePorts(t, 3)
	one, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(first)})
	must(t, err)
	defer one.Close()
	wild, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4zero, Port: int(first) + 1})
	must(t, err)
	defer wild.Close()
	p := driver.NewPorts(addr)
	wantCode(t, p.Reserve("b", first), driver.CodePortTaken)
	wantCode(t, p.Reserve("b", first+1), driver.CodePortTaken)
	must(t, p.Reserve("b", first+2))
	must(t, p.Claim("b", first))
}

// If many instances reserve one port at the same time, exactly one of them gets the port, and keeps it until its ports
// are released.
// proves A11 A12: what the servers give to one instance the agent lets no other one have.
func TestOnePortOneOwner(t *testing.T) {
	addr, first := freePorts(t, 1)
	p := driver.NewPorts(addr)
	last := driver.ID("")
	for range 20 {
		var mu sync.Mutex
		var owners []driver.ID
		var wg sync.WaitGroup
		for _, id := range []driver.ID{"a", "b", "c", "d"} {
			wg.Go(func() {
				if p.Reserve(id, first) == nil {
					mu.Lock()
					defer mu.Unlock()
					owners = append(owners, id)
				}
			})
		}
		wg.Wait()
		if len(owners) != 1 || last != "" && owners[0] != last {
			t.Fatalf("the port belongs to %v, before that to %q", owners, last)
		}
		last = owners[0]
	}
	p.Release(last)
	must(t, p.Reserve("e", first))
}
