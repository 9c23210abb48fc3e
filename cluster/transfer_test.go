package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// An operator asks the leader twice to hand leadership to a server that can't be reached. The leader loses leadership
// while raft still tries a transfer. Later the new leader is asked to hand leadership back. After the loss and after
// the last request, a leader must commit entries in time (L1).
func TestInterruptedTransfer(t *testing.T) {
	inLeakyBubble(t, func(t *testing.T) {
		s := newStorm(t, rand.New(rand.NewPCG(1, 1)))
		for round := range 12 {
			first := s.leads()
			silent, third := first%3+1, (first+1)%3+1
			s.net.Drop(host(silent), host(first))
			s.net.Drop(host(first), host(silent))
			for range 3 {
				s.write()
			}
			for range 2 {
				s.ask(first, silent)
			}
			s.net.Isolate(host(first), host(third))
			time.Sleep(3 * time.Second)
			s.net.Mend(host(first), host(third))
			s.commits(leaderLimit, fmt.Sprintf("round %d: the leader lost its term in the middle of a transfer", round))
			time.Sleep(raftTimeout) // after this time, requests to the silent server have failed
			s.net.Mend(host(first), host(silent))
			s.work(5 * time.Second)
			if now := s.leads(); now != first {
				s.ask(now, first)
			}
			s.commits(leaderLimit, fmt.Sprintf("round %d: server %d was asked to lead again", round, first))
			s.work(stormRecover)
		}
		s.judge()
	})
}

// ask asks one server to hand its leadership to another.
func (s *storm) ask(from, to int) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	err := s.server(from).TransferLeader(ctx, s.server(to).ID())
	s.say("transfer from %d to %d: %v", from, to, err)
}
