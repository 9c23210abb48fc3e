package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// The method Servers lists only listeners that a server reports over TLS or that the configuration has. It does not use
// gossip, which can claim any address and even servers that don't exist.
func TestListensAreNotWhatGossipClaims(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		leader := r.leader(time.Second)
		moved := r.other(leader)
		startPool(t, r.net, "liar", host(9), func(c *PoolConfig) {
			c.Meta = Meta{
				Role: pki.RoleServer, API: host(9) + ":8080", Name: "liar",
				Server: &ServerMeta{Fresh: true, Format: model.CurrentFormat},
			}
			c.Join = []string{leader.host + ":7642"}
		})
		eventually(t, 10*time.Second, "the leader sees the liar", func() bool {
			m, ok := leader.seen.pool.Member("liar")
			return ok && m.State == fsm.GossipAlive
		})
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			m, _ := leader.seen.pool.Member(string(moved.ID()))
			m.Meta.API = host(9) + ":8081"
			meta, err := leader.seen.pool.codec.encodeMeta(m.Meta)
			if err != nil {
				t.Fatal(err)
			}
			node := m.node
			node.Meta = meta
			leader.seen.pool.seen(&node, fsm.GossipAlive)
		}
		shown := 0
		for _, s := range leader.Servers() {
			var want []string
			for _, real := range r.running() {
				if real.ID() == s.ID {
					want = []string{real.host + ":7640", real.host + ":7642"}
				}
			}
			if !slices.Equal(s.Listens, want) {
				t.Errorf("%s listens on %q, want %q", s.Name, s.Listens, want)
			}
			shown++
		}
		if shown != 4 {
			t.Errorf("%d servers are shown", shown)
		}
	})
}
