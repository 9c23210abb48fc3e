package transport

import (
	"sync"

	"github.com/outspan/outspan/model"
)

// Defaults of NewBodies, in bytes. 5,000 agents that send their inventories at once need about 50 MiB.
const (
	defaultBodiesPerCaller = 8 << 20
	defaultBodiesInAll     = 128 << 20
)

// Bodies bounds the bytes of request bodies, or of answers, that a server has in memory at once. It is safe for
// concurrent use.
type Bodies struct {
	perCaller, inAll int64

	mu     sync.Mutex
	beyond func() // may be nil
	held   int64
	of     map[model.Subject]int64
}

// NewBodies returns a Bodies with limits in bytes: perCaller for each caller, and inAll for all callers together. A
// limit of 0 or less means the default, which is 8 MiB for each caller and 128 MiB for all.
func NewBodies(perCaller, inAll int64) *Bodies {
	if perCaller <= 0 {
		perCaller = defaultBodiesPerCaller
	}
	if inAll <= 0 {
		inAll = defaultBodiesInAll
	}
	return &Bodies{perCaller: perCaller, inAll: inAll, of: map[model.Subject]int64{}}
}

// OnBeyond sets a function that is called whenever the limit of one caller is exceeded. It must not block. Call
// OnBeyond before the first call of Take.
func (b *Bodies) OnBeyond(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beyond = f
}

// Take counts n bytes for a caller until Give is called with the same arguments. It refuses them if they would exceed a
// limit, or if less room than the caller has would be left for others, and never blocks. So each greedy caller leaves
// half of the room. Only the limit for all callers applies to a server, because servers forward the requests of many
// callers. Only the limit for each caller applies to a user of a unix socket, so that it can act while others use up
// everything. Code: busy.
func (b *Bodies) Take(who model.Subject, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.of[who]
	if who.Kind == model.SubjectServer {
		own = 0
	}
	switch {
	case who.Kind != model.SubjectServer && b.of[who]+n > b.perCaller:
		if b.beyond != nil {
			b.beyond()
		}
		return model.Refuse(model.CodeBusy, "%s has requests of %d bytes under way, its share is %d",
			who, b.of[who]+n, b.perCaller).
			WithHint("send fewer large requests at once")
	case b.held+n+own > b.inAll && who.Kind != model.SubjectUID:
		return model.Refuse(model.CodeBusy, "this server holds requests of %d bytes, it has no room for more", b.held).
			WithHint("try again in a moment")
	}
	b.held += n
	b.of[who] += n
	return nil
}

// Give releases n bytes that Take counted for the caller.
func (b *Bodies) Give(who model.Subject, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	if b.of[who] -= n; b.of[who] == 0 {
		delete(b.of, who)
	}
}
