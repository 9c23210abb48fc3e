package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
)

const standstillRounds = 12

// readers makes consistent reads at every server that believes that it leads. A read must show each write that was
// acknowledged before the read began, whichever server answers (S4). Safe for concurrent use.
type readers struct {
	t  *testing.T
	wg sync.WaitGroup

	mu      sync.Mutex
	acked   []model.NodeID
	answers int
}

func (r *readers) note(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked = append(r.acked, model.NodeID(name))
}

// begin starts one read at each of the given servers that believes that it leads. It does not wait for the answers.
func (r *readers) begin(servers []*rigServer) {
	r.mu.Lock()
	want := r.acked
	r.mu.Unlock()
	for _, s := range servers {
		if s.raft.State() != raft.Leader {
			continue
		}
		r.wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if s.ReadBarrier(ctx) != nil {
				return
			}
			state := s.machine.State()
			r.mu.Lock()
			r.answers++
			r.mu.Unlock()
			for _, name := range want {
				if !state.Nodes.Has(name) {
					r.t.Errorf("S4: a consistent read of %s, at index %d, lacks the write %s, which was acknowledged before it began",
						s.host, state.Index, name)
					return
				}
			}
		})
	}
}

// A machine stands still for some seconds, as if its host were overloaded. Its disk writes nothing, and messages to it,
// and sometimes from it, wait in the network. Meanwhile another server leads and acknowledges writes. When the machine
// continues, it gets all the delayed messages, including old answers. Consistent reads run during the whole test.
func TestStandstill(t *testing.T) {
	for _, seed := range stormSeeds(t) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("OUTSPAN_SEED=%d", seed)
			inLeakyBubble(t, func(t *testing.T) { standstill(t, rand.New(rand.NewPCG(seed, seed))) })
		})
	}
}

func standstill(t *testing.T, random *rand.Rand) {
	s := newStorm(t, random)
	r := &readers{t: t}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(150 * time.Millisecond): // no more often, because raft queues at most 64 requests
				r.begin(s.running())
			}
		}
	}()
	for range standstillRounds {
		for i := 1; i <= 3; i++ {
			for j := 1; j <= 3; j++ {
				s.net.Shape(host(i), host(j), memnet.Shape{Delay: time.Duration(1+random.IntN(60)) * time.Millisecond})
			}
		}
		s.standStill(r, s.leads())
		for until := time.Now().Add(10 * time.Second); time.Now().Before(until); {
			s.supervise()
			s.acknowledged(r)
		}
	}
	close(stop)
	<-stopped
	r.wg.Wait()
	s.judge()
	t.Logf("%d consistent reads were answered", r.answers)
}

// acknowledged tries one write and then pauses. If the write is acknowledged, r records it, because every later read
// must show it.
func (s *storm) acknowledged(r *readers) {
	if s.write() {
		r.note(s.acked[len(s.acked)-1])
	}
	time.Sleep(time.Duration(50+s.random.IntN(100)) * time.Millisecond)
}

func (s *storm) standStill(r *readers, i int) {
	s.say("%d stands still (%s)", i, s.server(i).raft.State())
	both := s.random.IntN(2) == 0
	for j := 1; j <= 3; j++ {
		if j == i {
			continue
		}
		s.net.Drop(host(j), host(i))
		if both {
			s.net.Drop(host(i), host(j))
		}
	}
	s.disks[i].stall()
	for until := time.Now().Add(time.Duration(2500+s.random.IntN(3000)) * time.Millisecond); time.Now().Before(until); {
		s.acknowledged(r)
	}
	mend := func() {
		for j := 1; j <= 3; j++ {
			s.net.Mend(host(i), host(j))
		}
	}
	apart := time.Duration(s.random.IntN(80)) * time.Millisecond
	if s.random.IntN(4) == 0 {
		s.disks[i].heal()
		time.Sleep(apart)
		mend()
	} else {
		mend()
		time.Sleep(apart)
		s.disks[i].heal()
	}
	s.say("%d goes on", i)
}
