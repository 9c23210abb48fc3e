package transport

import (
	"crypto/x509"
	"sync"
	"time"

	"github.com/outspan/outspan/pki"
)

// Lifetime is the validity of a certificate.
type Lifetime struct{ From, Until time.Time }

// endsSoon bounds how long before its end a certificate is reported.
const endsSoon = 14 * 24 * time.Hour

// NearEnd reports whether a certificate should be renewed: it ends within two weeks, and less than a third of its life
// is left. NearEnd is also true for an expired certificate, and false for the zero value.
func (l Lifetime) NearEnd(now time.Time) bool {
	left := l.Until.Sub(now)
	return !l.Until.IsZero() && left < endsSoon && left < l.Until.Sub(l.From)/3
}

func lifetimeOf(cert *x509.Certificate) Lifetime { return Lifetime{cert.NotBefore, cert.NotAfter} }

// maxSeenCerts bounds how many certificates are remembered; a cluster has 5,000 agents at most.
const maxSeenCerts = 1 << 14

// seenCerts remembers the validity of the certificates with which agents called. It is safe for many goroutines. The
// zero value is ready to use.
type seenCerts struct {
	mu  sync.Mutex
	all map[string]Lifetime // by the agent's name
}

// note remembers the certificate of a new connection from an agent.
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
		s.all[id.Name] = lifetimeOf(cert)
	}
}

// nearEnd returns the certificates that should be renewed, by agent name.
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

// AgentsNearEnd returns the certificates that should be renewed, of all agents that have connected, by agent name.
func (l *Listener) AgentsNearEnd(now time.Time) map[string]Lifetime { return l.seen.nearEnd(now) }
