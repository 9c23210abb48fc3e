package trust_test

import (
	"context"
	"path/filepath"
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

// finish rotates the CA completely. It returns how many entries the log had before.
func (c *rotation) finish() (before int) {
	c.t.Helper()
	before = len(c.log)
	defer c.s1.leading()()
	defer c.s1.run()()
	defer c.s2.run()()
	c.rotate(api.RotateCABody{})
	time.Sleep(time.Second)
	c.report(agent1)
	time.Sleep(10 * time.Second)
	c.renewAgent()
	time.Sleep(5 * time.Second)
	c.report(agent1)
	c.want("", "ca/2 active")
	return before
}

// behind starts s2 again with the state that it had after the first entries of the log. catchUp applies the others.
func (c *rotation) behind(entries int) (s *site, catchUp func()) {
	c.t.Helper()
	c.stop(c.s2)
	all := c.log
	c.log = all[:entries:entries]
	s = c.start("s2", c.s2.dir, 24*time.Hour)
	c.log = all
	c.stop(s)
	return s, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := entries; i < len(c.log); i++ {
			s.apply(i, c.log[i])
		}
		c.sites["s2"] = s
	}
}

// A server that was off starts with a state from before a rotation, while its certificate is due. It makes no
// certificate of the CA that was dropped since, neither for itself nor for the agent of its process.
func TestServerBehindMakesNoCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		before := c.finish()
		time.Sleep(15 * time.Hour)
		dir := transport.ManagedDir(c.s2.dir)
		s, catchUp := c.behind(before)
		old := must(tlsLeaf(s))(t)
		s.run()
		time.Sleep(time.Minute)
		if !must(tlsLeaf(s))(t).Equal(old) {
			t.Error("the server made a certificate from an old state")
		}
		catchUp()
		time.Sleep(11 * time.Minute)
		now := must(tlsLeaf(s))(t)
		if now.Equal(old) || !s.creds.Uses(now) {
			t.Error("the server made no certificate when it had caught up")
		}
		if _, err := dir.Credentials("c1", pki.RoleServer, "s2"); err != nil {
			t.Errorf("the next start: %v", err)
		}
	})
}

// The server's damaged notes don't say how new the files are. The roots in the files keep it from a certificate with
// which it could not start.
func TestServerBehindWithDamagedNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		before := c.finish()
		time.Sleep(15 * time.Hour)
		dir := transport.ManagedDir(c.s2.dir)
		if err := dir.Write(transport.ManagedFiles{News: []byte("{")}); err != nil {
			t.Fatal(err)
		}
		s, _ := c.behind(before)
		s.run()
		time.Sleep(time.Minute)
		if _, err := dir.Credentials("c1", pki.RoleServer, "s2"); err != nil {
			t.Errorf("the next start: %v", err)
		}
	})
}

// Revive gives a server no certificate of a CA that its files don't have any more.
func TestReviveWithAnOldState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		before := c.finish()
		s, _ := c.behind(before)
		old := must(tlsLeaf(s))(t)
		time.Sleep(25 * time.Hour)
		wantCode(t, revive(t.Context(), trust.Revival{Name: "s2", DataDir: s.dir, Logger: hclog.NewNullLogger(),
			State: func(context.Context) (fsm.State, error) { return s.machine.State(), nil }}), model.CodeCertificateInvalid)
		if !must(tlsLeaf(s))(t).Equal(old) {
			t.Error("the certificate was replaced")
		}
	})
}

