package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/cluster/memnet"
)

// Each of these was measured; moving one brings a trap back.
func TestRaftSettings(t *testing.T) {
	c := RaftConfig{}.withDefaults().raft("s1", nil, hclog.NewNullLogger())
	if err := raft.ValidateConfig(c); err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string][2]any{
		"heartbeat timeout":  {c.HeartbeatTimeout, time.Second},
		"election timeout":   {c.ElectionTimeout, time.Second},
		"lease":              {c.LeaderLeaseTimeout, 500 * time.Millisecond},
		"commit timeout":     {c.CommitTimeout, 50 * time.Millisecond},
		"append entries":     {c.MaxAppendEntries, 64},
		"snapshot interval":  {c.SnapshotInterval, 30 * time.Second},
		"snapshot threshold": {c.SnapshotThreshold, uint64(8192)},
		"trailing logs":      {c.TrailingLogs, uint64(65536)},
		"snapshots kept":     {snapshotsKept, 3},
		"shutdown on remove": {c.ShutdownOnRemove, false},
		"pre-vote off":       {c.PreVoteDisabled, false},
		"restore committed":  {c.RestoreCommittedLogs, false},
		"RPCs in flight":     {maxRPCsInFlight, 1},
	} {
		if fmt.Sprint(got[0]) != fmt.Sprint(got[1]) {
			t.Errorf("%s is %v, want %v", what, got[0], got[1])
		}
	}
	slow := RaftConfig{Multiplier: 3}.withDefaults().raft("s1", nil, hclog.NewNullLogger())
	if slow.ElectionTimeout != 3*time.Second || slow.LeaderLeaseTimeout != 1500*time.Millisecond {
		t.Errorf("multiplier 3: election %s, lease %s", slow.ElectionTimeout, slow.LeaderLeaseTimeout)
	}
}

// raft must neither pipeline (one failed append would wedge the replication) nor lose pre-votes.
func TestPeerTransport(t *testing.T) {
	n := memnet.New()
	full := RoomNone
	trans := newPeerTransport(&helloLayer{Stream: memStream{n.Listen("10.0.0.1:1"), n, "10.0.0.1"}, self: "s1", cluster: func() string { return "" }},
		nil, func() Room { return full }, hclog.NewNullLogger())
	defer trans.Close()
	if _, err := trans.AppendEntriesPipeline("s2", "x"); !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
		t.Errorf("pipelining: %v", err)
	}
	if _, ok := raft.Transport(trans).(raft.WithPreVote); !ok {
		t.Error("no pre-votes")
	}
	if err := trans.RequestPreVote("s2", "x", nil, nil); !errors.Is(err, errNoRoom) {
		t.Errorf("a server that can't append stands for election: %v", err)
	}
	if got := string(trans.EncodePeer("s1", "10.0.0.1:1")); got != "10.0.0.1:1" {
		t.Errorf("peer encoded as %s", got)
	}
}
