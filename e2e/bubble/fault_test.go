package bubble

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/model"
)

// faults describes a random test of a small cluster. The test calls random functions from things while labels are
// written (S4).
type faults struct {
	raft   cluster.RaftConfig
	during time.Duration
	things func(*chaos) []func()
}

func (f faults) run(t *testing.T, random *rand.Rand) {
	t.Helper()
	inBubble(t, options{nodes: 4, seed: random.Uint64(), raft: f.raft}, func(t *testing.T, w *world) {
		for _, s := range w.servers {
			s.disk.Slow(everyWrite)
		}
		web := group("http", 6, 64*mib)
		web.Budget = &model.BudgetSpec{MinReady: amount(4)}
		w.run("web", web)
		alone := group("alone", 2, 64*mib)
		alone.Exclusive = &model.ExclusiveSpec{Lease: 10 * model.Second}
		w.run("alone", alone)
		c := chaos{w: w, random: random}
		l := w.keep(3, random)
		c.run(f.during, f.things(&c)...)
		c.recover()
		l.stop()
		c.settle(map[model.GroupID]int{"web/http": 6, "alone/alone": 2})
	})
}

// shortLog makes servers take snapshots often and keep few older entries, so that a server that was away for a moment
// needs a snapshot.
var shortLog = cluster.RaftConfig{SnapshotInterval: 2 * time.Second, SnapshotThreshold: 16, TrailingLogs: 64}

// S4, S5, S8, L1: servers lose power while they write, one alone or all at once, and sometimes a disk is emptied. The
// state of every later leader has everything that was acknowledged.
func TestPowerLosses(t *testing.T) {
	eachRandom(t, 2, func(t *testing.T, random *rand.Rand) {
		faults{shortLog, time.Minute, func(c *chaos) []func() {
			return []func(){c.loseServer, c.loseServer, c.loseAll, c.restartServer, c.wipeServer, c.killLeader, c.release}
		}}.run(t, random)
	})
}

// S4, S5, L1: disks hang, break, fill up and are slow. A server that can't write exits or steps aside, and the others
// continue.
func TestDiskFaults(t *testing.T) {
	eachRandom(t, 1, func(t *testing.T, random *rand.Rand) {
		faults{cluster.RaftConfig{}, 90 * time.Second, func(c *chaos) []func() {
			return []func(){c.hangDisk, c.breakDisk, c.fillDisk, c.fillDisk, c.fullDisk, c.slowDisk,
				c.pauseServer, c.powerOff, c.evict}
		}}.run(t, random)
	})
}

// S2, S4, S5, S13 and L1 hold while links lose, delay, reorder and repeat packets, or work in one direction only.
func TestNetworkFaults(t *testing.T) {
	eachRandom(t, 1, func(t *testing.T, random *rand.Rand) {
		faults{cluster.RaftConfig{}, 90 * time.Second, func(c *chaos) []func() {
			return []func(){c.shape, c.shape, c.shape, c.lossy, c.cutOneWay, c.cutServer, c.cutNode,
				c.pauseServer, c.drain, c.uncordon}
		}}.run(t, random)
	})
}

// All faults together break no invariant, and the cluster recovers (L1).
func TestEveryFault(t *testing.T) {
	eachRandom(t, 1, func(t *testing.T, random *rand.Rand) {
		faults{shortLog, 2 * time.Minute, func(c *chaos) []func() {
			return []func(){
				c.loseServer, c.loseAll, c.restartServer, c.wipeServer, c.killServer, c.killLeader, c.cutServer,
				c.hangDisk, c.breakDisk, c.fillDisk, c.fullDisk, c.slowDisk, c.pauseServer,
				c.shape, c.lossy, c.cutOneWay, c.cutNode, c.powerOff, c.killAgent,
				c.drain, c.uncordon, c.evict, c.release,
			}
		}}.run(t, random)
	})
}
