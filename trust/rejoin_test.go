package trust_test

import (
	"crypto/x509"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
)

// A server that was revoked and joined again is admitted with its new certificate, also by a server that knows only of
// the revocation. The certificate from before is admitted nowhere, nor are those that the revoked server makes itself.
func TestRevokedServerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 30 * 24 * time.Hour
		r := newRig(t)
		s1 := r.found(life)
		s1.lead()
		s2 := s1.joinServer("s2", life)
		s3 := s1.joinServer("s3", life)
		stolen := must(tlsLeaf(s2))(t)
		r.stop(s2)
		s1.do(&fsm.MemberRevoke{Subject: who(model.SubjectServer, "s2")})
		r.stop(s3)
		der, leafOf := request(t, pki.RoleServer, "s2")
		q := transport.JoinRequest{Server: der, Address: "10.0.0.2:7640"}
		_, err := s1.join(s1.token(pki.RoleAgent), q)
		wantCode(t, err, model.CodeTokenRole)
		returned := leafOf(must(s1.join(s1.token(pki.RoleServer), q))(t).Server)
		if pki.AdmittedAt(returned) <= pki.AdmittedAt(stolen) {
			t.Errorf("the certificates have the numbers %d and %d", pki.AdmittedAt(stolen), pki.AdmittedAt(returned))
		}
		if row, _ := s3.machine.Current().TrustMemberOf(who(model.SubjectServer, "s2")); row.RevokedIndex == 0 {
			t.Fatal("the third server knows of the return")
		}
		renewed := renewedOwn(t, s2, life)
		for name, s := range map[string]*site{"the leader": s1, "the server that missed the return": s3} {
			for what, test := range map[string]struct {
				leaf *x509.Certificate
				want model.Code
			}{
				"new":                        {returned, ""},
				"stolen":                     {stolen, model.CodeMemberRevoked},
				"made by the revoked server": {renewed, model.CodeMemberRevoked},
			} {
				if err := s.engine.Admit(id(pki.RoleServer, "s2"), test.leaf); codeOf(err) != test.want {
					t.Errorf("S19: %s, the %s certificate: %v, want %q", name, what, err, test.want)
				}
			}
		}
	})
}

// A server that was revoked and has joined again does not take itself for revoked while its state has only the
// revocation. With its old certificate it does.
func TestReturnedServerWaitsForItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s1 := r.found(30 * 24 * time.Hour)
		s1.lead()
		var mu sync.Mutex
		var log strings.Builder
		logged := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return log.String()
		}
		r.engine = func(c *trust.Config) {
			c.Logger = hclog.New(&hclog.LoggerOptions{Output: &log, Mutex: &mu})
		}
		s2 := s1.joinServer("s2", 30*24*time.Hour)
		s1.do(&fsm.MemberRevoke{Subject: who(model.SubjectServer, "s2")})
		known := len(r.log)
		r.stop(s2)
		stop := s2.run()
		if got := logged(); !strings.Contains(got, "s2 was revoked") {
			t.Errorf("with the old certificate it logs %q", got)
		}
		stop()

		back := s1.joinServer("s2", 30*24*time.Hour)
		r.stop(back)
		back.machine = fsm.NewMachine()
		for i, e := range r.log[:known] {
			back.apply(i, e)
		}
		cfg := back.cfg
		cfg.Store = back.machine
		back.engine = must(trust.NewEngine(cfg))(t)
		mu.Lock()
		log.Reset()
		mu.Unlock()
		back.run()
		if got := logged(); strings.Contains(got, "revoked") {
			t.Errorf("after its return it logs %q", got)
		}
	})
}

// renewedOwn lets a server that hears of nothing renew its own certificate.
func renewedOwn(t testing.TB, s *site, life time.Duration) *x509.Certificate {
	t.Helper()
	old := must(tlsLeaf(s))(t)
	stop := s.run()
	time.Sleep(life * 56 / 100)
	synctest.Wait()
	stop()
	leaf := must(tlsLeaf(s))(t)
	if !leaf.NotAfter.After(old.NotAfter) {
		t.Fatal("the server has not renewed its certificate")
	}
	return leaf
}

