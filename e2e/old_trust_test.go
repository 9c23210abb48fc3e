package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestOldSnapshotTrust restores a state in which a node is a member and two tokens are good. Since then the node was
// revoked, one token admitted a machine, and the other one was revoked. After the restore all of that is still so: each
// server refuses the revoked node's agent, a copy of its certificate, and both tokens. The machine that joined in
// between stays a member.
func TestOldSnapshotTrust(t *testing.T) {
	long(t)
	t.Parallel()
	c := newMembers(t, options{servers: 3, agents: 2, managed: true})
	c.found(t)
	c.waitEligible(t, c.agents...)
	c.waitVotersWithin(t, 3, patience)
	stays, revoked := c.agents[0], c.agents[1]
	subnet := strings.TrimSuffix(stays.address, "101")
	later, visitor := c.newMember("agent", "n3", subnet+"103"), c.newMember("agent", "n4", subnet+"104")
	spent := tokenText.FindString(c.must(t, "token", "create", "--role", "agent", "--uses", "1"))
	ended := tokenText.FindString(c.must(t, "token", "create", "--role", "agent", "--uses", "1"))
	stolen := c.steal(t, revoked)
	saved := c.path("saved.snap")
	c.must(t, "server", "snapshot", "save", saved)

	if err := later.join(spent); err != nil {
		t.Fatal(err)
	}
	c.agents = append(c.agents, later)
	later.configure(t, later.settings())
	later.start(t)
	c.waitEligible(t, later)
	c.must(t, "token", "revoke", ended)
	c.must(t, "node", "revoke", revoked.Name, "--yes")
	c.waitLockedOut(t, stolen, time.Now())

	c.must(t, "server", "snapshot", "restore", saved, "--yes")
	for _, s := range c.servers {
		if err := callWith(t, stolen, s); err == nil {
			t.Errorf("after the restore %s answers to a copy of the certificate of %s", s.Name, revoked.Name)
		}
		for text, code := range map[string]string{spent: "token_used", ended: "token_revoked"} {
			if err := visitor.joinAt(text, s); err == nil || !refusedWith(err, code) {
				t.Errorf("after the restore a machine joins at %s: %v, want %s", s.Name, err, code)
			}
		}
	}
	c.waitEligible(t, stays, later)
	revoked.terminate(t)
	revoked.Log = c.path("again.log")
	revoked.start(t)
	revoked.waitSays(t, "was revoked")
	if n := c.node(t, revoked); n.Health == "online" || n.Eligible {
		t.Errorf("after the restore: %+v", n)
	}
}
