package trust_test

import (
	"context"
	"path/filepath"
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

// Servers renew themselves at about half of each certificate's life, and have the leader record the new key, also
// without leading. Without a leader they renew too, for the key that they have.
func TestServersRenewThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 3 * 24 * time.Hour
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
		if s1.renewed < 3 || s1.renewed > 6 { // three cycles, and some more time
			t.Errorf("s1 has told of %d certificates that it made", s1.renewed)
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

// A server that can't write its new certificate uses it from memory, and writes it later. Revive hands it over.
func TestServerThatCantWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 3 * 24 * time.Hour
		s := newRig(t).found(life)
		s.lead()
		stop := s.run()
		mended := block(t, filepath.Join(s.dir, "tls", "server-key.pem.next"))
		time.Sleep(life * 60 / 100)
		first := s.creds.NotAfter()
		if time.Until(first) < life/3 {
			t.Error("the new certificate is not in use")
		}
		time.Sleep(time.Hour)
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
		const life = 3 * 24 * time.Hour
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
