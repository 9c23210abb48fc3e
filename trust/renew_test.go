package trust_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
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

// shown returns the context of a call with a certificate.
func shown(t testing.TB, key []byte, notAfter time.Time) context.Context {
	return transport.WithShown(t.Context(), transport.Shown{Key: key, NotAfter: notAfter.UnixMilli()})
}

// An agent gets a certificate for a new key, and the old key counts until the next renewal. Refusals leave no entry.
func TestRenew(t *testing.T) {
	r := newRig(t)
	s := r.found(time.Hour)
	s.lead()
	der, leafOf := request(t, pki.RoleAgent, "n1")
	first := leafOf(must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent)
	n1 := who(model.SubjectAgent, "n1")
	next, nextLeaf := request(t, pki.RoleAgent, "n1")
	for range 2 { // the second call is a repeated one after a lost answer
		reply := must(s.engine.Renew(shown(t, pki.KeyHash(first), first.NotAfter), n1,
			transport.RenewRequest{Request: next}))(t)
		row, _ := s.machine.Current().TrustMemberOf(n1)
		if !row.Counts(pki.KeyHash(first)) || string(row.Key) != string(pki.KeyHash(nextLeaf(reply.Chain))) {
			t.Errorf("the row is %+v", row)
		}
		if len(reply.Roots) != 1 || len(reply.GossipKeys) != 1 || len(reply.Servers) != 1 {
			t.Errorf("the reply has %d roots, %d gossip keys and %d servers", len(reply.Roots), len(reply.GossipKeys),
				len(reply.Servers))
		}
	}
	other, _ := request(t, pki.RoleAgent, "n2")
	server, _ := request(t, pki.RoleServer, "n1")
	s.do(&fsm.MemberRevoke{Subject: who(model.SubjectAgent, "s1")})
	s1, _ := request(t, pki.RoleAgent, "s1")
	pair, _, err := transport.ManagedDir(s.dir).Pair(pki.RoleAgent)
	if err != nil {
		t.Fatal(err)
	}
	later, _ := request(t, pki.RoleAgent, "n1")
	for name, test := range map[string]struct {
		ctx     context.Context
		who     model.Subject
		request []byte
		want    model.Code
	}{
		"another name": {shown(t, pki.KeyHash(first), first.NotAfter), n1, other, model.CodeForbidden},
		"another role": {shown(t, pki.KeyHash(first), first.NotAfter), n1, server, model.CodeForbidden},
		"a server": {shown(t, pki.KeyHash(first), first.NotAfter), who(model.SubjectServer, "n1"), later,
			model.CodeForbidden},
		"expired":        {shown(t, pki.KeyHash(first), time.Now()), n1, later, model.CodeCertificateRefused},
		"the same key":   {shown(t, pki.KeyHash(first), first.NotAfter), n1, der, model.CodeInvalid},
		"a replaced key": {shown(t, make([]byte, 32), first.NotAfter), n1, later, model.CodeStale},
		"revoked": {shown(t, pki.KeyHash(pair.Leaf), first.NotAfter), who(model.SubjectAgent, "s1"), s1,
			model.CodeMemberRevoked},
		"damaged": {shown(t, pki.KeyHash(first), first.NotAfter), n1, []byte("x"), model.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(r.log)
			_, err := s.engine.Renew(test.ctx, test.who, transport.RenewRequest{Request: test.request})
			wantCode(t, err, test.want)
			if len(r.log) != before {
				t.Error("the refusal is in the log")
			}
		})
	}
}

func (r *rig) setLeader(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leader = name
}

