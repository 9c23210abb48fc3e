package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// eightServers is a Courier that knows eight servers and keeps the last heartbeat that was sent to each.
type eightServers struct{ beats map[string][]byte }

func (c eightServers) Servers() (list []Member) {
	for i := range 8 {
		list = append(list, Member{Name: fmt.Sprint("s", i)})
	}
	return list
}

func (c eightServers) Address() string { return "127.0.0.1:1" }

func (c eightServers) Send(name string, msg []byte) error {
	c.beats[name] = msg
	return nil
}

func (c eightServers) Receive() <-chan []byte { return nil }

// An answer that takes longer than an interval still renews the lease, however many servers gossip knows.
func TestLateAnswersRenewTheLease(t *testing.T) {
	key, sent := []byte("0123456789abcdef0123456789abcdef"), eightServers{map[string][]byte{}}
	b := NewBeater(BeaterConfig{Node: "n1", Pool: sent})
	b.Register(key, 3, time.Second)
	b.SetVoters("", 1, []model.ServerID{"s0"})
	b.beatAll()
	first := sent.beats["s0"]
	for range 3 {
		b.beatAll()
	}
	var got beat
	if err := b.codec.open(first, kindBeat, &got, func() ([]byte, bool) { return key, true }); err != nil {
		t.Fatal(err)
	}
	late, err := b.codec.seal(kindAnswer,
		beatAnswer{From: "s0", Node: "n1", Epoch: 3, Seq: got.Seq, Echo: 7, Verdict: verdictHeard}, key)
	if err != nil {
		t.Fatal(err)
	}
	if b.receive(late); b.LeaseUntil(time.Minute).IsZero() {
		t.Error("the answer to the heartbeat before the last three was dropped")
	}
}
