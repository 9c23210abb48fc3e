package trust_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
)

// rejoin asks a server as another one does that has checked the proof of an agent.
func (s *site) rejoin(old *x509.Certificate, request []byte, boot string) (transport.RenewReply, error) {
	s.r.t.Helper()
	claim := transport.RejoinClaim{Certificate: old.Raw, Request: request, Boot: boot}
	body := must(transport.EncodeCBOR(claim))(s.r.t)
	answer, _, err := s.engine.AnswerPeer(s.r.t.Context(), "trust-rejoin", body)
	if err != nil {
		return transport.RenewReply{}, err
	}
	var reply transport.RenewReply
	err = transport.DecodeCBOR(answer, &reply)
	return reply, err
}

func registered(name string) *fsm.NodeRegister {
	return &fsm.NodeRegister{ID: model.NodeID("id-" + name), Name: name,
		Agent: model.AgentInfo{BootID: "boot1", Incarnation: "i", Address: "127.0.0.1", Key: []byte("k")},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}, PortMin: 2000, PortMax: 3000}}
}

// An agent returns from the moment at which its certificate expires until rejoin_grace is over, unless it was revoked,
// its key was replaced, or its node is in use by another machine. Refusals leave no entry.
func TestExpiredAgentReturns(t *testing.T) {
	const life, grace = 30 * 24 * time.Hour, 90 * 24 * time.Hour
	n1 := who(model.SubjectAgent, "n1")
	settings := func(grace model.Duration) fsm.Command {
		changed := model.DefaultSettings()
		changed.RejoinGrace = grace
		return &fsm.SettingsSet{Settings: changed}
	}
	renewed := func(s *site, old *x509.Certificate, used bool) {
		der, leafOf := request(s.r.t, pki.RoleAgent, "n1")
		next := leafOf(must(s.engine.Renew(shown(s.r.t, pki.KeyHash(old), old.NotAfter), n1,
			transport.RenewRequest{Request: der}))(s.r.t).Chain)
		if used {
			must(s.engine.Renew(shown(s.r.t, pki.KeyHash(next), next.NotAfter), n1, transport.RenewRequest{}))(s.r.t)
		}
	}
	for name, test := range map[string]struct {
		before func(*site, *x509.Certificate) // while the certificate is good
		off    time.Duration                  // after the end of the certificate
		after  func(*site)
		boot   string
		want   model.Code // "" means that it returns
	}{
		"not expired":    {off: -time.Second, want: model.CodeConflict},
		"just expired":   {},
		"after a month":  {off: 30 * 24 * time.Hour},
		"just within":    {off: grace - time.Second},
		"just too late":  {off: grace, want: model.CodeCertificateRefused},
		"a longer grace": {off: grace, after: func(s *site) { s.do(settings(91 * 24 * model.Hour)) }},
		"a shorter grace": {off: time.Hour, after: func(s *site) { s.do(settings(model.Hour)) },
			want: model.CodeCertificateRefused},
		"switched off":       {after: func(s *site) { s.do(settings(0)) }, want: model.CodeForbidden},
		"revoked":            {after: func(s *site) { s.do(&fsm.MemberRevoke{Subject: n1}) }, want: model.CodeMemberRevoked},
		"the reply got lost": {before: func(s *site, old *x509.Certificate) { renewed(s, old, false) }},
		"replaced": {before: func(s *site, old *x509.Certificate) { renewed(s, old, true) },
			want: model.CodeCertificateRefused},
		"its node is offline": {before: func(s *site, _ *x509.Certificate) { s.do(registered("n1")) }},
		"its node is in use": {before: func(s *site, _ *x509.Certificate) { s.do(registered("n1")) },
			after: func(s *site) { s.r.heard = map[model.NodeID]bool{"id-n1": true} }, boot: "boot2",
			want: model.CodeNodeTaken},
		"it went on meanwhile": {before: func(s *site, _ *x509.Certificate) { s.do(registered("n1")) },
			after: func(s *site) { s.r.heard = map[model.NodeID]bool{"id-n1": true} }, boot: "boot1"},
		"recovered": {after: func(s *site) { s.do(&fsm.RestoreMark{Recovered: true}) }},
		"recovered, replaced": {before: func(s *site, old *x509.Certificate) { renewed(s, old, true) },
			after: func(s *site) { s.do(&fsm.RestoreMark{Recovered: true}) }, want: model.CodeCertificateRefused},
		"recovered, its node is in use": {before: func(s *site, _ *x509.Certificate) { s.do(registered("n1")) },
			after: func(s *site) {
				s.do(&fsm.RestoreMark{Recovered: true})
				s.r.heard = map[model.NodeID]bool{"id-n1": true}
			}, boot: "boot1", want: model.CodeNodeTaken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				s := r.found(life)
				s.lead()
				der, leafOf := request(t, pki.RoleAgent, "n1")
				old := leafOf(must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent)
				if test.before != nil {
					test.before(s, old)
				}
				time.Sleep(time.Until(old.NotAfter) + test.off)
				if test.after != nil {
					test.after(s)
				}
				entries := len(r.log)
				next, nextLeaf := request(t, pki.RoleAgent, "n1")
				reply, err := s.rejoin(old, next, test.boot)
				if test.want != "" {
					wantCode(t, err, test.want)
					if len(r.log) != entries {
						t.Error("the refusal is in the log")
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				leaf := nextLeaf(reply.Chain)
				row, _ := s.machine.Current().TrustMemberOf(n1)
				if string(row.Key) != string(pki.KeyHash(leaf)) || !row.Counts(pki.KeyHash(old)) ||
					row.NotAfter != leaf.NotAfter.UnixMilli() || s.engine.Admit(id(pki.RoleAgent, "n1"), leaf) != nil {
					t.Errorf("the row is %+v", row)
				}
				if len(reply.Roots) != 1 || len(reply.GossipKeys) != 1 || len(reply.Servers) != 1 {
					t.Errorf("the reply has %d roots, %d gossip keys and %d servers", len(reply.Roots),
						len(reply.GossipKeys), len(reply.Servers))
				}
			})
		})
	}
}

