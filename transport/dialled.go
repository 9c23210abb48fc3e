package transport

import (
	"crypto/x509"
	"net"
	"sync"
)

// dialled is the connections that one Credentials opened and that are open. The zero value is empty and ready for use.
// Safe for many goroutines.
type dialled struct {
	mu   sync.Mutex
	open map[*outward]struct{}
}

// outward is a connection of ours to a peer, below TLS. It leaves the account when it is closed.
type outward struct {
	net.Conn
	account *dialled
	proof   []*x509.Certificate // what the peer showed; set before it enters
}

// enter takes a connection into the account.
func (d *dialled) enter(o *outward) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[*outward]struct{}{}
	}
	d.open[o] = struct{}{}
}

// Close implements net.Conn.
func (o *outward) Close() error {
	o.account.mu.Lock()
	delete(o.account.open, o)
	o.account.mu.Unlock()
	return o.Conn.Close()
}

// closeIf closes those to a peer whose certificates are wrong, and says how many.
func (d *dialled) closeIf(wrong func(proof []*x509.Certificate) bool) int {
	d.mu.Lock()
	var list []*outward
	for o := range d.open {
		if wrong(o.proof) {
			list = append(list, o)
		}
	}
	d.mu.Unlock()
	for _, o := range list {
		_ = o.Close() // its users see that it ended
	}
	return len(list)
}
