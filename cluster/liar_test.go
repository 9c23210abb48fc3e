package cluster

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// addresses returns the vote and the address of each server in the configuration that s has.
func (s *Server) addresses() map[raft.ServerID]string {
	all := map[raft.ServerID]string{}
	for _, v := range s.servers() {
		all[v.ID] = fmt.Sprint(v.Suffrage, " ", v.Address)
	}
	return all
}

// An attacker who has the gossip key, but no certificate, can't change who votes or which address the configuration has
// for a server.
func TestGossipChangesNoServers(t *testing.T) {
	for _, lie := range []struct {
		name string
		of   func(victim *rigServer) (name, api string, meta ServerMeta)
	}{
		{"a new server at the address of a dead one", func(victim *rigServer) (string, string, ServerMeta) {
			return "liar", victim.host + ":7640", ServerMeta{Fresh: true}
		}},
		{"a dead server at a new address", func(victim *rigServer) (string, string, ServerMeta) {
			return string(victim.ID()), host(9) + ":7640", ServerMeta{}
		}},
		{"a new server somewhere", func(*rigServer) (string, string, ServerMeta) {
			return "liar", host(9) + ":7640", ServerMeta{Fresh: true}
		}},
	} {
		t.Run(lie.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t)
				r.threeServersRunning(nil)
				r.mustRegister("n1")
				leader := r.leader(time.Second)
				victim := r.other(leader)
				want := leader.addresses()
				victim.crash()
				time.Sleep(15 * time.Second) // until gossip accepts the victim's name from another address

				name, api, meta := lie.of(victim)
				meta.Format, meta.ClusterID = model.CurrentFormat, leader.History().Cluster
				if meta.Fresh {
					meta.ClusterID = ""
				}
				_, stop := startPool(t, r.net, name, host(9), func(c *PoolConfig) {
					c.Meta = Meta{Role: pki.RoleServer, API: api, Name: "liar", Server: &meta}
					c.Join = []string{leader.host + ":7642"}
				})
				eventually(t, 10*time.Second, "the leader sees the liar", func() bool {
					m, ok := leader.seen.pool.Member(name)
					return ok && m.State == fsm.GossipAlive && m.Meta.API == api
				})
				time.Sleep(time.Minute)
				if got := leader.addresses(); !maps.Equal(got, want) {
					t.Errorf("the servers were %v and are %v", want, got)
				}
				r.mustRegister("n2")

				// Once the victim is back, it gets the log, even if the liar still claims its id or its address.
				r.net.Heal()
				victim = r.start(hostNumber(victim.host), nil)
				eventually(t, 30*time.Second, "the victim has the log", func() bool {
					return victim.machine.State().Index >= leader.machine.State().Index
				})
				stop()
				r.agree(30 * time.Second)
			})
		})
	}
}

// False gossip about the addresses of running servers has no effect. The leader still reaches the other servers and
// keeps leading, and all servers still show the right addresses.
func TestGossipMovesNoLivingServer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		r.mustRegister("n1")
		leader := r.leader(time.Second)
		term := leader.Term()
		lies := 0
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			for _, by := range r.running() {
				for _, of := range r.running() {
					if by == of {
						continue
					}
					m, ok := by.seen.pool.Member(string(of.ID()))
					if !ok {
						t.Fatal("a server is not known")
					}
					m.Meta.API = host(9) + ":7640"
					meta, err := by.seen.pool.codec.encodeMeta(m.Meta)
					if err != nil {
						t.Fatal(err)
					}
					node := m.node
					node.Meta = meta
					by.seen.pool.seen(&node, fsm.GossipAlive) // one packet of a sender with the gossip key does the same
					lies++
					if told, _ := by.seen.pool.Member(string(of.ID())); told.Meta.API != m.Meta.API {
						t.Fatal("gossip does not take the lie")
					}
					if got, want := by.addressOf(of.ID()), of.cfg.Stream.Addr().String(); got != want {
						t.Fatalf("%s is thought to be at %s, it is at %s", of.ID(), got, want)
					}
				}
				if told, _, ok := by.Leader(); !ok || told.ID != leader.ID() ||
					told.APIAddress != leader.cfg.Stream.Addr().String() {
					t.Fatalf("after %d lies the leader is thought to be %+v (%v)", lies, told, ok)
				}
			}
		}
		if now := r.leader(time.Second); now != leader || now.Term() != term {
			t.Errorf("the leader of term %d was another one, in term %d", now.Term(), term)
		}
		for _, s := range leader.Servers() {
			if s.Address == host(9)+":7640" || !s.Answered {
				t.Errorf("server %s is shown at %s, and answered: %v", s.ID, s.Address, s.Answered)
			}
		}
		r.mustRegister("n2")
		r.agree(30 * time.Second)
	})
}
