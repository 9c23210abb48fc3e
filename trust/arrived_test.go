package trust_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// The key before counts until the agent says that it has its new certificate. Then whoever stole the old key is neither
// admitted nor served, and the agent stays a member. If the thief renews first, there is an event.
func TestReplacedKeyEnds(t *testing.T) {
	r := newRig(t)
	s := r.found(time.Hour)
	s.lead()
	der, leafOf := request(t, pki.RoleAgent, "n1")
	first := leafOf(must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent)
	n1 := who(model.SubjectAgent, "n1")
	renew := func(ctx context.Context, q []byte) ([][]byte, error) {
		reply, err := s.engine.Renew(ctx, n1, transport.RenewRequest{Request: q})
		return reply.Chain, err
	}
	old := shown(t, pki.KeyHash(first), first.NotAfter)
	q, nextOf := request(t, pki.RoleAgent, "n1")
	second := nextOf(must(renew(old, q))(t))
	if err := s.engine.Admit(id(pki.RoleAgent, "n1"), first); err != nil {
		t.Fatalf("the old key ended before the new one was used: %v", err)
	}
	for range 2 { // the second call writes nothing
		must(renew(shown(t, pki.KeyHash(second), second.NotAfter), nil))(t)
	}
	entries := len(r.log)
	must(renew(shown(t, pki.KeyHash(second), second.NotAfter), nil))(t)
	wantCode(t, s.engine.Admit(id(pki.RoleAgent, "n1"), first), model.CodeCertificateRefused)
	stolen, _ := request(t, pki.RoleAgent, "n1")
	_, err := renew(old, stolen)
	wantCode(t, err, model.CodeStale)
	_, err = renew(old, nil)
	wantCode(t, err, model.CodeStale)
	_, err = s.engine.Renew(old, who(model.SubjectServer, "s1"), transport.RenewRequest{})
	wantCode(t, err, model.CodeForbidden)
	_, err = s.engine.Renew(old, who(model.SubjectAgent, "n2"), transport.RenewRequest{})
	wantCode(t, err, model.CodeNotFound)
	if err := s.engine.Admit(id(pki.RoleAgent, "n1"), second); err != nil || len(r.log) != entries {
		t.Errorf("admission of the owner: %v; %d entries more", err, len(r.log)-entries)
	}
	s.do(&fsm.MemberRevoke{Subject: n1})
	_, err = renew(shown(t, pki.KeyHash(second), second.NotAfter), nil)
	wantCode(t, err, model.CodeMemberRevoked)
}

// While the new certificate can't be written, the agent uses it from memory, and its old key counts. It goes on to
// renew in time, whichever write failed.
func TestAgentThatCantWrite(t *testing.T) {
	for _, file := range []string{"gossip.key", "agent-key.pem", "agent-key.pem.next"} {
		t.Run(file, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const life = 3 * 24 * time.Hour
				s := newRig(t).found(life)
				s.lead()
				p := s.agentFiles("n1")
				first := p.leaf(t)
				defer p.run(t, s, nil)()
				synctest.Wait()
				mended := block(t, filepath.Join(p.dir.Path(), file))
				time.Sleep(life * 60 / 100)
				if time.Until(p.creds.NotAfter()) < life/3 {
					t.Error("the new certificate is not in use")
				}
				if row, _ := s.machine.Current().TrustMemberOf(who(model.SubjectAgent, "n1")); !row.Counts(pki.KeyHash(first)) {
					t.Error("the old key does not count, although only its certificate is in the files")
				}
				mended()
				time.Sleep(time.Hour)
				second := p.leaf(t)
				row, _ := s.machine.Current().TrustMemberOf(who(model.SubjectAgent, "n1"))
				if !second.NotAfter.Equal(p.creds.NotAfter()) || row.Counts(pki.KeyHash(first)) ||
					!row.Counts(pki.KeyHash(second)) {
					t.Errorf("the files have a certificate until %s, in use is one until %s; the old key counts: %v", second.NotAfter,
						p.creds.NotAfter(), row.Counts(pki.KeyHash(first)))
				}
				if _, err := p.dir.GossipKeys(); err != nil {
					t.Error(err)
				}
				time.Sleep(life * 60 / 100)
				if p.leaf(t).Equal(second) || time.Until(p.creds.NotAfter()) < life/3 {
					t.Error("there is no second renewal")
				}
			})
		})
	}
}

// block puts a directory at a path, so that no file can be written there, until mended is called. Then the path has its
// file again, if it had one.
func block(t testing.TB, path string) (mended func()) {
	t.Helper()
	kept, err := os.ReadFile(path)
	had := err == nil
	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		err := os.RemoveAll(path)
		if had {
			err = errors.Join(err, os.WriteFile(path, kept, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// An agent whose certificate has expired uses the one that outspan join writes, without a restart.
func TestExpiredAgentJoinsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 30 * 24 * time.Hour
		s := newRig(t).found(life)
		s.lead()
		p := s.agentFiles("n1")
		time.Sleep(2 * life)
		p.creds = must(p.dir.CredentialsAnyTime("c1", pki.RoleAgent, "n1"))(t)
		if _, err := p.dir.Credentials("c1", pki.RoleAgent, "n1"); err == nil {
			t.Fatal("the certificate has not expired")
		}
		defer p.run(t, s, func() error {
			if time.Now().After(p.creds.NotAfter()) {
				return errors.New("remote error: tls: expired certificate")
			}
			return nil
		})()
		time.Sleep(time.Hour)
		pair, _, err := p.dir.Pair(pki.RoleAgent)
		if err != nil {
			t.Fatal(err)
		}
		der := must(pki.RequestFor(pair.PrivateKey.(*ecdsa.PrivateKey), pki.RoleAgent, "n1", nil))(t) // the same key
		pair.Certificate = must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent
		if err := p.dir.Write(transport.ManagedFiles{Pairs: pairs(pki.RoleAgent, pair)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Minute)
		if left := time.Until(p.creds.NotAfter()); left < life/2 {
			t.Errorf("the agent uses a certificate with %s left", left)
		}
	})
}

func pairs(role pki.Role, pair tls.Certificate) map[pki.Role]tls.Certificate {
	return map[pki.Role]tls.Certificate{role: pair}
}

// copyTo copies the keyring and the certificates of a server.
func copyTo(t testing.TB, to, from string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(to, "tls"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{keyring.FileName, "tls/ca.pem", "tls/gossip.key", "tls/server.pem", "tls/server-key.pem",
		"tls/agent.pem", "tls/agent-key.pem"} {
		if err := os.WriteFile(filepath.Join(to, name), must(os.ReadFile(filepath.Join(from, name)))(t), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
