package api

import (
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// maxCallers bounds the callers whose rate is remembered. Every one of them holds a certificate, so there are few.
const maxCallers = 16384

// rates limits how many requests a second each caller may send, with a burst of twice as many.
type rates struct {
	mu      sync.Mutex
	perSec  float64
	buckets map[transport.Identity]bucket
}

// bucket holds how much could still be taken at a moment.
type bucket struct {
	left float64
	at   time.Time
}

// take takes one, if there is one. The bucket fills by perSec a second up to full.
func (b *bucket) take(now time.Time, perSec, full float64) bool {
	b.left = min(full, b.left+now.Sub(b.at).Seconds()*perSec)
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

func newRates(perSecond int) *rates {
	return &rates{perSec: float64(perSecond), buckets: map[transport.Identity]bucket{}}
}

func (r *rates) set(perSecond int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.perSec = float64(perSecond)
}

// take counts one request of a caller. Code: rate_limited.
func (r *rates) take(who transport.Identity) error {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	burst := 2 * r.perSec
	b, known := r.buckets[who]
	if !known {
		if len(r.buckets) >= maxCallers {
			clear(r.buckets)
		}
		b = bucket{left: burst, at: now}
	}
	taken := b.take(now, r.perSec, burst)
	r.buckets[who] = b
	if !taken {
		return fsm.Refuse(transport.CodeRateLimited, "%s sends more than %.0f requests a second", who, r.perSec).
			WithHint("slow down, wait for changes with index and wait, or raise limits.requests_per_second")
	}
	return nil
}
