package transport

import (
	"crypto/x509"
	"net"
	"sync"
)

// dialled is the set of open connections that were dialled with one Credentials. The zero value is ready to use. It is
// safe for concurrent use.
type dialled struct {
	mu   sync.Mutex
	open map[*outward]struct{}
}

// outward is a connection, below TLS, that this process dialled.
type outward struct {
	net.Conn
	account *dialled
	proof   []*x509.Certificate // the peer's certificates; set before the call of enter
}

func (d *dialled) enter(o *outward) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[*outward]struct{}{}
	}
	d.open[o] = struct{}{}
}

// Close closes the connection and removes it from its account.
func (o *outward) Close() error {
	o.account.mu.Lock()
	delete(o.account.open, o)
	o.account.mu.Unlock()
	return o.Conn.Close()
}

// closeIf closes the connections for which wrong returns true, and returns their number.
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
		_ = o.Close() // reads and writes on it fail from now on
	}
	return len(list)
}
