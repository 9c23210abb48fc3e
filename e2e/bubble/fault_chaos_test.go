package bubble

import (
	"fmt"
	"syscall"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
)

// breakServer calls do, which breaks the server s, and plans a later call of mend. It does nothing if s is nil or if
// any server is already broken.
func (c *chaos) breakServer(what string, s *server, do, mend func()) {
	if c.broken(true) > 0 || s == nil {
		return
	}
	c.say("%s %s", what, s.name)
	do()
	c.repairs = append(c.repairs, repair{c.until(), s, func() {
		c.say("end of %s %s", what, s.name)
		mend()
	}, true})
}

func (c *chaos) server() *server { return c.w.servers[c.random.IntN(3)] }

// serverOrLeader returns the leader half of the time, and otherwise a random server. Most faults of servers that don't
// lead have no visible effect.
func (c *chaos) serverOrLeader() *server {
	if s := c.w.leads(); s != nil && c.random.IntN(2) == 0 {
		return s
	}
	return c.server()
}

// cutPower cuts the power of a server's machine, if possible during a write to its disk. It waits up to 0.5 s for a
// write.
func (c *chaos) cutPower(s *server) {
	s.disk.Slow(20 * time.Millisecond)
	for until := time.Now().Add(500 * time.Millisecond); !s.disk.Busy() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Duration(c.random.IntN(30)) * time.Millisecond)
	c.say("end the power of %s; on its disk:%s", s.name, s.powerOff())
}

// bootUp starts a server's machine after cutPower, with a disk of normal speed.
func (c *chaos) bootUp(s *server) {
	s.disk.Slow(everyWrite)
	s.restart()
}

func (c *chaos) loseServer() {
	s := c.serverOrLeader()
	c.breakServer("lose", s, func() { c.cutPower(s) }, func() { c.bootUp(s) })
}

// loseAll cuts the power of all servers, one shortly after another, and starts them again later. It does nothing if a
// server is already broken.
func (c *chaos) loseAll() {
	if c.broken(true) > 0 {
		return
	}
	for _, s := range c.w.servers {
		c.cutPower(s)
	}
	c.repairs = append(c.repairs, repair{c.until(), c.w, func() {
		c.say("the power is back")
		for _, i := range c.random.Perm(len(c.w.servers)) {
			c.bootUp(c.w.servers[i])
		}
	}, true})
}

// restartServer kills a server and starts it again immediately. It does nothing if a server is already broken.
func (c *chaos) restartServer() {
	if s := c.serverOrLeader(); c.broken(true) == 0 {
		c.say("kill and restart %s", s.name)
		s.kill()
		s.restart()
	}
}

// wipeServer kills a server and empties its disk. Later the server starts with a new id and must get a vote. wipeServer
// does nothing unless all servers are healthy and vote.
func (c *chaos) wipeServer() {
	s := c.server()
	if c.broken(true) > 0 || !c.w.whole() {
		return // with fewer than three votes, one more failure would be too many
	}
	c.say("wipe %s", s.name)
	s.kill()
	<-s.done
	s.disk.Wipe()
	c.repairs = append(c.repairs, repair{c.until(), s, func() {
		c.say("restart %s as a new server", s.name)
		// The other two servers must add the new one. A link between them that is slower than the leader's lease would cost
		// each leader its leadership.
		c.goodLinks()
		s.restart()
		c.w.eventually(2*time.Minute, "L1: "+s.name+" has a vote again after it was wiped", c.w.whole)
	}, true})
}

// whole reports whether all servers run and answer the leader, and no other id has a vote. After a wipe, the server's
// former id has a vote until the leader removes it.
func (w *world) whole() bool {
	leader := w.leads()
	if leader == nil {
		return false
	}
	voters := map[model.ServerID]bool{}
	for _, s := range leader.cluster.Servers() {
		if s.Voter {
			voters[s.ID] = s.Answered
		}
	}
	for _, s := range w.servers {
		if !s.running() || !voters[s.cluster.ID()] {
			return false
		}
	}
	return len(voters) == len(w.servers)
}

// again restarts a server if its process has ended, as a supervisor does. After the call, the process must not end by
// itself any more.
func (s *server) again() {
	synctest.Wait() // if a write fails at this moment, the process ends before the check below
	s.mayFail.Store(false)
	if s.ended() {
		s.restart()
	}
}

func (c *chaos) slowDisk() {
	s := c.server()
	latency := time.Duration(1+c.random.IntN(100)) * time.Millisecond
	c.breakServer(fmt.Sprintf("slow down to %s the disk of", latency), s, func() {
		s.disk.Slow(latency)
	}, func() { s.disk.Slow(everyWrite) })
}

// everyWrite is the latency of writes to disks without a fault. It is not 0, so that a power loss can interrupt a
// write.
const everyWrite = 200 * time.Microsecond

// hangDisk makes a server's disk hang, for a moment or until the watchdog stops the process.
func (c *chaos) hangDisk() {
	s := c.serverOrLeader()
	c.breakServer("hang the disk of", s, func() {
		s.mayFail.Store(true)
		s.disk.Hang()
	}, func() {
		s.disk.Resume()
		s.again()
	})
}

