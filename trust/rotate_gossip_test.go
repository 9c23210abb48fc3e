package trust_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// gossipKeys returns the gossip keys of the state, decrypted: the active one first, then the others by age.
func (s *site) gossipKeys() (keys [][]byte) {
	t := s.r.t
	t.Helper()
	ring := must(keyring.Open(filepath.Join(s.dir, keyring.FileName)))(t)
	state := s.machine.Current()
	for _, row := range state.KeysOf(model.KeyGossip) {
		under, _ := state.TrustKeys.Get(model.KeyName(row.Under))
		data := must(ring.Unwrap(keyring.Wrapped{KEK: keyring.ID(under.Under), Bytes: under.Sealed}))(t)
		key := must(data.Open(string(row.Name), row.Version, row.Sealed))(t)
		if row.Phase == model.KeyActive {
			keys = append([][]byte{key}, keys...)
		} else {
			keys = append(keys, key)
		}
	}
	return keys
}

// report says for each member that it uses the gossip keys of the state.
func (s *site) report(members ...model.Subject) {
	s.r.t.Helper()
	for _, m := range members {
		s.do(&fsm.MemberHolds{Subject: m, Roots: pki.RootsDigest(nil), Gossip: pki.GossipDigest(s.gossipKeys())})
	}
}

// wantGossip waits until the gossip keys have these phases, and then sees that nothing else happens for a while.
func (s *site) wantGossip(want string) {
	s.r.t.Helper()
	phases := func() string {
		var all []string
		for _, row := range s.machine.Current().KeysOf(model.KeyGossip) {
			_, n, _ := row.Name.Split()
			all = append(all, fmt.Sprintf("%d %s", n, row.Phase))
		}
		return strings.Join(all, ", ")
	}
	eventually(s.r.t, "the keys are "+want, func() bool { return phases() == want })
	time.Sleep(40 * time.Second)
	if got := phases(); got != want {
		s.r.t.Fatalf("the keys became %s, want %s", got, want)
	}
}

// joinNode lets an agent join, and registers its node.
func (s *site) joinNode(name string) model.Subject {
	t := s.r.t
	t.Helper()
	der, _ := request(t, pki.RoleAgent, name)
	must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t)
	s.register(name)
	return who(model.SubjectAgent, name)
}

func (s *site) register(name string) {
	s.r.t.Helper()
	s.do(&fsm.NodeRegister{ID: model.NodeID("node-" + name), Name: name,
		Agent: model.AgentInfo{BootID: "b", Address: "10.0.0.3:7640", Key: []byte("k")},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}}})
}

// rotating is a cluster of the servers s1, s2 and s3, led by s1, and the agents n1 and n2.
type rotating struct {
	*rig
	s1, s2, s3 *site
	members    []model.Subject
}

func newRotating(t testing.TB) *rotating {
	c := &rotating{rig: newRig(t)}
	c.s1 = c.found(time.Hour * 24)
	c.s1.lead()
	c.s2, c.s3 = c.s1.joinServer("s2", time.Hour*24), c.s1.joinServer("s3", time.Hour*24)
	c.members = []model.Subject{who(model.SubjectServer, "s1"), who(model.SubjectServer, "s2"),
		who(model.SubjectServer, "s3"), c.s1.joinNode("n1"), c.s1.joinNode("n2")}
	c.s1.report(c.members...)
	return c
}

// begin asks for another key.
func (s *site) begin() {
	s.r.t.Helper()
	s.do(must(s.engine.RotateGossip(s.machine.Current()))(s.r.t)...)
}

