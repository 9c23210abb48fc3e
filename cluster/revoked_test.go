package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// The node of a revoked agent becomes silent by itself, although its heartbeats and its gossip go on and one voter is
// off. Another node is not affected. No server gives its key to a server whose state is older.
func TestRevokedAgentBecomesSilent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, _ := threeWithAgents(t, 2)
		leader := r.leader(time.Second)
		hash := []byte("0123456789abcdef0123456789abcdef")
		n1 := model.Subject{Kind: model.SubjectAgent, Name: "n1"}
		for _, c := range []fsm.Command{
			&fsm.TokenCreate{ID: "aaaaaaaaaaaa", Role: "agent", Verifier: hash, TTL: model.Hour, Uses: 1},
			&fsm.MemberAdmit{Subject: n1, Key: hash, NotAfter: 1, Token: "aaaaaaaaaaaa", Verifier: hash},
		} {
			propose(t, leader, c)
		}
		time.Sleep(5 * time.Second)
		if l := leader.Live()["n1"]; l.Silent {
			t.Fatalf("silent before its revocation: %+v", l)
		}
		for _, s := range r.running() {
			if s != leader {
				s.stop()
				break
			}
		}
		propose(t, leader, &fsm.MemberRevoke{Subject: n1})
		r.silentWithin(testThreshold+2*testBeat+2*time.Second, "n1")
		if l := leader.Live()["n2"]; l.Silent {
			t.Errorf("n2 is silent too: %+v", l)
		}
		of := nodeEpoch{"n1", r.epoch("n1")}
		if _, ok := leader.nodeKey(of); ok {
			t.Error("its heartbeats would count")
		}
		if keys := leader.answerKeys(keyQuery{[]model.NodeID{"n1", "n2"}}).Keys; len(keys) != 1 || keys[0].Node != "n2" {
			t.Errorf("the server tells the keys of %v", keys)
		}
	})
}

func propose(t *testing.T, s *rigServer, c fsm.Command) {
	t.Helper()
	results, err := s.Propose(context.Background(), fsm.Entry{Actor: "cli:alice", Groups: [][]fsm.Command{{c}}})
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Refusal != nil {
		t.Fatal(results[0].Refusal)
	}
}
