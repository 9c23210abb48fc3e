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

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
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
				const life = 30 * 24 * time.Hour
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

// A revoked agent does not keep the server of its machine from starting. A process without an agent leaves the files of
// an agent alone.
func TestReviveWithoutTheAgent(t *testing.T) {
	for name, agent := range map[string]bool{"with an agent": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRig(t).found(30 * 24 * time.Hour)
				s.lead()
				if agent {
					s.do(&fsm.MemberRevoke{Subject: who(model.SubjectAgent, "s1")})
				}
				time.Sleep(365 * 24 * time.Hour)
				_, err := trust.Revive(t.Context(), trust.Revival{Name: "s1", Agent: agent, DataDir: s.dir,
					Logger: hclog.NewNullLogger(),
					State:  func(context.Context) (fsm.State, error) { return s.machine.State(), nil }})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := transport.ManagedDir(s.dir).Credentials("c1", pki.RoleServer, "s1"); err != nil {
					t.Error(err)
				}
				if _, err := transport.ManagedDir(s.dir).Credentials("c1", pki.RoleAgent, "s1"); err == nil {
					t.Error("the agent has a new certificate")
				}
			})
		})
	}
}

// A server that can't write its new certificate uses it from memory, and writes it later. Revive hands it over.
func TestServerThatCantWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 30 * 24 * time.Hour
		s := newRig(t).found(life)
		s.lead()
		stop := s.run()
		mended := block(t, filepath.Join(s.dir, "tls", "server-key.pem.next"))
		time.Sleep(life * 60 / 100)
		first := s.creds.NotAfter()
		if time.Until(first) < life/3 {
			t.Error("the new certificate is not in use")
		}
		time.Sleep(24 * time.Hour)
		if !s.creds.NotAfter().Equal(first) {
			t.Error("it makes a new certificate again and again")
		}
		mended()
		time.Sleep(time.Hour)
		if got := must(tlsLeaf(s))(t); !got.NotAfter.Equal(first) {
			t.Errorf("the files have a certificate until %s, want %s", got.NotAfter, first)
		}
		stop()
		time.Sleep(2 * life)
		defer block(t, filepath.Join(s.dir, "tls", "server-key.pem.next"))()
		unwritten, err := trust.Revive(t.Context(), trust.Revival{Name: "s1", DataDir: s.dir, Logger: hclog.NewNullLogger(),
			State: func(context.Context) (fsm.State, error) { return s.machine.State(), nil }})
		if err != nil || unwritten == nil {
			t.Fatalf("revived: %v, unwritten %v", err, unwritten)
		}
		creds := must(transport.ManagedDir(s.dir).CredentialsAnyTime("c1", pki.RoleServer, "s1"))(t)
		if err := creds.Use(*unwritten, nil); err != nil || time.Until(creds.NotAfter()) < life/2 {
			t.Errorf("in use until %s: %v", creds.NotAfter(), err)
		}
	})
}

// A server that has no row, because the state was recovered from before its admission, renews all the same, and becomes
// a member again. A stranger does not.
func TestServerWithoutARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 30 * 24 * time.Hour
		r := newRig(t)
		s1 := r.found(life)
		s1.lead()
		before := s1.machine.State()
		s2 := s1.joinServer("s2", life)
		first := must(tlsLeaf(s2))(t)
		for _, s := range []*site{s1, s2} {
			s.machine.Replace(before)
			s.run()
		}
		time.Sleep(life * 60 / 100)
		row, ok := s1.machine.Current().TrustMemberOf(who(model.SubjectServer, "s2"))
		now := must(tlsLeaf(s2))(t)
		if !ok || string(row.Key) != string(pki.KeyHash(now)) || now.Equal(first) {
			t.Fatalf("row %v, renewed: %v", row, !now.Equal(first))
		}
		if err := fsm.Check(s1.machine.State()); err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		delete(r.sites, "s2")
		r.mu.Unlock()
		s1.machine.Replace(before)
		body := must(transport.EncodeCBOR(map[int]any{1: row.Key, 2: row.Key, 3: row.NotAfter}))(t)
		ctx := transport.WithSubject(t.Context(), who(model.SubjectServer, "s2"))
		_, _, err := s1.engine.AnswerPeer(ctx, "trust-renew", body)
		wantCode(t, err, model.CodeNotFound)
	})
}

// If the file with the CA's key can't be removed, the engine tries again until it can.
func TestCAKeyIsRemovedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRig(t).found(30 * 24 * time.Hour)
		file := transport.ManagedDir(s.dir).CAKeyFile()
		kept := must(os.ReadFile(file))(t)
		s.lead()
		if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
		defer s.run()()
		time.Sleep(24 * time.Hour)
		if err := os.WriteFile(file, kept, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Minute)
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file is still there: %v", err)
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
