package trust_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
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

// filesOf returns the certificates and the keys of a machine that is server and agent.
func filesOf(t testing.TB, dir string) (all []byte) {
	t.Helper()
	for _, name := range []string{"server.pem", "server-key.pem", "agent.pem", "agent-key.pem"} {
		all = append(all, must(os.ReadFile(filepath.Join(dir, "tls", name)))(t)...)
	}
	return all
}

// A clock that is behind replaces no certificate, neither before the start nor in a server that runs. A new one would
// end by that clock, and so perhaps before the clock is set right.
func TestClockBehind(t *testing.T) {
	const life = 30 * 24 * time.Hour
	dir := t.TempDir()
	var state fsm.State
	var log []fsm.Entry
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(400 * 24 * time.Hour)
		s := newRig(t).found(life)
		s.lead()
		state, log = s.machine.State(), s.r.log
		copyTo(t, dir, s.dir)
	})
	good := filesOf(t, dir)
	synctest.Test(t, func(t *testing.T) {
		unwritten, err := trust.Revive(t.Context(), trust.Revival{Name: "s1", Agent: true, DataDir: dir,
			Logger: hclog.NewNullLogger(), State: func(context.Context) (fsm.State, error) { return state, nil }})
		if err != nil || unwritten != nil {
			t.Fatalf("revived: %v, unwritten %v", err, unwritten != nil)
		}
		if !bytes.Equal(filesOf(t, dir), good) {
			t.Error("certificates were replaced before the start")
		}
		r := newRig(t)
		r.leader, r.log = "s1", log
		s := r.start("s1", dir, life)
		stop := s.run()
		time.Sleep(11 * time.Minute)
		stop()
		if !bytes.Equal(filesOf(t, dir), good) {
			t.Error("certificates were replaced while the server runs")
		}
	})
}

// Certificates that were made while a clock was ahead stay good once it is right: those of servers, of agents that
// renewed meanwhile, and of newcomers.
func TestClockWasAhead(t *testing.T) {
	const life = 30 * 24 * time.Hour
	ahead := t.TempDir()
	var log []fsm.Entry
	var chains [][]byte
	synctest.Test(t, func(t *testing.T) {
		s := newRig(t).found(life)
		s.lead()
		time.Sleep(20 * 24 * time.Hour)
		defer s.run()()
		synctest.Wait()
		time.Sleep(time.Minute)
		der, leafOf := request(t, pki.RoleAgent, "n1")
		reply := must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t)
		first := leafOf(reply.Agent)
		der, _ = request(t, pki.RoleAgent, "n1")
		renewed := must(s.engine.Renew(shown(t, pki.KeyHash(first), first.NotAfter), who(model.SubjectAgent, "n1"),
			transport.RenewRequest{Request: der}))(t)
		chains = slices.Concat(reply.Agent, renewed.Chain)
		log = s.r.log
		copyTo(t, ahead, s.dir)
	})
	synctest.Test(t, func(t *testing.T) {
		if _, err := transport.ManagedDir(ahead).Credentials("c1", pki.RoleServer, "s1"); err != nil {
			t.Error(err)
		}
		for _, der := range chains {
			leaf := must(x509.ParseCertificate(der))(t)
			if leaf.NotBefore.After(time.Now()) {
				t.Errorf("the certificate of %s is valid from %s", leaf.Subject.CommonName, leaf.NotBefore)
			}
		}
		// The leader's clock is right again, and the agent renews by the certificate that it got while it was ahead.
		r := newRig(t)
		r.leader, r.log = "s1", log
		s := r.start("s1", ahead, life)
		last := must(x509.ParseCertificate(chains[len(chains)-1]))(t)
		der, leafOf := request(t, pki.RoleAgent, "n1")
		next := must(s.engine.Renew(shown(t, pki.KeyHash(last), last.NotAfter), who(model.SubjectAgent, "n1"),
			transport.RenewRequest{Request: der}))(t)
		if leaf := leafOf(next.Chain); leaf.NotBefore.After(time.Now()) {
			t.Errorf("the next certificate is valid from %s", leaf.NotBefore)
		}
	})
}

// A leader whose clock is wrong makes certificates for others by the median of the servers' clocks: those of agents
// that renew, of newcomers and of people.
func TestLeaderSignsByMedian(t *testing.T) {
	const life, wrong = 30 * 24 * time.Hour, 40 * 24 * time.Hour
	for name, off := range map[string]time.Duration{"behind": -wrong, "ahead": wrong} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(400 * 24 * time.Hour)
				s := newRig(t).found(life)
				s.lead()
				s.creds.SetClock(func() time.Time { return time.Now().Add(-off) })
				der, leafOf := request(t, pki.RoleAgent, "n1")
				joined := leafOf(must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent)
				der, leafOf = request(t, pki.RoleAgent, "n1")
				renewed := leafOf(must(s.engine.Renew(shown(t, pki.KeyHash(joined), joined.NotAfter), who(model.SubjectAgent, "n1"),
					transport.RenewRequest{Request: der}))(t).Chain)
				der, _, err := pki.NewRequest(pki.RoleCLI, "alice", nil)
				if err != nil {
					t.Fatal(err)
				}
				person, _, err := s.engine.SignPerson(s.machine.Current(), must(pki.ParseRequest(der, pki.RoleCLI))(t), life)
				if err != nil {
					t.Fatal(err)
				}
				for _, leaf := range []*x509.Certificate{joined, renewed, person} {
					if left := leaf.NotAfter.Sub(s.creds.Now()); left < life-time.Minute || left > life {
						t.Errorf("the certificate of %s ends in %s by the median, want %s", leaf.Subject.CommonName, left, life)
					}
				}
			})
		})
	}
}
