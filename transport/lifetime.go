package transport

import (
	"crypto/x509"
	"sync"
	"time"

	"github.com/outspan/outspan/pki"
)

// Lifetime is the time from the creation of a certificate to its end.
type Lifetime struct{ From, Until time.Time }

// endsSoon is how long before its end, at most, a certificate should be renewed.
const endsSoon = 14 * 24 * time.Hour

// NearEnd reports whether a certificate should be renewed: it ends within two weeks, and less than a third of its life
// is left. NearEnd is also true for an expired certificate, and false for the zero value.
func (l Lifetime) NearEnd(now time.Time) bool {
	left := l.Until.Sub(now)
	return !l.Until.IsZero() && left < endsSoon && left < l.Until.Sub(l.From)/3
}

// LifetimeOf returns the lifetime of a certificate. A certificate of our CA was created backdate after its NotBefore.
// For a certificate of another CA that is valid for more than a day, From is up to a day late. A certificate that is
// valid for no longer than backdate is not of our CA, so From is its NotBefore.
func LifetimeOf(cert *x509.Certificate) Lifetime {
	from := cert.NotBefore
	if issued := from.Add(backdate); issued.Before(cert.NotAfter) {
		from = issued
	}
	return Lifetime{from, cert.NotAfter}
}

// maxSeenCerts is how many certificates are remembered. A cluster has at most 5,000 agents.
const maxSeenCerts = 1 << 14

// seenCerts remembers the lifetimes of the certificates with which agents called. The zero value is ready to use. Safe
// for concurrent use.
type seenCerts struct {
	mu  sync.Mutex
	all map[string]Lifetime // by the agent's name
}

// note remembers the lifetime of the certificate of a newly connected agent. It ignores peers that are not agents.
func (s *seenCerts) note(id pki.Identity, cert *x509.Certificate) {
	if id.Role != pki.RoleAgent {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]Lifetime{}
	}
	if _, known := s.all[id.Name]; known || len(s.all) < maxSeenCerts {
		s.all[id.Name] = LifetimeOf(cert)
	}
}

func (s *seenCerts) nearEnd(now time.Time) map[string]Lifetime {
	found := map[string]Lifetime{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, life := range s.all {
		if life.NearEnd(now) {
			found[name] = life
		}
	}
	return found
}

// AgentsNearEnd returns the lifetimes of the certificates that should be renewed, by agent name. It knows all agents
// that have connected since the start.
func (l *Listener) AgentsNearEnd(now time.Time) map[string]Lifetime { return l.seen.nearEnd(now) }
