package cluster

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
)

// Each of these values was chosen after measurements. Other values bring back the traps listed in DESIGN.md.
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

// The transport refuses pipelining, because one failed append would then block replication for ever. It supports
// pre-votes, but a server without disk space asks for none.
func TestPeerTransport(t *testing.T) {
	n := memnet.New()
	full := RoomNone
	trans := newPeerTransport(&helloLayer{Stream: memStream{n.Listen("10.0.0.1:1"), n, "10.0.0.1", nil}, self: "s1",
		history: func() model.History { return model.History{} }},
		nil, func() Room { return full }, func(raft.ServerID) bool { return true }, hclog.NewNullLogger())
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

// Entries that are committed together are published together, but never across a multiple of checkpointEvery. So all
// servers keep the same states as checkpoints, however raft grouped the entries.
func TestBatches(t *testing.T) {
	const first = checkpointEvery - 3
	voting :=
		raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "s1"}, {ID: "s2", Suffrage: raft.Nonvoter}}})
	logs := []*raft.Log{
		{Index: first - 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{})}}
	for i := range uint64(6) {
		logs = append(logs, &raft.Log{Index: first + i, Term: 1, Type: raft.LogCommand, Data: settingsEntry(t, i)})
	}
	logs = append(logs, &raft.Log{Index: first + 6, Type: raft.LogConfiguration, Data: voting})
	for _, cut := range []int{1, 2, 3, 5, len(logs)} {
		f := comparedFSM{&machineFSM{machine: fsm.NewMachine(), clock: newClock(), fatal: func(err error) {
			t.Error(err)
		}}, &comparer{}}
		var answers []any
		for part := range slices.Chunk(logs, cut) {
			answers = append(answers, f.ApplyBatch(part)...)
		}
		for i, l := range logs {
			results, ok := answers[i].([]fsm.Result)
			if l.Type == raft.LogConfiguration && answers[i] != nil || l.Type == raft.LogCommand &&
				(!ok || results[0].Index != l.Index) {
				t.Errorf("in batches of %d: entry %d answers %v", cut, l.Index, answers[i])
			}
		}
		if len(f.c.past.checkpoints) != 1 || f.c.past.checkpoints[0].Index != checkpointEvery-1 {
			t.Errorf("in batches of %d: kept %d checkpoints", cut, len(f.c.past.checkpoints))
		}
		if c := f.config.Load(); f.machine.State().Index != first+5 || c.index != first+6 ||
			!slices.Equal(c.voters, []model.ServerID{"s1"}) {
			t.Errorf("in batches of %d: at %d, configuration %+v", cut, f.machine.State().Index, c)
		}
	}
}

// machineFSM restores the state in its field handed only if the snapshot has the expected checksum, and only once.
func TestHandedState(t *testing.T) {
	snapshot := func(entry uint64) (fsm.State, []byte) {
		m := fsm.NewMachine()
		if _, err := m.Apply(entry, 1, settingsEntry(t, entry)); err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		if err := fsm.WriteSnapshot(&buf, m.State()); err != nil {
			t.Fatal(err)
		}
		return m.State(), buf.Bytes()
	}
	own, ownBytes := snapshot(5)
	other, otherBytes := snapshot(6)
	marked := own
	marked.Hold.Active = true // distinguishes the handed state from the snapshot's; in production the two are equal
	for _, tt := range []struct {
		name   string
		body   []byte
		digest string
	}{{"its own", ownBytes, fsm.Digest(marked)}, {"another", otherBytes, fsm.Digest(other)}} {
		f := &machineFSM{machine: fsm.NewMachine(), clock: newClock()}
		f.handed.Store(&handedState{marked, sha256.Sum256(ownBytes)})
		for round, want := range []string{tt.digest, fsm.Digest(own)} {
			body := [][]byte{tt.body, ownBytes}[round]
			if err := f.Restore(io.NopCloser(bytes.NewReader(body))); err != nil {
				t.Fatal(err)
			}
			if got := fsm.Digest(f.machine.State()); got != want {
				t.Errorf("%s, restore %d: the digest is %s, want %s", tt.name, round+1, got, want)
			}
		}
	}
}

func settingsEntry(t *testing.T, n uint64) []byte {
	t.Helper()
	settings := model.DefaultSettings()
	settings.EventLimit += int(n)
	data, err := fsm.EncodeEntry(fsm.Entry{Format: model.CurrentFormat, Actor: "test",
		Groups: [][]fsm.Command{{&fsm.SettingsSet{Settings: settings}}}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Large entries are published one by one, so that readers wait for about one large entry at most.
func TestLargeEntriesAreNotBatched(t *testing.T) {
	large := &raft.Log{Index: 1, Data: make([]byte, batchBytes)}
	small := &raft.Log{Index: 2, Data: make([]byte, 100)}
	for _, tt := range []struct {
		logs []*raft.Log
		want int
	}{{[]*raft.Log{large}, 1}, {[]*raft.Log{large, small}, 1}, {[]*raft.Log{small, large}, 1},
		{[]*raft.Log{small, small, small}, 3}} {
		if got := batch(tt.logs); got != tt.want {
			t.Errorf("%d of %d entries go together, want %d", got, len(tt.logs), tt.want)
		}
	}
}
