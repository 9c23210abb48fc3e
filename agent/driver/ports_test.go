package driver_test

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/outspan/outspan/agent/driver"
)

// span finds n free ports in a row on loopback.
func span(t *testing.T, n uint16) (netip.Addr, uint16) {
	t.Helper()
	addr := netip.MustParseAddr("127.0.0.1")
	for first := uint16(20000); first < 30000; first += n {
		p, err := driver.NewPorts(addr, first, first+n-1)
		must(t, err)
		if _, err := p.Take("probe", int(n)); err == nil {
			return addr, first
		}
	}
	t.Fatal("no free ports on loopback")
	return addr, 0
}

func TestPorts(t *testing.T) {
	addr, first := span(t, 6)
	p, err := driver.NewPorts(addr, first, first+5)
	must(t, err)
	a, err := p.Take("a", 2)
	must(t, err)
	b, err := p.Take("b", 2)
	must(t, err)
	if !slices.Equal(a, []uint16{first, first + 1}) || !slices.Equal(b, []uint16{first + 2, first + 3}) {
		t.Fatalf("a = %v, b = %v", a, b)
	}
	_, err = p.Take("c", 3)
	wantCode(t, err, driver.CodePortsExhausted)
	if got := p.Of("c"); len(got) != 0 {
		t.Fatalf("a refused request keeps %v", got)
	}
	// A port rests: the ones just given back come last.
	p.Release("a")
	c, err := p.Take("c", 2)
	must(t, err)
	if !slices.Equal(c, []uint16{first + 4, first + 5}) {
		t.Errorf("c = %v", c)
	}
	wantCode(t, p.Reserve("d", first+2), driver.CodePortTaken)
	must(t, p.Reserve("b", first+2))
	wantCode(t, p.Claim("d", first+4), driver.CodePortTaken)
}

// A port that a stranger listens on, at any address, is left out.
func TestPortsBound(t *testing.T) {
	addr, first := span(t, 4)
	one, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(first)})
	must(t, err)
	defer one.Close()
	wild, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4zero, Port: int(first) + 1})
	must(t, err)
	defer wild.Close()
	p, err := driver.NewPorts(addr, first, first+3)
	must(t, err)
	got, err := p.Take("a", 2)
	must(t, err)
	if !slices.Equal(got, []uint16{first + 2, first + 3}) {
		t.Errorf("got %v, but %d and %d are in use", got, first, first+1)
	}
	wantCode(t, p.Reserve("b", first), driver.CodePortTaken)
	must(t, p.Claim("b", first)) // the journal says that the listener is b's
}

func TestPortsNeverTwoOwners(t *testing.T) {
	addr, first := span(t, 32)
	p, err := driver.NewPorts(addr, first, first+31)
	must(t, err)
	var mu sync.Mutex
	seen := make(map[uint16]driver.ID)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			id := driver.ID([]string{"a", "b", "c", "d", "e", "f", "g", "h"}[w])
			for range 20 {
				got, err := p.Take(id, 3)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, port := range got {
					if has, taken := seen[port]; taken {
						t.Errorf("port %d belongs to %s and %s", port, has, id)
					}
					seen[port] = id
				}
				mu.Unlock()
				mu.Lock()
				for _, port := range got {
					delete(seen, port)
				}
				mu.Unlock()
				p.Release(id)
			}
		})
	}
	wg.Wait()
	for _, bad := range [][2]uint16{{0, 10}, {10, 9}} {
		_, err := driver.NewPorts(addr, bad[0], bad[1])
		wantCode(t, err, driver.CodeInvalidSpec)
	}
}

// Of many instances that are told to use the same port at the same time one has it, until it gives it back.
// proves A11 A12: what the servers give to one instance the agent lets no other one have.
func TestOnePortOneOwner(t *testing.T) {
	addr, first := span(t, 4)
	p, err := driver.NewPorts(addr, first, first+3)
	must(t, err)
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
		if last = owners[0]; len(p.Of(last)) != 1 {
			t.Fatalf("%s has the ports %v", last, p.Of(last))
		}
	}
	p.Release(last)
	must(t, p.Reserve("e", first))
}
