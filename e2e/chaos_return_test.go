package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// returnFaults are about machines that wait for an approval, or that come back to a cluster with newer keys.
func returnFaults() []fault {
	return []fault{
		{name: "approval", kind: ofServers, alone: true, begin: approveNewcomer},
		{name: "expired-agent", kind: ofAgents, alone: true, begin: expireAgent},
		{name: "rotate-ca-without", kind: ofAgents, alone: true, begin: rotateWithout},
	}
}

// approveNewcomer turns join_approval on. A machine with a good token waits until a person approves it. The leader is
// often killed before the machine asks again. It joins with its approval, and another machine does not.
func approveNewcomer(s *strike) {
	x := s.x
	x.setJoinApproval(true)
	token, name, other := x.token("agent", 2), x.newVisitor(), x.newVisitor()
	for _, one := range []string{name, other} {
		waitFor(x.t, one+" waits for an approval", chaosPatience, func() error {
			switch _, err := x.visit(one, token, x.c.leader(x.t), "--wait", "0"); {
			case err == nil:
				x.book.violate("S19: %s joined without an approval", one)
			case !refusedWith(err, "approval_pending"):
				return err
			}
			return nil
		})
	}
	waitFor(x.t, "the approval of "+name, chaosPatience, func() error {
		if f := x.person(http.MethodPost, "/v1/newcomers/agent:"+name+"/approve", "{}"); !f.done {
			return errors.New(f.body)
		}
		return nil
	})
	s.later(func() {
		for _, at := range x.c.servers {
			if _, err := x.visit(other, token, at, "--wait", "0"); err == nil {
				x.book.violate("S19: %s admitted %s, and %s was approved", at.Name, other, name)
			}
		}
		x.wait("L2: the join of a machine that was approved", chaosPatience, func() error {
			_, err := x.visit(name, token, x.c.servers[x.random.IntN(chaosServers)], "--wait", "0")
			return err
		})
		x.setJoinApproval(false)
		x.revokeToken(token)
		x.revoke("agent", name)
		x.book.count("machines approved", 1)
	})
	s.loseLeader()
}

func (x *chaos) setJoinApproval(on bool) {
	x.t.Helper()
	waitFor(x.t, "the setting join_approval", chaosPatience, func() error {
		if r := x.c.cli(x.t, "settings", "set", fmt.Sprintf("join_approval=%t", on)); r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}

// expireAgent stops an agent and lets its certificate expire. When the agent starts, it gets a new certificate without
// a token.
func expireAgent(s *strike) {
	x, m := s.x, s.agent()
	s.ends(m)
	m.Kill()
	x.expire(m)
	s.later(func() {
		m.start(x.t)
		x.wait("L2: the return of an agent whose certificate has expired", chaosPatience, func() error {
			life, err := m.certificate()
			if err == nil && time.Now().After(life.Until) {
				err = fmt.Errorf("its certificate ended at %s", life.Until)
			}
			return err
		})
		x.book.count("agents that returned by themselves after their certificates had expired", 1)
	})
	s.loseLeader()
}

// expire replaces the certificate of an agent by one for the same key that has expired. It is of the same CA, so only
// the passing of time is not real.
func (x *chaos) expire(m *member) {
	x.t.Helper()
	ca, err := x.authority()
	if err != nil {
		x.t.Fatal(err)
	}
	dir := transport.ManagedDir(m.data())
	pair, found, err := dir.Pair(pki.RoleAgent)
	if err != nil || !found {
		x.t.Fatalf("%s has no certificate (%v)", m.Name, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		x.t.Fatalf("the key is a %T", pair.PrivateKey)
	}
	cert, err := ca.Sign(pki.Request{Role: pki.RoleAgent, Name: m.Name, PublicKey: &key.PublicKey,
		AdmittedAt: pki.AdmittedAt(pair.Leaf)}, time.Nanosecond)
	if err != nil {
		x.t.Fatal(err)
	}
	next := tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
	if err := dir.Write(transport.ManagedFiles{Pairs: map[pki.Role]tls.Certificate{pki.RoleAgent: next}}); err != nil {
		x.t.Fatal(err)
	}
}

// authority decrypts the CA that signs, which a snapshot has, with the keyring of a server.
func (x *chaos) authority() (*transport.Authority, error) {
	x.t.Helper()
	file := x.c.path("authority.snap")
	x.c.must(x.t, "server", "snapshot", "save", file, "--force")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	state, err := fsm.ReadSnapshot(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	ring, err := keyring.Open(filepath.Join(x.c.servers[0].data(), keyring.FileName))
	if err != nil {
		return nil, err
	}
	row, ok := state.ActiveKey(model.KeyCA)
	if !ok {
		return nil, errors.New("there is no active CA")
	}
	under, ok := state.TrustKeys.Get(model.KeyName(row.Under))
	if !ok {
		return nil, fmt.Errorf("there is no key %s", row.Under)
	}
	data, err := ring.Unwrap(keyring.Wrapped{KEK: keyring.ID(under.Under), Bytes: under.Sealed})
	if err != nil {
		return nil, err
	}
	plain, err := data.Open(string(row.Name), row.Version, row.Sealed)
	if err != nil {
		return nil, err
	}
	return transport.LoadAuthority(row.Public, plain)
}

// rotateWithout replaces the CA while an agent is off, and leaves that agent behind. All others move to the new CA. The
// agent can't connect with its old certificate, and joins again with a token.
func rotateWithout(s *strike) {
	x, m := s.x, s.agent()
	old, err := transport.ManagedDir(x.c.servers[0].data()).Roots()
	if err != nil {
		x.t.Fatal(err)
	}
	s.ends(m)
	m.Kill()
	left := x.steal(m.Name, m.tls())
	x.begun("/v1/ca/rotate", fmt.Sprintf(`{"force":true,"names":[%q]}`, m.Name))
	s.later(func() {
		x.wait("L2: a new CA at all others", chaosPatience, func() error {
			var ca api.CA
			if err := x.get("/v1/ca", &ca); err != nil {
				return err
			}
			if ca.Rotation != nil || len(ca.CAs) != 1 {
				return fmt.Errorf("%+v %+v", ca, ca.Rotation)
			}
			for _, one := range without(x.c.members(), m) {
				if err := one.hasLeft(old); err != nil {
					return err
				}
			}
			return nil
		})
		if can := x.triesAll(left); len(can) > 0 {
			x.book.violate("S19: %s with a certificate of a CA that was dropped gets %v", m.Name, can)
		}
		x.revoke(m.role, m.Name)
		x.rejoin(m, x.token("agent", 1))
		x.wait("L2: the new CA at the agent that was left behind", chaosPatience, func() error { return m.hasLeft(old) })
		x.book.count("agents left behind by a rotation of the CA", 1)
	})
	s.loseLeader()
}