// A rotation waits at each step until every member uses the keys of that step. Another leader continues it.
func TestRotateGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotating(t)
		old := c.s1.gossipKeys()[0]
		lead := func(s *site) (stop func()) {
			c.mu.Lock()
			c.leader = s.name
			c.mu.Unlock()
			return s.leading()
		}
		stop := lead(c.s1)
		c.s1.wantGossip("1 active")
		c.s1.begin()
		c.s1.wantGossip("1 active, 2 incoming")
		keys := c.s1.gossipKeys()
		if string(keys[0]) != string(old) || string(keys[1]) == string(old) || len(keys[1]) != 32 {
			t.Fatal("the incoming key is not a new one after the active one")
		}
		if again := must(c.s1.engine.RotateGossip(c.s1.machine.Current()))(t); again != nil {
			t.Fatalf("a second rotation begins with %v", again)
		}
		c.s1.report(c.members[:4]...)
		c.s1.wantGossip("1 active, 2 incoming")
		v := must(c.s1.engine.GossipKeys(c.s1.machine.Current()))(t)
		if !v.Rotating || v.LackingCount != 1 || v.WaitsFor != 1 ||
			v.Lacking[0] != (api.GossipLacking{Subject: "agent:n2", Waits: true}) {
			t.Fatalf("the rotation stands at %+v", v)
		}
		stop()
		stop = lead(c.s2)
		c.s1.report(c.members[4])
		c.s2.wantGossip("1 retired, 2 active")
		if now := c.s2.gossipKeys(); string(now[0]) != string(keys[1]) || string(now[1]) != string(old) {
			t.Fatal("the new key does not encrypt, or the old one does not decrypt")
		}
		stop()
		stop = lead(c.s3)
		c.s3.wantGossip("1 retired, 2 active")
		c.s3.report(c.members...)
		c.s3.wantGossip("2 active")
		if now := c.s3.gossipKeys(); len(now) != 1 || string(now[0]) != string(keys[1]) {
			t.Fatal("the new key is not the only one")
		}
		if v := must(c.s3.engine.GossipKeys(c.s3.machine.Current()))(t); v.Rotating || v.LackingCount != 5 {
			t.Fatalf("after the rotation: %+v", v)
		}
		stop()
	})
}

// finish reports for the members until one key is left, and returns its name.
func (c *rotating) finish(members ...model.Subject) model.KeyName {
	c.t.Helper()
	for range 200 {
		c.s1.report(members...)
		time.Sleep(time.Second)
		if keys := c.s1.machine.Current().KeysOf(model.KeyGossip); len(keys) == 1 {
			return keys[0].Name
		}
	}
	c.t.Fatal("the rotation does not end")
	return ""
}

// A revocation rotates the key, and does not wait for the revoked member. A key that was handed out before another
// revocation never becomes active.
func TestRevocationRotatesGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotating(t)
		defer c.s1.leading()()
		time.Sleep(2 * time.Minute)
		c.s1.do(&fsm.MemberRevoke{Subject: c.members[4]})
		c.s1.wantGossip("1 active, 2 incoming")
		time.Sleep(time.Minute)
		second := c.s1.gossipKeys()[1]
		c.s1.do(&fsm.MemberRevoke{Subject: c.members[3]})
		c.s1.wantGossip("1 active, 3 incoming")
		if string(c.s1.gossipKeys()[1]) == string(second) {
			t.Fatal("the key that was handed out before the revocation is still there")
		}
		c.s1.report(c.members[:3]...)
		c.s1.wantGossip("1 retired, 3 active")
		time.Sleep(time.Minute)
		c.s1.do(&fsm.MemberRevoke{Subject: c.s1.joinNode("n3")}) // while the old key is retired
		c.s1.wantGossip("1 retired, 3 active, 4 incoming")
		c.s1.report(c.members[:3]...)
		c.s1.wantGossip("1 retired, 3 retired, 4 active")
		c.s1.report(c.members[:3]...)
		c.s1.wantGossip("4 active")
	})
}

// After a revocation the newest key does not count as safe until a new one is handed out. The time of a key stays the
// same, also in a state whose cluster time a reader has moved on.
func TestGossipKeysAfterRevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotating(t)
		defer c.s1.leading()()
		status := func() api.GossipKeys {
			state := *c.s1.machine.Current()
			state.Now = c.s1.Now()
			return must(c.s1.engine.GossipKeys(&state))(t)
		}
		before := status()
		if before.Due {
			t.Error("a key is due that no revoked member knows")
		}
		c.s1.do(&fsm.MemberRevoke{Subject: c.members[4]})
		if v := status(); !v.Due || v.Rotating {
			t.Errorf("after a revocation: %+v", v)
		}
		time.Sleep(30 * time.Second)
		if v := status(); v.Since.Sub(before.Since).Abs() > time.Second {
			t.Errorf("the key is of %s, and 30 s later of %s", before.Since, v.Since)
		}
		time.Sleep(30 * time.Second) // a minute after the newest key
		c.s1.wantGossip("1 active, 2 incoming")
		if v := status(); v.Due || !v.Rotating {
			t.Errorf("after a new key was handed out: %+v", v)
		}
	})
}

