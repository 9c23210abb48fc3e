package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// A server was down while an agent registered. It can't catch up, because its disk has no room for the snapshot. Then
// the leader crashes, and nobody can lead. The agent still reaches two of three servers, which renew its lease.
func TestLeaseHoldsAtAServerThatLags(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		leader, away := r.oneBehind(fewLogs)
		r.agent(1)
		const lease = 10 * time.Second
		holds := func() bool { return time.Until(r.beaters["n1"].LeaseUntil(lease)) > 0 }
		eventually(t, lease, "a lease", holds)
		r.net.Heal()
		full := func(string) (free, total int64, err error) { return 0, 1 << 40, nil }
		back := r.start(hostNumber(away.host), func(c *Config) { fewLogs(c); c.Disk.Space = full })
		eventually(t, 10*time.Second, "the server that returned answers the leader", func() bool {
			return leader.state.follower.get(back.ID()).answered()
		})
		leader.crash()
		for range 60 {
			time.Sleep(time.Second)
			if !holds() {
				t.Fatalf("the lease ended; the server that returned has the state %d and heard the node %+v ago",
					back.machine.State().Index, back.seen.hearts.Age("n1"))
			}
		}
		if _, known := back.machine.State().Nodes.Get("n1"); known {
			t.Error("the server caught up, so this showed nothing")
		}
	})
}

// A server agrees that an epoch is offline, and crashes. After its restart, the server still renews no lease of that
// epoch, although its state does not say that the epoch is offline.
func TestAgreementOutlivesARestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		r.mustRegister("n1")
		epoch := r.epoch("n1")
		follower := r.other(r.leader(time.Second))
		time.Sleep(time.Minute)
		q := ageQuery{Nodes: []nodeEpoch{{"n1", epoch}}, GiveUp: true, Threshold: 2 * model.Second}
		if reply := follower.answerAges(q); !reply.Calm {
			t.Fatal("not calm")
		}
		path := filepath.Join(follower.dir, fileGivenUp)
		var written map[model.NodeID]uint64
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &written)
		}
		if err != nil || written["n1"] != epoch {
			t.Fatalf("on the disk: %s, %v", text, err)
		}
		follower.crash()
		r.net.Heal()
		back := r.start(hostNumber(follower.host), nil)
		b := beat{To: back.ID(), Node: "n1", Epoch: epoch, Seq: 1, Echo: back.seen.hearts.echo}
		if v := back.seen.hearts.take(b, testNodeKey); v != verdictGivenUp {
			t.Errorf("verdict %d after the restart, want given up", v)
		}
		// A server that can't write its agreement to the disk does not agree.
		if err := os.Mkdir(path+".new", 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if !back.calmEnough() {
			t.Fatal("not calm after the restart")
		}
		q.Nodes[0].Epoch++
		if reply := back.answerAges(q); reply.Calm {
			t.Error("it agreed to what it could not write down")
		}
	})
}

// A removed server that doesn't know of its removal continues and takes itself for a voter. Its answers don't help to
// renew a lease.
func TestRemovedServerCountsForNoLease(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, _ := threeWithAgents(t, 1)
		time.Sleep(5 * time.Second)
		leader := r.leader(time.Second)
		removed := r.other(leader)
		var stays *rigServer
		for _, s := range r.running() {
			if s != leader && s != removed {
				stays = s
			}
		}
		r.net.Isolate(removed.host, leader.host) // so it doesn't learn of its removal
		r.net.Isolate(removed.host, stays.host)
		eventually(t, 30*time.Second, "the removal", func() bool {
			return leader.Remove(t.Context(), removed.ID(), true) == nil
		})
		time.Sleep(5 * time.Second)
		if _, voters := removed.Voters(); !slices.Contains(voters, removed.ID()) {
			t.Fatal("it was told")
		}
		// The agent reaches the removed server and one of the two others.
		r.net.Isolate(agentHost(1), stays.host)
		time.Sleep(15 * time.Second)
		if left := time.Until(r.beaters["n1"].LeaseUntil(10 * time.Second)); left > 0 {
			t.Errorf("one of two voters answers, and the lease has %s left", left)
		}
		if !removed.seen.hearts.Age("n1").Heard || removed.seen.hearts.Age("n1").Since > time.Second {
			t.Error("the removed server does not hear the node, so this showed nothing")
		}
	})
}

// A beater accepts answers of the lineage that it knows, and of a lineage that replaces the known one. It takes over
// the voters of a new lineage even if their index is lower. It refuses answers of all other lineages and clusters.
func TestBeaterFollowsHistory(t *testing.T) {
	b := NewBeater(BeaterConfig{Node: "n1"})
	b.SetVoters("c/old", 90, []model.ServerID{"s1", "s2", "s3"})
	for _, step := range []struct {
		heard electorate
		taken bool
		index uint64
	}{
		{electorate{"c/old", 7, []model.ServerID{"s9"}}, true, 90},
		{electorate{"c/other", 99, []model.ServerID{"s9"}}, false, 90},
		{electorate{"other/old", 99, []model.ServerID{"s9"}}, false, 90},
		{electorate{"c/old,new", 1, []model.ServerID{"s1"}}, true, 1},
		{electorate{"c/old", 95, []model.ServerID{"s2", "s3"}}, false, 1},
	} {
		if taken := b.hear(step.heard); taken != step.taken || b.voters.Index != step.index {
			t.Errorf("%+v: taken %v, index %d; want %v, %d", step.heard, taken, b.voters.Index, step.taken, step.index)
		}
	}
}