// What proves no agent of the cluster, or asks for what is not the agent's, is refused.
func TestRejoinIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 3 * 24 * time.Hour
		r := newRig(t)
		s := r.found(life)
		ca, _, err := transport.ManagedDir(s.dir).Authority()
		if err != nil {
			t.Fatal(err)
		}
		s.lead()
		der, leafOf := request(t, pki.RoleAgent, "n1")
		n1 := leafOf(must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent)
		der2, leafOf2 := request(t, pki.RoleAgent, "n2")
		n2 := leafOf2(must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der2}))(t).Agent)
		s.do(&fsm.MemberRevoke{Subject: who(model.SubjectAgent, "n2")})
		again, _ := request(t, pki.RoleAgent, "n2")
		must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: again}))(t)
		foreign := leaf(t, must(transport.NewAuthority("c1", 0))(t), pki.RoleAgent, "n1").Leaf
		time.Sleep(life + time.Hour)
		good, _ := request(t, pki.RoleAgent, "n1")
		good2, _ := request(t, pki.RoleAgent, "n2")
		server, _ := request(t, pki.RoleServer, "n1")
		for name, test := range map[string]struct {
			old     *x509.Certificate
			request []byte
			want    model.Code
		}{
			"of another CA":                  {foreign, good, model.CodeCertificateRefused},
			"no row":                         {leaf(t, ca, pki.RoleAgent, "n9").Leaf, good, model.CodeCertificateRefused},
			"another key":                    {leaf(t, ca, pki.RoleAgent, "n1").Leaf, good, model.CodeCertificateRefused},
			"of a server":                    {must(tlsLeaf(s))(t), good, model.CodeForbidden},
			"of a person":                    {leaf(t, ca, pki.RoleCLI, "n1").Leaf, good, model.CodeForbidden},
			"from before its revocation":     {n2, good2, model.CodeMemberRevoked},
			"damaged":                        {&x509.Certificate{Raw: []byte("x")}, good, model.CodeInvalid},
			"a request for another name":     {n1, good2, model.CodeForbidden},
			"a request for another role":     {n1, server, model.CodeForbidden},
			"a request for the expired key":  {n1, der, model.CodeInvalid},
			"a request that is damaged":      {n1, []byte("x"), model.CodeInvalid},
			"what the others are without it": {n1, good, ""},
		} {
			before := len(r.log)
			_, err := s.rejoin(test.old, test.request, "")
			if codeOf(err) != test.want || (err == nil) != (test.want == "") {
				t.Errorf("%s: got %v, want code %q", name, err, test.want)
			}
			if err != nil && len(r.log) != before {
				t.Errorf("%s: the refusal is in the log", name)
			}
		}
	})
}

