package trust_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"sync"
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

// Servers renew themselves at about half of each certificate's life, and have the leader record the new key, also
// without leading. Without a leader they renew too, for the key that they have.
func TestServersRenewThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 30 * 24 * time.Hour
		r := newRig(t)
		s1 := r.found(life)
		s1.lead()
		s2 := s1.joinServer("s2", life)
		var stops []func()
		for _, s := range []*site{s1, s2} {
			stops = append(stops, s.run())
		}
		keys := func(s *site) (own, row string) {
			m, _ := s1.machine.Current().TrustMemberOf(who(model.SubjectServer, s.name))
			return string(pki.KeyHash(must(tlsLeaf(s))(t))), string(m.Key)
		}
		for cycle := range 3 {
			before := map[*site]string{}
			for _, s := range []*site{s1, s2} {
				before[s], _ = keys(s)
			}
			time.Sleep(life * 44 / 100)
			for s, old := range before {
				if own, _ := keys(s); cycle == 0 && own != old {
					t.Errorf("%s renewed too early", s.name)
				}
			}
			if cycle == 1 {
				r.setLeader("")
			}
			time.Sleep(life * 12 / 100)
			for s, old := range before {
				own, row := keys(s)
				if own == old && cycle != 1 { // without a leader the certificate is a new one of the same key
					t.Errorf("cycle %d: %s did not renew", cycle, s.name)
				}
				if cycle != 1 && own != row {
					t.Errorf("cycle %d: the new key of %s is not recorded", cycle, s.name)
				}
				if left := time.Until(s.creds.NotAfter()); left < life/3 {
					t.Errorf("cycle %d: %s uses a certificate with %s left", cycle, s.name, left)
				}
			}
			r.setLeader("s2")
			time.Sleep(time.Hour)
			for s := range before {
				if own, row := keys(s); own != row {
					t.Errorf("cycle %d: the new key of %s is never recorded", cycle, s.name)
				}
			}
		}
		s1.do(&fsm.MemberRevoke{Subject: who(model.SubjectServer, "s2")})
		own, _ := keys(s2)
		time.Sleep(life)
		if after, _ := keys(s2); after != own {
			t.Error("a revoked server made itself a certificate")
		}
		for _, stop := range stops {
			stop()
		}
	})
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
		const life = 30 * 24 * time.Hour
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

// A server that was off for a year starts with its state alone: Revive renews its certificate and that of its agent,
// with the keys that they had. A server that was revoked before stays out.
func TestRevive(t *testing.T) {
	const life = 30 * 24 * time.Hour
	for name, test := range map[string]struct {
		lead, revoke bool
		noState      error
		off          time.Duration
		want         model.Code
		renewed      bool
	}{
		"after a year":             {lead: true, off: 365 * 24 * time.Hour, renewed: true},
		"soon":                     {lead: true, off: time.Hour},
		"set up and never started": {off: 365 * 24 * time.Hour, renewed: true},
		"no log yet": {noState: model.Refuse(model.CodeInvalid, "no log"),
			off: 365 * 24 * time.Hour, renewed: true},
		"revoked":                 {lead: true, revoke: true, off: 365 * 24 * time.Hour, want: model.CodeMemberRevoked},
		"after the end of the CA": {lead: true, off: 11 * 365 * 24 * time.Hour, want: model.CodeCertificateInvalid},
		"with a log that is broken": {lead: true, noState: errors.New("broken"), off: 365 * 24 * time.Hour,
			want: model.CodeCertificateInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				s := r.found(life)
				if test.lead {
					s.lead()
					stop := s.run() // removes the file with the CA's key
					synctest.Wait()
					stop()
				}
				if test.revoke {
					s.do(&fsm.MemberRevoke{Subject: who(model.SubjectServer, "s1")})
				}
				time.Sleep(test.off)
				key := pki.KeyHash(must(tlsLeaf(s))(t))
				unwritten, err := trust.Revive(t.Context(), trust.Revival{Name: "s1", Agent: true, DataDir: s.dir,
					Logger: hclog.NewNullLogger(), State: func(context.Context) (fsm.State, error) {
						if test.noState != nil {
							return fsm.State{}, test.noState
						}
						return s.machine.State(), nil
					}})
				if codeOf(err) != test.want || unwritten != nil {
					t.Fatalf("got %v, want code %q", err, test.want)
				}
				for _, role := range []pki.Role{pki.RoleServer, pki.RoleAgent} {
					creds, err := transport.ManagedDir(s.dir).Credentials("c1", role, "s1")
					if (err == nil) != (test.want == "") {
						t.Fatalf("the certificate of the %s: %v", role, err)
					}
					if err == nil && test.renewed && !creds.NotAfter().Equal(time.Now().Add(life).Truncate(time.Second)) {
						t.Errorf("the certificate of the %s expires at %s", role, creds.NotAfter())
					}
				}
				if string(pki.KeyHash(must(tlsLeaf(s))(t))) != string(key) {
					t.Error("the key is another one")
				}
			})
		})
	}
}

// With a damaged keyring, a server does not start. TestLostKeyring is about a missing one.
func TestEngineNeedsAGoodKeyring(t *testing.T) {
	s := newRig(t).found(time.Hour)
	if err := os.WriteFile(filepath.Join(s.dir, keyring.FileName), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := trust.NewEngine(trust.Config{Name: "s1", Cluster: "c1", DataDir: s.dir, Credentials: s.creds})
	wantCode(t, err, model.CodeKeyringInvalid)
}
