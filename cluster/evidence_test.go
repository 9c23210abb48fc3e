package cluster

import (
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// goodEvidence returns evidence that node n is silent. The threshold is 60 s, and the heartbeat interval is 10 s. The
// leader s1 and the other voters, s2 and s3, have not heard n for 61 s.
func goodEvidence() Evidence {
	silent := map[model.NodeID]Age{"n": {Since: 61 * time.Second, Heard: true}}
	return Evidence{
		Threshold: time.Minute, Interval: 10 * time.Second,
		Fitness: Fitness{Uptime: time.Hour, Led: time.Hour, Calm: time.Hour},
		Self:    "s1", Voters: []model.ServerID{"s1", "s2", "s3"}, Own: silent,
		Opinions: []Opinion{{Server: "s2", Calm: true, Ages: silent}, {Server: "s3", Calm: true, Ages: silent}},
		Gossip:   map[model.NodeID]fsm.Gossip{"n": fsm.GossipDead},
	}
}

func TestEvidence(t *testing.T) {
	recent := map[model.NodeID]Age{"n": {Since: time.Second, Heard: true}}
	for _, c := range []struct {
		name   string
		edit   func(*Evidence)
		silent bool
		seenBy model.ServerID
	}{
		{"all agree", func(*Evidence) {}, true, ""},
		{"one answer is a majority of three with the leader", func(e *Evidence) { e.Opinions = e.Opinions[:1] }, true, ""},
		{"no answer is no opinion: the leader alone is no majority", func(e *Evidence) { e.Opinions = nil }, false, ""},
		{"the leader misses it, another one hears it", func(e *Evidence) {
			e.Own, e.Opinions[1].Ages = map[model.NodeID]Age{"n": {Since: 26 * time.Second, Heard: true}}, recent
		}, false, "s3"},
		{"the leader misses it, the others heard it as long ago", func(e *Evidence) {
			e.Own = map[model.NodeID]Age{"n": {Since: 26 * time.Second, Heard: true}}
			e.Opinions[0].Ages, e.Opinions[1].Ages = e.Own, e.Own
		}, false, ""},
		{"the leader heard it", func(e *Evidence) { e.Own = recent }, false, ""},
		{"one that saw it recently vetoes", func(e *Evidence) { e.Opinions[1].Ages = recent }, false, "s3"},
		{"a server without a vote vetoes too", func(e *Evidence) {
			e.Opinions = append(e.Opinions, Opinion{Server: "s9", Ages: recent})
		}, false, "s9"},
		{"a server without a vote can't agree", func(e *Evidence) {
			e.Voters = []model.ServerID{"s1", "s4", "s5"}
		}, false, ""},
		{"an old answer is none", func(e *Evidence) {
			e.Opinions[0].Asked, e.Opinions[1].Asked = 11*time.Second, 11*time.Second
		}, false, ""},
		{"an old veto is none", func(e *Evidence) {
			e.Opinions[1].Ages, e.Opinions[1].Asked = recent, 11*time.Second
		}, true, ""},
		{"a voter that was paused has no opinion", func(e *Evidence) {
			e.Opinions[0].Calm, e.Opinions[1].Calm = false, false
		}, false, ""},
		{"a paused voter's veto counts", func(e *Evidence) {
			e.Opinions[0].Calm, e.Opinions[0].Ages = false, recent
		}, false, "s2"},
		{"the same voter twice counts once", func(e *Evidence) {
			e.Voters = []model.ServerID{"s1", "s2", "s3", "s4", "s5"}
			e.Opinions = []Opinion{e.Opinions[0], e.Opinions[0]}
		}, false, ""},
		{"a young voter that never heard it has no opinion", func(e *Evidence) {
			e.Opinions = []Opinion{{Server: "s2", Calm: true, Ages: map[model.NodeID]Age{"n": {Since: time.Second}}}}
		}, false, ""},
		{"an old voter that never heard it agrees", func(e *Evidence) {
			e.Opinions = []Opinion{{Server: "s2", Calm: true, Ages: map[model.NodeID]Age{"n": {Since: time.Hour}}}}
		}, true, ""},
		{"the leader began a moment ago and has not heard it yet", func(e *Evidence) {
			e.Threshold = 2 * time.Second
			e.Own = map[model.NodeID]Age{"n": {Since: 14 * time.Second}}
		}, false, ""},
		{"the leader began long ago and never heard it", func(e *Evidence) {
			e.Threshold = 2 * time.Second
			e.Own = map[model.NodeID]Age{"n": {Since: 15 * time.Second}}
		}, true, ""},
		{"gossip sees it and all voters agree", func(e *Evidence) { e.Gossip["n"] = fsm.GossipAlive }, true, ""},
		{"gossip sees it and one voter did not answer", func(e *Evidence) {
			e.Gossip["n"], e.Opinions = fsm.GossipAlive, e.Opinions[:1]
		}, false, ""},
		{"gossip doesn't know it", func(e *Evidence) { e.Gossip = nil }, true, ""},
		{"gossip suspects it", func(e *Evidence) { e.Gossip["n"] = fsm.GossipSuspect }, true, ""},
		{"the leader's process is young", func(e *Evidence) { e.Fitness.Uptime = 59 * time.Second }, false, ""},
		{"the leader has just begun to lead", func(e *Evidence) { e.Fitness.Led = 19 * time.Second }, false, ""},
		{"the leader was paused", func(e *Evidence) { e.Fitness.Calm = 19 * time.Second }, false, ""},
		{"two heartbeats of calm are enough", func(e *Evidence) {
			e.Fitness.Calm, e.Fitness.Led = 20*time.Second, 20*time.Second
		}, true, ""},
		{"the leader has no vote", func(e *Evidence) {
			e.Voters = []model.ServerID{"s2", "s3", "s4"}
			e.Opinions = e.Opinions[:1]
		}, false, ""},
		{"a single server decides alone", func(e *Evidence) { e.Voters, e.Opinions = []model.ServerID{"s1"}, nil }, true, ""},
		{"two of four are no majority", func(e *Evidence) {
			e.Voters, e.Opinions = append(e.Voters, "s4"), e.Opinions[:1]
		}, false, ""},
	} {
		e := goodEvidence()
		c.edit(&e)
		got := e.Weigh("n")
		if got.Silent != c.silent || got.SeenBy != c.seenBy {
			t.Errorf("%s: silent %v, seen by %q; want %v, %q", c.name, got.Silent, got.SeenBy, c.silent, c.seenBy)
		}
	}
}

// A node that one of three servers has heard within the threshold is not judged silent, even if the other two servers
// have not heard the node for more than the threshold.
func TestEvidenceNeverSilentWhenHeard(t *testing.T) {
	for who := range 3 {
		e := goodEvidence()
		heard := map[model.NodeID]Age{"n": {Since: 29 * time.Second, Heard: true}}
		if who == 0 {
			e.Own = heard
		} else {
			e.Opinions[who-1].Ages = heard
		}
		if e.Weigh("n").Silent {
			t.Errorf("server %d heard it 29 s ago and it is silent", who+1)
		}
	}
}