// A member that was revoked and joined again, before any leader saw that, leads to a rotation too.
func TestReturnedMemberRotatesGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotating(t)
		time.Sleep(2 * time.Minute)
		c.s1.do(&fsm.MemberRevoke{Subject: c.members[4]})
		c.s1.joinNode("n2")
		defer c.s1.leading()()
		c.s1.wantGossip("1 active, 2 incoming")
	})
}

// Many revocations one after the other lead to few rotations, and the last key is younger than the last revocation.
func TestManyRevocationsRotateGossipRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotating(t)
		var names []model.Subject
		for i := range 30 {
			names = append(names, c.s1.joinNode(fmt.Sprintf("x%d", i)))
		}
		defer c.s1.leading()()
		time.Sleep(2 * time.Minute)
		for _, one := range names {
			c.s1.do(&fsm.MemberRevoke{Subject: one})
			time.Sleep(4 * time.Second)
			c.s1.report(c.members...)
		}
		time.Sleep(2 * time.Minute)
		name := c.finish(c.members...)
		row, _ := c.s1.machine.Current().TrustKeys.Get(name)
		if _, n, _ := name.Split(); n > 5 || n < 3 {
			t.Errorf("after 2 minutes with revocations the key is %s", name)
		}
		member, _ := c.s1.machine.Current().TrustMemberOf(names[29])
		if row.CreatedIndex <= member.RevokedIndex {
			t.Errorf("key %s was made at index %d, the last revocation is at %d", name, row.CreatedIndex, member.RevokedIndex)
		}
	})
}

// A rotation waits for a member that is off, but not for ever, and with force not at all. It always waits for a member
// that is there.
func TestRotateGossipWithoutAbsentMembers(t *testing.T) {
	for name, test := range map[string]struct {
		off   func(*rotating)
		force bool
		after time.Duration // until the old key is retired
	}{
		"agent":          {func(c *rotating) { c.s1.health("n2", model.HealthUnreachable) }, false, 10 * time.Minute},
		"forced, agent":  {func(c *rotating) { c.s1.health("n2", model.HealthUnreachable) }, true, time.Minute},
		"server":         {func(c *rotating) { c.turnOff(c.s3, time.Minute) }, false, 9 * time.Minute},
		"forced, server": {func(c *rotating) { c.turnOff(c.s3, time.Minute) }, true, time.Minute},
		"off for long":   {func(c *rotating) { c.turnOff(c.s3, time.Hour) }, false, time.Minute},
		"there":          {func(*rotating) {}, false, time.Hour},
		"forced, there":  {func(*rotating) {}, true, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newRotating(t)
				defer c.s1.leading()()
				test.off(c)
				c.s1.begin()
				if test.force {
					c.s1.engine.ForceGossip(c.s1.machine.Current())
				}
				began := time.Now()
				c.s1.report(c.members[0], c.members[1], c.members[3])
				if c.off == nil {
					c.s1.report(c.members[2])
				} else {
					c.s1.report(c.members[4])
				}
				newest := func() *fsm.TrustKey {
					keys := c.s1.machine.Current().KeysOf(model.KeyGossip)
					return keys[len(keys)-1]
				}
				for newest().Phase == model.KeyIncoming && time.Since(began) < time.Hour {
					time.Sleep(time.Second)
				}
				took := time.Since(began)
				if took > test.after+10*time.Second || took < test.after-time.Minute {
					t.Errorf("the new key became active after %v, want %v", took, test.after)
				}
			})
		})
	}
}

// turnOff makes a server one that the leader has not heard for a time.
func (c *rotating) turnOff(s *site, silent time.Duration) {
	c.stop(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = map[string]time.Time{s.name: time.Now().Add(-silent)}
}

func (s *site) health(node string, h model.Health) {
	s.r.t.Helper()
	n, _ := s.machine.Current().NodeOf(node)
	s.do(&fsm.NodeHealth{ID: n.ID, Health: h, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch})
}