// An agent whose reply got lost asks again with the same key. One that was restarted meanwhile has another key: it gets
// a certificate too, and there is an event. But nobody can fill the log in this way.
func TestRejoinReplyIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 3 * 24 * time.Hour
		r := newRig(t)
		s := r.found(life)
		s.lead()
		der, leafOf := request(t, pki.RoleAgent, "n1")
		old := leafOf(must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent)
		time.Sleep(life)
		next, nextLeaf := request(t, pki.RoleAgent, "n1")
		for range 2 {
			nextLeaf(must(s.rejoin(old, next, ""))(t).Chain)
		}
		twice := func() bool {
			for _, e := range s.machine.Current().Events.All() {
				if e.Type == model.EventMemberRenewedTwice {
					return true
				}
			}
			return false
		}
		if twice() {
			t.Error("there is an event after a repeated request")
		}
		other, otherLeaf := request(t, pki.RoleAgent, "n1")
		otherLeaf(must(s.rejoin(old, other, ""))(t).Chain)
		if !twice() {
			t.Error("there is no event after a second key")
		}
		var err error
		for range 20 {
			if _, err = s.rejoin(old, other, ""); err != nil {
				break
			}
		}
		wantCode(t, err, model.CodeRateLimited)
	})
}

// A source that proves nothing ten times waits, and others don't. Refusals are counted, and the log has the first ones.
func TestRejoinStrangersWait(t *testing.T) {
	r, notes := newRig(t), &record{codes: map[model.Code]int{}}
	r.engine = func(c *trust.Config) {
		c.Logger, c.JoinRefused = hclog.New(&hclog.LoggerOptions{Output: notes}), notes.count
	}
	s := r.found(time.Hour)
	s.lead()
	der, leafOf := request(t, pki.RoleAgent, "n1")
	old := leafOf(must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent)
	foreign := leaf(t, must(transport.NewAuthority("c1", 0))(t), pki.RoleAgent, "n1").Leaf
	ask := func(host byte, cert *x509.Certificate) error {
		_, err := s.engine.AnswerJoin(t.Context(), &net.TCPAddr{IP: net.IPv4(127, 9, 9, host)}, transport.JoinRequest{
			Rejoin: &transport.RejoinRequest{Certificate: cert.Raw, Request: der, Signature: []byte("forged")}})
		return err
	}
	for _, one := range []struct {
		cert *x509.Certificate
		want model.Code
	}{{foreign, model.CodeCertificateRefused}, {old, model.CodeForbidden}} {
		for range 10 {
			wantCode(t, ask(1, one.cert), one.want)
		}
		wantCode(t, ask(1, one.cert), model.CodeRateLimited)
		wantCode(t, ask(2, one.cert), one.want)
	}
	text, codes := notes.look()
	if want := (map[model.Code]int{model.CodeCertificateRefused: 11, model.CodeForbidden: 11,
		model.CodeRateLimited: 2}); !maps.Equal(codes, want) {
		t.Errorf("counted %v, want %v", codes, want)
	}
	line := `a return with an expired certificate was refused: source=127.9.9.1 token="" name=n1 code=certificate_refused`
	if !strings.Contains(text, line) {
		t.Errorf("the log lacks %q:\n%s", line, text)
	}
}

