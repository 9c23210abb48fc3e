package trust

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// lookAgain is the longest time between two looks at a certificate, so that a changed clock is noticed.
const lookAgain = 10 * time.Minute

// due reports whether a certificate should be renewed. One that is not valid yet is not due: the clock is behind, and a
// new certificate would end by that clock.
func due(cert *x509.Certificate) bool { return !time.Now().Before(renewAt(cert)) }

// renewAt returns when a certificate should be renewed: after 45 to 55 % of its life, or of transport.MemberTTL if it
// lasts longer, because it is from before the cluster made its certificates. The place in this range follows from the
// certificate's key, so machines that joined together don't renew together.
func renewAt(cert *x509.Certificate) time.Time {
	life := transport.LifetimeOf(cert)
	whole := min(life.Until.Sub(life.From), transport.MemberTTL)
	spread := time.Duration(binary.BigEndian.Uint16(pki.KeyHash(cert)))
	return life.From.Add(whole/20*9 + whole/10/(1<<16)*spread)
}

// untilRenewal returns how long to wait until the next look at a certificate. It is never 0.
func untilRenewal(cert *x509.Certificate) time.Duration {
	return min(max(time.Until(renewAt(cert)), 0)+time.Millisecond, lookAgain)
}

// Machines renew within these times after another CA has become active. The one for servers is short, because newcomers
// with a token of the new CA can only ask servers that have renewed.
const (
	serverSpread = 5 * time.Second
	agentSpread  = time.Minute
)

// spreadOf returns a part of whole that follows from the certificate's key.
func spreadOf(cert *x509.Certificate, whole time.Duration) time.Duration {
	return whole / (1 << 16) * time.Duration(binary.BigEndian.Uint16(pki.KeyHash(cert)))
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// backoff is the pause after failed attempts. It doubles from its first value to its last one.
type backoff struct{ first, last, next time.Duration }

// after returns the pause after another failed attempt, varied by up to a tenth.
func (b *backoff) after() time.Duration {
	b.next = min(max(2*b.next, b.first), b.last)
	return b.next - b.next/10 + rand.N(b.next/5)
}

// reset is for a successful attempt.
func (b *backoff) reset() { b.next = 0 }
