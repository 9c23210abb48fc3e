package transport

import (
	"sync"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Defaults of NewBodies, in bytes. 5,000 agents that send their inventories at once need about 50 MiB.
const (
	defaultBodiesPerCaller = 8 << 20
	defaultBodiesInAll     = 128 << 20
)

// Bodies bounds the bytes of request bodies that a server holds in memory at once. It is safe for many goroutines.
type Bodies struct {
	perCaller, inAll int64

	mu   sync.Mutex
	held int64
	of   map[pki.Identity]int64
}

// NewBodies bounds the bytes of one caller, and of all callers together. Zeros mean 8 MiB and 128 MiB.
func NewBodies(perCaller, inAll int64) *Bodies {
	if perCaller <= 0 {
		perCaller = defaultBodiesPerCaller
	}
	if inAll <= 0 {
		inAll = defaultBodiesInAll
	}
	return &Bodies{perCaller: perCaller, inAll: inAll, of: map[pki.Identity]int64{}}
}

// Take counts n bytes of a caller until Give is called with the same arguments. It refuses bytes above a limit, and
// never blocks. Servers forward the requests of many callers, so only the limit of all callers together applies to
// them. Code: busy.
func (b *Bodies) Take(who pki.Identity, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case who.Role != pki.RoleServer && b.of[who]+n > b.perCaller:
		return model.Refuse(model.CodeBusy, "%s has requests of %d bytes under way, at most %d are allowed",
			who, b.of[who]+n, b.perCaller).
			WithHint("send fewer large requests at once")
	case b.held+n > b.inAll:
		return model.Refuse(model.CodeBusy, "this server holds requests of %d bytes, it has no room for more", b.held).
			WithHint("try again in a moment")
	}
	b.held += n
	b.of[who] += n
	return nil
}

// Give releases bytes that Take counted.
func (b *Bodies) Give(who pki.Identity, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	if b.of[who] -= n; b.of[who] == 0 {
		delete(b.of, who)
	}
}
