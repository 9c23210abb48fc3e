package trust_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// newExpired is a rotation whose agent n1 has a node that is off, and a certificate that expired an hour ago, half of
// rejoin_grace.
func newExpired(t *testing.T) *rotation {
	c := newRotation(t)
	c.wall = time.Now
	c.s1.register("n1")
	c.s1.health("n1", model.HealthOffline)
	settings := model.DefaultSettings()
	settings.RejoinGrace = 2 * model.Hour
	c.s1.do(&fsm.SettingsSet{Settings: settings})
	c.pass(25 * time.Hour)
	return c
}

// pass lets time pass, and the state notice it.
func (c *rotation) pass(d time.Duration) {
	c.t.Helper()
	time.Sleep(d)
	for range 3 { // the state accepts a difference after a minute
		time.Sleep(time.Minute)
		c.report(server1)
	}
}

// A rotation waits for an agent whose certificate has expired, and the agent returns by itself while both CAs are
// trusted.
func TestRotateCAWaitsForExpiredAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newExpired(t)
		defer c.s1.leading()()
		c.rotate(api.RotateCABody{})
		c.report(server1, server2)
		c.want(api.CADistribute, "ca/1 active ca/2 incoming", "agent:n1")
		status := must(c.s1.engine.CAStatus(c.s1.machine.Current()))(t)
		if !status.Rotation.WaitingFor[0].Absent {
			t.Error("the agent counts as one that is there")
		}
		c.pass(30 * time.Minute)
		c.want(api.CADistribute, "ca/1 active ca/2 incoming", "agent:n1")

		der, leafOf := request(t, pki.RoleAgent, "n1")
		reply := must(c.s1.rejoin(c.n1, der, ""))(t)
		c.n1 = leafOf(reply.Chain)
		if len(reply.Roots) != 2 {
			t.Fatalf("the agent got %d CAs", len(reply.Roots))
		}
		c.report(agent1)
		c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s1", "server:s2", "agent:n1")
	})
}

// An agent whose certificate expires during a rotation returns while the old CA is trusted, and gets a certificate of
// the new one.
func TestExpiredAgentReturnsToTheNewCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newExpired(t)
		c.rotate(api.RotateCABody{})
		c.report(server1, server2, agent1)
		defer c.s1.leading()()
		c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s1", "server:s2", "agent:n1")
		der, leafOf := request(t, pki.RoleAgent, "n1")
		leafOf(must(c.s1.rejoin(c.n1, der, ""))(t).Chain)
		if row, _ := c.s1.machine.Current().TrustMemberOf(agent1); row.CA != "ca/2" {
			t.Errorf("the agent has a certificate of %s", row.CA)
		}
	})
}

// A rotation that leaves behind all that are off names agents whose certificates have expired. They can't return by
// themselves.
func TestRotateCALeavesExpiredAgentsBehind(t *testing.T) {
	for name, begun := range map[string]bool{"at the beginning": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newExpired(t)
				defer c.s1.run()()
				defer c.s2.run()()
				defer c.s1.leading()()
				if begun {
					c.rotate(api.RotateCABody{})
				}
				c.rotate(api.RotateCABody{Force: true})
				status := must(c.s1.engine.CAStatus(c.s1.machine.Current()))(t)
				if !slices.Equal(status.Rotation.Passed, []string{"agent:n1"}) {
					t.Errorf("left behind: %q", status.Rotation.Passed)
				}
				time.Sleep(30 * time.Second)
				c.want("", "ca/2 active")
				der, _ := request(t, pki.RoleAgent, "n1")
				_, err := c.s1.rejoin(c.n1, der, "")
				wantCode(t, err, model.CodeCertificateRefused)
			})
		})
	}
}

// A rotation does not wait for agents that can't return by themselves anyway.
func TestRotateCADoesNotWaitForEver(t *testing.T) {
	for name, end := range map[string]func(*rotation){
		"rejoin_grace is over": func(c *rotation) { c.pass(time.Hour) },
		"rejoin_grace is 0s": func(c *rotation) {
			changed := model.DefaultSettings()
			changed.RejoinGrace = 0
			c.s1.do(&fsm.SettingsSet{Settings: changed})
		},
		"it was revoked": func(c *rotation) { c.s1.do(&fsm.MemberRevoke{Subject: agent1}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newExpired(t)
				defer c.s1.leading()()
				c.rotate(api.RotateCABody{})
				c.report(server1, server2)
				c.want(api.CADistribute, "ca/1 active ca/2 incoming", "agent:n1")
				end(c)
				c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s1", "server:s2")
			})
		})
	}
}