// An agent renews at about half of each certificate's life, with a new key each time. It repeats a request whose answer
// was lost with the same key, and goes on with the old certificate while renewals fail.
func TestAgentRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 3 * 24 * time.Hour
		r := newRig(t)
		s := r.found(life)
		s.lead()
		p := s.agentFiles("n1")
		var mu sync.Mutex
		var calls int
		var lost error // the answer of the call is lost
		renew := func(_ context.Context, q transport.RenewRequest) (transport.RenewReply, error) {
			mu.Lock()
			defer mu.Unlock()
			if len(q.Request) != 0 {
				calls++
			}
			reply, err := s.engine.Renew(p.shown(t), who(model.SubjectAgent, "n1"), q)
			if lost != nil {
				return transport.RenewReply{}, lost
			}
			return reply, err
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = trust.Agent{Name: "n1", Dir: p.dir, Credentials: p.creds, Reload: p.creds.Reload, Renew: renew,
				Logger: hclog.NewNullLogger()}.Run(ctx)
		}()
		key := func() string {
			pair, _, err := p.dir.Pair(pki.RoleAgent)
			if err != nil {
				t.Fatal(err)
			}
			return string(pki.KeyHash(pair.Leaf))
		}
		for cycle := range 3 {
			old := key()
			if cycle == 1 {
				mu.Lock()
				lost = errors.New("the answer is lost")
				mu.Unlock()
			}
			time.Sleep(life * 44 / 100)
			if key() != old && cycle == 0 {
				t.Error("it renewed too early")
			}
			time.Sleep(life * 12 / 100)
			if cycle == 1 {
				mu.Lock()
				row, _ := s.machine.Current().TrustMemberOf(who(model.SubjectAgent, "n1"))
				if calls < 10 || calls > 2000 || key() != old || !row.Counts([]byte(old)) {
					t.Errorf("after %d calls without an answer: same key %v, row %+v", calls, key() == old, row)
				}
				promised := string(row.Key)
				lost = nil
				mu.Unlock()
				time.Sleep(time.Hour)
				if key() != promised {
					t.Error("the repeated request was for another key")
				}
			}
			if key() == old {
				t.Errorf("cycle %d: no new key", cycle)
			}
			if time.Until(p.creds.NotAfter()) < life/3 {
				t.Errorf("cycle %d: the agent uses the old certificate", cycle)
			}
			if row, _ := s.machine.Current().TrustMemberOf(who(model.SubjectAgent, "n1")); row.Counts([]byte(old)) ||
				!row.Counts([]byte(key())) {
				t.Errorf("cycle %d: the old key still counts", cycle)
			}
		}
		cancel()
		<-done
	})
}

// files is the directory of an agent that joined.
type files struct {
	dir   transport.Managed
	creds *transport.Credentials
}

// shown returns the context of a call with the certificate that is in use now.
func (f files) shown(t testing.TB) context.Context {
	leaf := f.creds.ClientConfig(pki.RoleServer).Certificates[0].Leaf
	return shown(t, pki.KeyHash(leaf), leaf.NotAfter)
}

// run runs the Agent of n1. It asks the engine of s, with the certificate in use, if lost is nil or returns nil.
func (f files) run(t testing.TB, s *site, lost func() error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	renew := func(_ context.Context, q transport.RenewRequest) (transport.RenewReply, error) {
		if lost != nil {
			if err := lost(); err != nil {
				return transport.RenewReply{}, err
			}
		}
		return s.engine.Renew(f.shown(t), who(model.SubjectAgent, "n1"), q)
	}
	go func() {
		defer close(done)
		_ = trust.Agent{Name: "n1", Dir: f.dir, Credentials: f.creds, Reload: f.creds.Reload, Renew: renew,
			Logger: hclog.NewNullLogger()}.Run(ctx)
	}()
	return func() { cancel(); <-done }
}

// leaf returns the certificate in the files.
func (f files) leaf(t testing.TB) *x509.Certificate {
	t.Helper()
	pair, _, err := f.dir.Pair(pki.RoleAgent)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func (s *site) agentFiles(name string) files {
	t := s.r.t
	t.Helper()
	der, key, err := pki.NewRequest(pki.RoleAgent, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	reply := must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t)
	dir := transport.ManagedDir(t.TempDir())
	err = dir.Write(transport.ManagedFiles{Roots: reply.Roots, GossipKeys: reply.GossipKeys,
		Pairs: map[pki.Role]tls.Certificate{pki.RoleAgent: {Certificate: reply.Agent, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	return files{dir, must(dir.CredentialsAnyTime("c1", pki.RoleAgent, name))(t)}
}