// A join token that was made before a revocation does not let the revoked machine return, and the token by which it
// joined admits nobody under another name either.
func TestRevokedAgentNeedsANewToken(t *testing.T) {
	s := newRig(t).found(time.Hour)
	s.lead()
	uses := func(c *fsm.TokenCreate) { c.Uses = 5 }
	its, other := s.token(pki.RoleAgent, uses), s.token(pki.RoleAgent, uses)
	join := func(token pki.JoinToken, name string) error {
		der, _ := request(t, pki.RoleAgent, name)
		_, err := s.join(token, transport.JoinRequest{Agent: der})
		return err
	}
	if err := join(its, "n1"); err != nil {
		t.Fatal(err)
	}
	s.do(&fsm.MemberRevoke{Subject: who(model.SubjectAgent, "n1")})
	wantCode(t, join(its, "n1"), model.CodeTokenRevoked)
	wantCode(t, join(its, "n2"), model.CodeTokenRevoked)
	wantCode(t, join(other, "n1"), model.CodeTokenRevoked)
	for _, name := range []string{"n2", "n1"} {
		token := other
		if name == "n1" {
			token = s.token(pki.RoleAgent)
		}
		if err := join(token, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A repeated join writes nothing while more than half of the certificate's life is left, and its certificates end with
// those that the state has. Later, one entry makes them last again.
func TestRepeatedJoinWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 30 * 24 * time.Hour
		r := newRig(t)
		s := r.found(life)
		s.lead()
		token := s.token(pki.RoleServer)
		server, leafOf := request(t, pki.RoleServer, "s2")
		agent, _ := request(t, pki.RoleAgent, "s2")
		q := transport.JoinRequest{Server: server, Agent: agent, Address: "10.0.0.2:7640"}
		first := leafOf(must(s.join(token, q))(t).Server)
		for _, step := range []struct {
			wait    time.Duration
			entries int
		}{{time.Second, 0}, {life / 3, 0}, {life / 3, 1}, {time.Second, 0}} {
			time.Sleep(step.wait)
			before := len(r.log)
			var last *x509.Certificate
			for range 3 {
				last = leafOf(must(s.join(token, q))(t).Server)
			}
			if got := len(r.log) - before; got != step.entries {
				t.Errorf("after %s, three joins left %d entries, want %d", step.wait, got, step.entries)
			}
			if step.entries > 0 {
				first = last
			}
			row, _ := s.machine.Current().TrustMemberOf(who(model.SubjectServer, "s2"))
			if !last.NotAfter.Equal(first.NotAfter) || row.NotAfter != last.NotAfter.UnixMilli() {
				t.Errorf("after %s, the certificate ends at %s, in the state at %d", step.wait, last.NotAfter, row.NotAfter)
			}
		}
	})
}

// A connection ends whose certificate was revoked and replaced between two looks at the connections. Another member's
// connection stays, and so does one with the previous key, which still counts.
func TestReplacedCertificateEndsConnections(t *testing.T) {
	s := newRig(t).found(time.Hour)
	s.lead()
	agent := func(name string) *x509.Certificate {
		der, leafOf := request(t, pki.RoleAgent, name)
		return leafOf(must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent)
	}
	stolen, other, renewing := agent("n1"), agent("n2"), agent("n3")
	ctx := shown(t, pki.KeyHash(renewing), renewing.NotAfter)
	der, _ := request(t, pki.RoleAgent, "n3")
	must(s.engine.Renew(ctx, who(model.SubjectAgent, "n3"), transport.RenewRequest{Request: der}))(t)
	s.do(&fsm.MemberRevoke{Subject: who(model.SubjectAgent, "n1")})
	agent("n1")
	var closed, wrong atomic.Int32
	s.closed = func(f func(pki.Identity, *x509.Certificate) bool) int {
		if f(id(pki.RoleAgent, "n1"), stolen) {
			closed.Add(1)
		}
		if f(id(pki.RoleAgent, "n2"), other) || f(id(pki.RoleAgent, "n3"), renewing) {
			wrong.Add(1)
		}
		return 1
	}
	s.run()
	eventually(t, "the connection of the stolen key ends", func() bool { return closed.Load() > 0 })
	if wrong.Load() > 0 {
		t.Error("connections of good certificates ended")
	}
}