// The gossip key does not wait for an agent whose certificate has expired, and neither does the end of a rotation of
// the CA: the agent learns when it returns which CA was dropped.
func TestExpiredAgentsHoldUpNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		c.wall = time.Now
		c.s1.register("n1")
		stop := c.s1.leading()
		c.rotate(api.RotateCABody{})
		c.report(server1, server2, agent1)
		c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s1", "server:s2", "agent:n1")
		c.renewAgent()
		defer c.s1.run()()
		defer c.s2.run()()
		time.Sleep(20 * time.Second)
		c.want(api.CAForget, "ca/2 active", "agent:n1")
		stop()
		c.pass(25 * time.Hour)
		c.want("", "ca/2 active")
		if keys := must(c.s1.engine.GossipKeys(c.s1.machine.Current()))(t); keys.LackingCount != 0 {
			t.Errorf("the gossip key waits for %+v", keys.Lacking)
		}
	})
}

// A server that comes back to its cluster after a rotation gets a certificate for the key that the cluster knows. A
// token alone does not make one machine another's, nor a stranger a server that was here before.
func TestServerJoinsAgainByItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		c.finish()
		own := func(name string, key *ecdsa.PrivateKey) []byte {
			return must(pki.RequestFor(key, pki.RoleServer, name, nil))(t)
		}
		pair, _, err := transport.ManagedDir(c.s2.dir).Pair(pki.RoleServer)
		if err != nil {
			t.Fatal(err)
		}
		key := pair.PrivateKey.(*ecdsa.PrivateKey)
		other := must(pki.NewKey())(t)
		agent, _ := request(t, pki.RoleAgent, "s2")
		c.s1.joinServer("s3", 24*time.Hour)
		c.s1.do(&fsm.MemberRevoke{Subject: who(model.SubjectServer, "s3")})
		for name, one := range map[string]transport.JoinRequest{
			"another key":           {Server: own("s2", other)},
			"no server by the name": {Server: own("s4", other)},
			"a server that left":    {Server: own("s3", other)},
			"only an agent":         {Agent: agent},
		} {
			before := len(c.log)
			token := c.s1.token(pki.RoleServer)
			one.Known = true
			_, err := c.s1.join(token, one)
			if codeOf(err) != model.CodeConflict || len(c.log) != before+1 {
				t.Errorf("%s: got %v", name, err)
			}
		}
		reply := must(c.s1.join(c.s1.token(pki.RoleServer), transport.JoinRequest{Server: own("s2", key), Known: true}))(t)
		leaf := must(x509.ParseCertificate(reply.Server[0]))(t)
		if row, _ := c.s1.machine.Current().TrustMemberOf(server2); row.CA != "ca/2" || !row.Counts(pki.KeyHash(leaf)) {
			t.Errorf("the row is %+v", row)
		}
	})
}

// A server that finds no leader renews its certificate for the key that the others know, and for a new key later.
func TestServerKeepsItsKeyWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		key := func() string { return string(pki.KeyHash(must(tlsLeaf(c.s2))(t))) }
		first, end := key(), must(tlsLeaf(c.s2))(t).NotAfter
		c.setLeader("")
		defer c.s2.run()()
		time.Sleep(15 * time.Hour)
		if leaf := must(tlsLeaf(c.s2))(t); key() != first || !leaf.NotAfter.After(end) {
			t.Errorf("the certificate ends at %s; another key: %v", leaf.NotAfter, key() != first)
		}
		c.setLeader("s1")
		time.Sleep(11 * time.Minute)
		row, _ := c.s1.machine.Current().TrustMemberOf(server2)
		if row.NotAfter != must(tlsLeaf(c.s2))(t).NotAfter.UnixMilli() {
			t.Error("the leader does not know of the certificate")
		}
		time.Sleep(15 * time.Hour)
		if key() == first {
			t.Error("the key is the same for ever")
		}
	})
}
