package transport

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
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

// LifetimeOf returns the lifetime of a certificate. Certificates of our CA say when they were created; a certificate of
// another CA counts from its NotBefore on.
func LifetimeOf(cert *x509.Certificate) Lifetime {
	for _, one := range cert.Extensions {
		var period keyUsagePeriod
		if !one.Id.Equal(oidKeyUsagePeriod) {
			continue
		}
		if rest, err := asn1.Unmarshal(one.Value, &period); err == nil && len(rest) == 0 && !period.From.IsZero() {
			return Lifetime{period.From, cert.NotAfter}
		}
	}
	return Lifetime{cert.NotBefore, cert.NotAfter}
}

// oidKeyUsagePeriod is the standard extension privateKeyUsagePeriod, whose begin is the time from which the holder uses
// the key. Programs that don't know it ignore it.
var oidKeyUsagePeriod = asn1.ObjectIdentifier{2, 5, 29, 16}

type keyUsagePeriod struct {
	From time.Time `asn1:"optional,generalized,tag:0"`
}

// issuedAt returns the extension by which a certificate says when it was created, in whole seconds.
func issuedAt(at time.Time) ([]pkix.Extension, error) {
	der, err := asn1.Marshal(keyUsagePeriod{at.UTC().Truncate(time.Second)})
	if err != nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "can't encode the time %s: %v", at, err)
	}
	return []pkix.Extension{{Id: oidKeyUsagePeriod, Value: der}}, nil
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
