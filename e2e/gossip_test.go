package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	room "github.com/outspan/outspan/cluster" // cluster is a type of this package
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// gossipView is what GET /v1/trust/gossip-keys answers.
type gossipView struct {
	Keys         []struct{ Name, Phase string }
	LackingCount int `json:"lacking_count"`
}

// The gossip key is replaced, by hand and then by the revocation of an agent. Meanwhile everybody sees everybody alive,
// and no call of a client fails. In the end each machine has the new key alone, and nobody can enter the pool with the
// old one. A copy of the certificate of the revoked agent is soon refused.
func TestRotateGossip(t *testing.T) {
	long(t)
	t.Parallel()
	c := newMembers(t, options{servers: 3, agents: 2, managed: true})
	c.found(t)
	c.waitEligible(t, c.agents...)
	c.waitVotersWithin(t, 3, patience)
	waitFor(t, "the first key at all members", patience, func() error { return c.usesOnly("gossip/1") })
	first := c.servers[0]
	old := c.gossipFile(t, first)

	stop := c.callAllTheTime(t)
	c.must(t, "gossip", "key", "rotate")
	c.watchRotation(t, "gossip/2", c.agents)
	if pairs, failed, longest := stop(); pairs == 0 || len(failed) > 0 {
		t.Errorf("%d writes and reads, the longest took %s, failed attempts: %v", pairs, longest, errors.Join(failed...))
	}
	second := c.gossipFile(t, first)
	for _, m := range c.members() {
		if got := c.gossipFile(t, m); got != second || got == old {
			t.Errorf("%s has other keys than %s, or the old one", m.Name, first.Name)
		}
	}
	stolen := c.steal(t, c.agents[1])
	c.must(t, "node", "revoke", "n2", "--yes")
	c.waitLockedOut(t, stolen, time.Now())
	c.watchRotation(t, "gossip/3", c.agents[:1])
	if got := c.gossipFile(t, c.agents[1]); got != second {
		t.Error("the revoked agent has other keys than at its revocation")
	}
	for _, m := range append(c.servers, c.agents[0]) {
		if got := c.gossipFile(t, m); got == second {
			t.Errorf("%s still has the key that the revoked agent has", m.Name)
		}
	}
	for text, enters := range map[string]bool{old: false, second: false, c.gossipFile(t, first): true} {
		if err := c.enterPool(t, text); (err == nil) != enters {
			t.Errorf("the pool was entered: %v, want %v: %v", err == nil, enters, err)
		}
	}
}

// steal copies the certificate and the key of an agent. Each server answers to the copy.
func (c *cluster) steal(t *testing.T, m *member) *transport.Credentials {
	t.Helper()
	copied, err := transport.ManagedDir(m.data()).Credentials(transport.DefaultCluster, pki.RoleAgent, m.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.servers {
		if err := callWith(t, copied, s); err != nil {
			t.Fatalf("%s does not answer to a copied certificate that is good: %v", s.Name, err)
		}
	}
	return copied
}

// waitLockedOut waits until no server answers to copied credentials. They may be good until revokedWithin after the
// revocation.
func (c *cluster) waitLockedOut(t *testing.T, copied *transport.Credentials, revoked time.Time) {
	t.Helper()
	for _, s := range c.servers {
		for callWith(t, copied, s) == nil {
			if took := time.Since(revoked); took > revokedWithin {
				t.Errorf("%s after the revocation %s answers to a copy of the certificate", took, s.Name)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	t.Logf("a copied certificate is refused %s after the revocation", time.Since(revoked).Round(time.Millisecond))
}

// gossipFile returns the contents of a member's file with gossip keys.
func (c *cluster) gossipFile(t *testing.T, m *member) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.tls(), "gossip.key"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// usesOnly returns nil if the key with this name is the only one, and all members use it.
func (c *cluster) usesOnly(name string) error {
	var v gossipView
	if err := c.get("/v1/trust/gossip-keys", &v); err != nil {
		return err
	}
	if len(v.Keys) != 1 || v.Keys[0].Name != name || v.LackingCount != 0 {
		return fmt.Errorf("%+v", v)
	}
	return nil
}

// watchRotation waits until the rotation to a key is done. Meanwhile no server is dead, and the servers hear the
// agents.
func (c *cluster) watchRotation(t *testing.T, name string, agents []*member) {
	t.Helper()
	waitFor(t, "the rotation to "+name, 3*time.Minute, func() error {
		var servers struct{ Items []memberView }
		var nodes struct{ Items []nodeView }
		if err := errors.Join(c.get("/v1/members", &servers), c.get("/v1/nodes", &nodes)); err != nil {
			return err
		}
		for _, s := range servers.Items {
			if s.State != "alive" && s.State != "suspect" {
				t.Errorf("during the rotation to %s: %+v", name, s)
			}
		}
		for _, n := range nodes.Items {
			if slices.Contains(names(agents), n.Name) && (n.State == "offline" || n.State == "unreachable") {
				t.Errorf("during the rotation to %s: %+v", name, n)
			}
		}
		return c.usesOnly(name)
	})
}

// enterPool joins the pool of the first server with a key, and leaves it.
func (c *cluster) enterPool(t *testing.T, text string) error {
	t.Helper()
	key, err := transport.ParseGossipKey(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := room.OpenPool(room.PoolConfig{Name: "stranger", Cluster: "outspan", Key: key,
		Profile: room.ProfileFast, Bind: "127.0.0.1", Meta: room.Meta{Role: pki.RoleAgent}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = stranger.Run(ctx) }()
	defer func() { cancel(); <-done; _ = stranger.Close() }()
	return stranger.Join(net.JoinHostPort(c.servers[0].address, "7642"))
}
