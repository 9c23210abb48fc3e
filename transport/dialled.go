package transport

import (
	"crypto/x509"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/pki"
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
	peer    pki.Identity        // set before the call of enter, as is proof
	proof   []*x509.Certificate // the peer's certificates, its own first
	ending  *time.Timer         // closes it; nil before drain; guarded by account.mu
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
	if o.ending != nil {
		o.ending.Stop()
	}
	o.account.mu.Unlock()
	return o.Conn.Close()
}

// closeIf closes the connections for which wrong returns true, and returns their number.
func (d *dialled) closeIf(wrong func(*outward) bool) (closed int) {
	for _, o := range d.list() { // without mu: wrong takes time, and Close locks mu
		if wrong(o) {
			closed++
			_ = o.Close() // reads and writes on it fail from now on
		}
	}
	return closed
}

// list returns the connections that are open.
func (d *dialled) list() []*outward {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.open))
}
