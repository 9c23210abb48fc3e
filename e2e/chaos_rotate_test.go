package e2e

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

func rotationFaults() []fault {
	return []fault{
		{name: "rotate-ca", kind: ofServers, alone: true, begin: rotateCA},
		{name: "rotate-gossip-key", kind: ofServers, alone: true, begin: rotateGossipKey},
		{name: "rotate-keyring", kind: ofServers, alone: true, begin: rotateKeyring},
	}
}

// rotateCA replaces the CA, and often kills the leader meanwhile. In the end every machine trusts only the new CA, and
// has a certificate of it.
func rotateCA(s *strike) {
	x := s.x
	old, err := transport.ManagedDir(x.c.servers[0].data()).Roots()
	if err != nil {
		x.t.Fatal(err)
	}
	x.begun("/v1/ca/rotate", "{}")
	s.later(func() {
		x.wait("L2: a new CA everywhere", chaosPatience, func() error {
			var ca api.CA
			if err := x.get("/v1/ca", &ca); err != nil {
				return err
			}
			if ca.Rotation != nil || len(ca.CAs) != 1 {
				return fmt.Errorf("%+v %+v", ca, ca.Rotation)
			}
			for _, m := range x.c.members() {
				if err := m.hasLeft(old); err != nil {
					return err
				}
			}
			return nil
		})
		x.book.count("rotations of the CA", 1)
	})
	s.loseLeader()
}

// hasLeft returns nil if a machine trusts one CA, which is none of these, and its certificate is of that CA.
func (m *member) hasLeft(old []*x509.Certificate) error {
	dir := transport.ManagedDir(m.data())
	roots, err := dir.Roots()
	if err != nil {
		return err
	}
	if len(roots) != 1 || slices.ContainsFunc(old, roots[0].Equal) {
		return fmt.Errorf("%s trusts %d CAs, or the one before", m.Name, len(roots))
	}
	if _, err := dir.Credentials(transport.DefaultCluster, pki.Role(m.role), m.Name); err != nil {
		return fmt.Errorf("the certificate of %s is not of the new CA: %w", m.Name, err)
	}
	return nil
}

// rotateGossipKey replaces the gossip key, and often kills the leader meanwhile. In the end every machine has the new
// key alone.
func rotateGossipKey(s *strike) {
	x := s.x
	old, err := transport.ManagedDir(x.c.servers[0].data()).GossipKeys()
	if err != nil {
		x.t.Fatal(err)
	}
	x.begun("/v1/trust/gossip-keys/rotate", "{}")
	s.later(func() {
		x.wait("L2: a new gossip key everywhere", chaosPatience, func() error {
			var keys api.GossipKeys
			if err := x.get("/v1/trust/gossip-keys", &keys); err != nil {
				return err
			}
			if keys.Rotating || len(keys.Keys) != 1 || keys.LackingCount > 0 {
				return fmt.Errorf("%+v", keys)
			}
			for _, m := range x.c.members() {
				has, err := transport.ManagedDir(m.data()).GossipKeys()
				if err != nil {
					return err
				}
				if len(has) != 1 || bytes.Equal(has[0], old[0]) {
					return fmt.Errorf("%s has %d gossip keys, or the one before", m.Name, len(has))
				}
			}
			return nil
		})
		x.book.count("rotations of the gossip key", 1)
	})
	s.loseLeader()
}

// rotateKeyring makes a new key of the keyring. In the end every server has it.
func rotateKeyring(s *strike) {
	x := s.x
	had, err := keyring.Open(filepath.Join(x.c.servers[0].data(), keyring.FileName))
	if err != nil {
		x.t.Fatal(err)
	}
	x.begun("/v1/keyring/rotate", "{}")
	s.later(func() {
		x.wait("L2: a new key in every keyring", chaosPatience, func() error {
			for _, m := range x.c.servers {
				has, err := keyring.Open(filepath.Join(m.data(), keyring.FileName))
				if err != nil {
					return err
				}
				if len(has.IDs()) <= len(had.IDs()) {
					return fmt.Errorf("%s has %v, as before", m.Name, has.IDs())
				}
			}
			return nil
		})
		x.book.count("rotations of the keyring", 1)
	})
	s.loseLeader()
}

// begun asks until a rotation has begun.
func (x *chaos) begun(path, body string) {
	x.t.Helper()
	waitFor(x.t, "the beginning of a rotation", chaosPatience, func() error {
		f := x.person(http.MethodPost, path, body)
		if f.done {
			return nil
		}
		time.Sleep(500 * time.Millisecond)
		return errors.New(f.body)
	})
}

// loseLeader kills the leader within the next two seconds, in two of three cases. The repair starts it before the steps
// that were registered earlier.
func (s *strike) loseLeader() {
	if s.x.random.IntN(3) == 0 {
		return
	}
	time.Sleep(time.Duration(s.x.random.IntN(2000)) * time.Millisecond)
	m := s.leader()
	s.kill(m)
	s.later(func() { m.start(s.x.t) })
}