// A server whose new certificate is only in memory has not moved to the new CA: it might start again with the one in
// its files. Nor does it give up the CA of that one if it is left behind.
func TestCertificateInMemoryHasNotMoved(t *testing.T) {
	for name, force := range map[string]bool{"waited for": false, "left behind": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newRotation(t)
				defer c.s1.leading()()
				c.s1.run()
				c.s2.run()
				c.rotate(api.RotateCABody{})
				time.Sleep(5 * time.Second)
				mended := block(t, filepath.Join(c.s2.dir, "tls", "server-key.pem.next"))
				c.report(agent1)
				time.Sleep(20 * time.Second)
				c.renewAgent()
				c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s2")
				if c.s2.creds.Uses(must(tlsLeaf(c.s2))(t)) {
					t.Error("the new certificate is not in use")
				}
				if force {
					body := api.RotateCABody{Force: true, Names: []string{"s2"}}
					_, err := c.s1.engine.RotateCA(c.s1.machine.Current(), body)
					wantCode(t, err, model.CodeConflict) // one of two servers is no majority
					ca, _ := c.s1.machine.Current().TrustKeys.Get("ca/1")
					c.s1.do(&fsm.KeyDrop{Name: ca.Name})
					time.Sleep(5 * time.Second)
				}
				if _, err := transport.ManagedDir(c.s2.dir).Credentials("c1", pki.RoleServer, "s2"); err != nil {
					t.Errorf("the next start: %v", err)
				}
				mended()
				time.Sleep(11 * time.Minute)
				c.report(agent1)
				c.want("", "ca/2 active")
				if len(must(transport.ManagedDir(c.s2.dir).Roots())(t)) != 1 {
					t.Error("the files still have the old CA")
				}
			})
		})
	}
}

// The clock of the leader does not decide whose certificate has expired, and a CA is not made by a wrong one.
func TestRotateCAWithAWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		var off time.Duration // of the leader's clock, ahead of the median
		c.wall = func() time.Time { return time.Now().Add(-off) }
		c.s1.register("n1")
		c.rotate(api.RotateCABody{})
		// All clocks of the test go on, but the entries say that only a moment has passed.
		off = 30 * time.Hour
		time.Sleep(off)
		c.report(server1, server2)
		// The state accepts a difference after a minute.
		for range 3 {
			time.Sleep(time.Minute)
			c.report(server1, server2)
		}
		defer c.s1.leading()()
		c.want(api.CADistribute, "ca/1 active ca/2 incoming", "agent:n1")
		_, err := c.s1.engine.RotateCA(c.s1.machine.Current(), api.RotateCABody{})
		if err != nil { // it makes no CA
			t.Error(err)
		}
		c.report(agent1)
		time.Sleep(5 * time.Second)
	})
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		var off time.Duration
		c.wall = func() time.Time { return time.Now().Add(-off) }
		for _, off = range []time.Duration{50 * time.Minute, 2 * time.Hour, -2 * time.Hour} {
			for range 3 {
				time.Sleep(time.Minute)
				c.report(server1)
			}
			_, err := c.s1.engine.RotateCA(c.s1.machine.Current(), api.RotateCABody{})
			if (off.Abs() > time.Hour) != (codeOf(err) == model.CodeConflict) {
				t.Errorf("%s ahead: %v", off, err)
			}
		}
	})
}

// An agent without a node is waited for while its machine may be about to start.
func TestRotateCAWithoutANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		c.wall = time.Now
		defer c.s1.leading()()
		c.rotate(api.RotateCABody{})
		c.report(server1, server2)
		c.want(api.CADistribute, "ca/1 active ca/2 incoming", "agent:n1")
		time.Sleep(time.Hour)
		c.report(server1)
		c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s1", "server:s2")
	})
}

// A dead server that gossip has forgotten is left behind by its id. A leader that knows its name does not wait for it.
func TestRotateCALeavesAServerWithoutANameBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		c.s1.joinServer("s3", 24*time.Hour)
		c.mu.Lock()
		delete(c.sites, "s3")
		c.off = map[string]time.Time{"01S3": time.Now()}
		c.mu.Unlock()
		c.rotate(api.RotateCABody{})
		c.report(server1, server2, agent1)
		c.want(api.CADistribute, "ca/1 active ca/2 incoming", "server:01S3")
		c.rotate(api.RotateCABody{Force: true, Names: []string{"01S3"}})
		c.want(api.CADistribute, "ca/1 active ca/2 incoming")
		c.mu.Lock()
		c.off, c.ids = map[string]time.Time{"s3": time.Now()}, map[string]string{"s3": "01S3"}
		c.mu.Unlock()
		c.want(api.CADistribute, "ca/1 active ca/2 incoming")
	})
}