// The agent of a machine whose certificate has expired gets a new one over a real connection, from a server that asks
// the leader, while the first address that it knows is dead. It uses the certificate, writes it, and says so.
func TestAgentReturnsByItself(t *testing.T) {
	const life = 3 * time.Second
	r := newRig(t)
	s1 := r.found(life)
	s1.lead()
	s2 := s1.joinServer("s2", life)
	port := must(transport.NewListener(must(transport.ListenTCP(t.Context(), "127.0.0.1:0"))(t),
		transport.ListenerConfig{Credentials: s2.creds, Join: s2.engine.AnswerJoin}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = port.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })

	f := s1.agentFiles("n1")
	old := f.leaf(t)
	time.Sleep(time.Until(old.NotAfter))
	agent := trust.Agent{Name: "n1", Dir: f.dir, Credentials: f.creds, Reload: f.creds.Reload,
		Logger: hclog.NewNullLogger(),
		Renew: func(_ context.Context, q transport.RenewRequest) (transport.RenewReply, error) {
			return s1.engine.Renew(f.shown(t), who(model.SubjectAgent, "n1"), q)
		},
		Rejoin: func(ctx context.Context, old tls.Certificate, request []byte) (transport.RenewReply, error) {
			return transport.Rejoin(ctx, []string{"127.0.0.1:1", port.Addr().String()}, must(f.dir.Roots())(t), old,
				transport.RejoinRequest{Request: request})
		}}
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = agent.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-stopped })
	eventually(t, "the old key no longer counts", func() bool {
		row, _ := s1.machine.Current().TrustMemberOf(who(model.SubjectAgent, "n1"))
		return !row.Counts(pki.KeyHash(old))
	})
	if leaf := f.leaf(t); !leaf.NotAfter.After(old.NotAfter) || !f.creds.NotAfter().After(old.NotAfter) {
		t.Errorf("the files have a certificate until %s, and one until %s is in use", leaf.NotAfter, f.creds.NotAfter())
	}
}

// An agent whose clock is ahead believes that its certificate has expired. If the servers say that it has not, the
// agent renews it. While the certificate is good, the agent does not return.
func TestRejoinOnlyAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 3 * 24 * time.Hour
		s := newRig(t).found(life)
		s.lead()
		f := s.agentFiles("n1")
		var mu sync.Mutex
		rejoins, renewals := 0, 0
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = trust.Agent{Name: "n1", Dir: f.dir, Credentials: f.creds, Reload: f.creds.Reload,
				Logger: hclog.NewNullLogger(),
				Renew: func(context.Context, transport.RenewRequest) (transport.RenewReply, error) {
					mu.Lock()
					defer mu.Unlock()
					renewals++
					return transport.RenewReply{}, errors.New("no answer")
				},
				Rejoin: func(context.Context, tls.Certificate, []byte) (transport.RenewReply, error) {
					mu.Lock()
					defer mu.Unlock()
					rejoins++
					return transport.RenewReply{}, api.NewProblem(model.Refuse(model.CodeConflict, "it has not expired"))
				}}.Run(ctx)
		}()
		counts := func() (int, int) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return rejoins, renewals
		}
		time.Sleep(time.Until(f.leaf(t).NotAfter) - time.Second)
		returned, renewed := counts()
		if returned != 0 || renewed == 0 {
			t.Errorf("before the end it returned %d times and renewed %d times", returned, renewed)
		}
		time.Sleep(time.Hour)
		if r, n := counts(); r == 0 || n-renewed < r {
			t.Errorf("after the end it returned %d times and renewed %d times", r, n-renewed)
		}
		cancel()
		<-done
	})
}