// breakDisk makes a server's disk refuse all writes. The process exits when a write fails.
func (c *chaos) breakDisk() {
	s := c.serverOrLeader()
	c.breakServer("break the disk of", s, func() {
		s.mayFail.Store(true)
		s.disk.Fail(syscall.EIO)
	}, func() {
		s.disk.Fail(nil)
		s.again()
	})
}

// fillDisk leaves little free space on a server's disk. The server must step aside, and its process must not exit.
func (c *chaos) fillDisk() {
	s := c.serverOrLeader()
	c.breakServer("fill the disk of", s, func() {
		s.disk.Fill(int64(64<<10 + c.random.IntN(ballast)))
		time.Sleep(time.Duration(c.random.IntN(1500)) * time.Millisecond)
		if c.random.IntN(2) == 0 { // sometimes use up the space of the deleted ballast too
			s.disk.Fill(int64(16<<10 + c.random.IntN(ballast/4)))
		}
	}, func() { s.disk.Fill(-1) })
}

// fullDisk leaves no free space on a server's disk. The process may exit.
func (c *chaos) fullDisk() {
	s := c.serverOrLeader()
	c.breakServer("leave no byte on the disk of", s, func() {
		s.mayFail.Store(true)
		s.disk.Fill(0)
	}, func() {
		s.disk.Fill(-1)
		s.again()
	})
}

// pauseServer cuts a server off from the network and stops its writes for up to about 8 s. From outside this looks like
// a paused machine. But its clocks continue, because a bubble can't stop them for one process alone. The tests in e2e
// pause real processes.
func (c *chaos) pauseServer() {
	s := c.serverOrLeader()
	if c.broken(true) > 0 {
		return
	}
	c.say("pause %s", s.name)
	s.mayFail.Store(true)
	c.w.net.Vanish(s.host)
	s.disk.Hang()
	at := time.Now().Add(time.Duration(200+c.random.IntN(8000)) * time.Millisecond)
	c.repairs = append(c.repairs, repair{at, s, func() {
		c.say("end of the pause of %s", s.name)
		s.disk.Resume()
		c.w.net.Revive(s.host)
		s.again()
	}, true})
}

// shape makes one direction of a link between a server and another machine bad, or makes all links good again.
func (c *chaos) shape() {
	if c.random.IntN(4) == 0 {
		c.goodLinks()
		return
	}
	hosts := c.hosts()
	from, to := c.w.servers[c.random.IntN(3)].host, hosts[c.random.IntN(len(hosts))]
	if c.random.IntN(2) == 0 {
		from, to = to, from
	}
	s := shapes[c.random.IntN(len(shapes))]
	s.shape.Delay += time.Duration(c.random.IntN(50)) * time.Millisecond
	c.say("from %s to %s: %s %+v", from, to, s.name, s.shape)
	c.w.net.Shape(from, to, s.shape)
}

func (c *chaos) goodLinks() {
	c.say("all links are good")
	for _, a := range c.hosts() {
		for _, b := range c.hosts() {
			c.w.net.Shape(a, b, memnet.Shape{})
		}
	}
}

var shapes = [...]struct {
	name  string
	shape memnet.Shape
}{
	{"late", memnet.Shape{Delay: 150 * time.Millisecond}},
	{"in disorder", memnet.Shape{Jitter: 300 * time.Millisecond}},
	{"twice", memnet.Shape{Duplicate: 0.5, Jitter: 50 * time.Millisecond}},
	{"slow", memnet.Shape{BytesPerSecond: 20_000}},
	{"very late", memnet.Shape{Delay: 400 * time.Millisecond, Jitter: 400 * time.Millisecond}},
}

func (c *chaos) hosts() (out []string) {
	for _, s := range c.w.servers {
		out = append(out, s.host)
	}
	for _, n := range c.w.nodes {
		out = append(out, n.host)
	}
	return out
}

// cutOneWay drops everything that a server sends to one other machine.
func (c *chaos) cutOneWay() {
	s, hosts := c.server(), c.hosts()
	to := hosts[c.random.IntN(len(hosts))]
	c.breakServer("cut the way to "+to+" from", s, func() {
		c.w.net.Drop(s.host, to)
	}, func() { c.w.net.Mend(s.host, to) })
}

// recover ends all faults. It expects a leader within 10 election timeouts. Within another minute, every server must
// have all acknowledged entries.
func (c *chaos) recover() {
	w := c.w
	w.t.Helper()
	c.say("recover")
	w.net.Lose(0, 0)
	w.net.Heal()
	c.mend(time.Now().Add(time.Hour))
	took := w.eventually(10*electionTimeout, "L1: a leader of a healed majority", func() bool { return w.leads() != nil })
	w.t.Logf("a leader %s after all faults had ended", took)
	w.eventually(time.Minute, "S4: every server that runs has what was acknowledged", func() bool {
		for _, s := range w.servers {
			if s.state().Index < w.history.last().Index {
				return false
			}
		}
		return true
	})
	for _, s := range w.servers {
		s.disk.Slow(0)
	}
}

const electionTimeout = time.Second // the default of cluster.RaftConfig
