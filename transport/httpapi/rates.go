package httpapi

import (
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// maxCallers is how many callers' rates are remembered. When one more caller arrives, all rates are forgotten. A caller
// has a certificate or is a user of this machine, so there are hardly ever that many.
const maxCallers = 16384

// rates limits how often each caller may do something.
type rates struct {
	mu      sync.Mutex
	perSec  float64
	burst   float64 // the most that a caller can take at once, after a pause
	buckets map[model.Subject]bucket
}

// bucket is the token bucket of one caller.
type bucket struct {
	left float64   // what could still be taken at the time of the last take
	at   time.Time // when take was last called
}

// take first refills the bucket: perSec for each second since the last call, up to full. Then it takes the amount given
// by many. If less is left, it takes nothing and returns false.
func (b *bucket) take(now time.Time, many, perSec, full float64) bool {
	b.left = min(full, b.left+now.Sub(b.at).Seconds()*perSec)
	b.at = now
	if b.left < many {
		return false
	}
	b.left -= many
	return true
}

func newRates(perSecond, burst float64) *rates {
	return &rates{perSec: perSecond, burst: burst, buckets: map[model.Subject]bucket{}}
}

// requestRates allows each caller perSecond requests a second, and a burst of twice as many.
func requestRates(perSecond int) *rates { return newRates(float64(perSecond), 2*float64(perSecond)) }

// registrationRates allows an agent 20 registrations at once, and then one every 5 s. This is enough for every normal
// restart, and keeps registrations from filling the log. Renewals of certificates have the same rate.
func registrationRates() *rates { return newRates(0.2, 20) }

// inventoryRates allows an agent twice as many inventories as registrations. Inventories are limited because an
// inventory may make other agents request their assignments again.
func inventoryRates() *rates { return newRates(0.4, 40) }

// reportRates limits the bytes of an agent's reports.
func reportRates() *rates { return newRates(reportBytesPerSecond, reportBytesAtOnce) }

// pageRates lets a caller open 30 streams of the page in a burst, and then one every 2 s. A new stream may make the
// server judge each row of its state, while the other streams wait.
func pageRates() *rates { return newRates(0.5, 30) }

func (r *rates) set(perSecond int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.perSec, r.burst = float64(perSecond), 2*float64(perSecond)
}

// takeRequest counts one request against a caller's rate. Code: rate_limited.
func (s *Server) takeRequest(who model.Subject) error {
	if s.rates.take(who) {
		return nil
	}
	s.cfg.Beyond(ShareRequests)
	return model.Refuse(model.CodeRateLimited,
		"%s sends more requests than its share, which limits.requests_per_second allows", who).
		WithHint("slow down, wait for changes with index and wait, or raise limits.requests_per_second")
}

// take counts one action against a caller's rate. It returns false if the rate does not allow the action now.
func (r *rates) take(who model.Subject) bool { return r.takeMany(who, 1) }

// takeMany counts an amount, such as a number of bytes, against a caller's rate. If the rate does not allow the amount
// now, takeMany returns false and counts nothing.
func (r *rates) takeMany(who model.Subject, many float64) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	b, known := r.buckets[who]
	if !known {
		if len(r.buckets) >= maxCallers {
			clear(r.buckets)
		}
		b = bucket{left: r.burst, at: now}
	}
	taken := b.take(now, many, r.perSec, r.burst)
	r.buckets[who] = b
	return taken
}

// giveBack undoes one take of a caller.
func (r *rates) giveBack(who model.Subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, known := r.buckets[who]; known {
		b.left++ // the next take applies the bound
		r.buckets[who] = b
	}
}
