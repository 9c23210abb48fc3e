package cluster

import (
	"context"
	"fmt"
	"time"
)

// fault is a fault of one server. The functions begin and end take the number of the server.
type fault struct {
	name  string
	limit time.Duration // the longest permitted time without a committed write during the fault
	lasts time.Duration // about the longest time between begin and end
	begin func(i int)
	end   func(i int)
}

func (s *storm) faults() []fault {
	cut := func(how func(from, to string)) func(int) {
		return func(i int) {
			for j := 1; j <= 3; j++ {
				if j != i {
					how(host(i), host(j))
				}
			}
		}
	}
	mend := cut(s.net.Mend)
	healed := func(i int) { s.disks[i].heal() }
	return []fault{
		{"the disk takes no entry", leaderLimit, 3 * time.Second, func(i int) { s.disks[i].fail() }, healed},
		{"the disk hangs", leaderLimit + storeHangs, 2 * storeHangs, func(i int) { s.disks[i].stall() }, healed},
		{"killed", leaderLimit, 10 * time.Second, s.kill, s.revive},
		{"cut off", leaderLimit, 20 * time.Second, cut(func(a, b string) { s.net.Isolate(a, b) }), mend},
		{"not heard and deaf", leaderLimit, 20 * time.Second, cut(func(a, b string) {
			s.net.Drop(a, b)
			s.net.Drop(b, a)
		}), mend},
		{"not heard", leaderLimit, 20 * time.Second, cut(s.net.Drop), mend},
	}
}

func (s *storm) kill(i int) {
	s.down[i] = true
	s.net.Kill(host(i))
	s.server(i).stop()
}

func (s *storm) revive(i int) {
	s.down[i] = false
	s.begin(i)
}

// transfer asks each server that leads to hand leadership to one randomly chosen server, even if that server can't be
// reached.
func (s *storm) transfer() {
	to := s.server(1 + s.random.IntN(3))
	for _, one := range s.running() {
		if one.Term() == 0 || one == to {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		err := one.TransferLeader(ctx, to.ID())
		cancel()
		s.say("transfer from %s to %s: %v", one.host, to.host, err)
	}
}

// burst sends many writes at once to each server that leads. It does not wait for their outcomes.
func (s *storm) burst() {
	for _, one := range s.running() {
		if one.Term() == 0 {
			continue
		}
		many := 20 + s.random.IntN(60)
		for range many {
			s.writes++
			_, _ = one.Submit(context.Background(), nodeEntry(fmt.Sprintf("n%04d", s.writes)))
		}
		s.say("%d writes at once at %s", many, one.host)
	}
}

// flap breaks all working links between servers and mends them again. It repeats this two to five times with short
// pauses.
func (s *storm) flap() {
	var mended [][2]string
	for i, one := range s.all() {
		for _, other := range s.all()[:i] {
			if s.net.Reach(one.host, other.host) {
				mended = append(mended, [2]string{one.host, other.host})
			}
		}
	}
	for range 2 + s.random.IntN(4) {
		for _, pair := range mended {
			s.net.Isolate(pair[0], pair[1])
		}
		time.Sleep(time.Duration(200+s.random.IntN(1500)) * time.Millisecond)
		for _, pair := range mended {
			s.net.Mend(pair[0], pair[1])
		}
		time.Sleep(time.Duration(200+s.random.IntN(3000)) * time.Millisecond)
	}
	s.say("flapped")
}

// blink cuts one leader off from all other servers for 0.7 to 2.7 s. Without a majority, it may lose its leadership in
// this time.
func (s *storm) blink() {
	for _, one := range s.running() {
		if one.Term() == 0 {
			continue
		}
		var mended []string
		for _, other := range s.all() {
			if other != one && s.net.Reach(one.host, other.host) {
				s.net.Isolate(one.host, other.host)
				mended = append(mended, other.host)
			}
		}
		time.Sleep(time.Duration(700+s.random.IntN(2000)) * time.Millisecond)
		for _, other := range mended {
			s.net.Mend(one.host, other)
		}
		s.say("blink of %s", one.host)
		return
	}
}
