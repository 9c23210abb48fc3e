package bubble

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// Nodes are drained, instances are evicted and new versions are submitted at random. Meanwhile servers are killed and
// cut off, and packets get lost. No voluntary stop leaves fewer instances than a budget demands, neither in the state
// after any entry nor among the programs that really run. A budget's rate is kept even if the leader changes.
// proves B13, S3, S5, S7
func TestBudgetsAcrossLeaders(t *testing.T) {
	eachRandom(t, 1, func(t *testing.T, random *rand.Rand) {
		inBubble(t, options{nodes: 5}, func(t *testing.T, w *world) {
			web := group("http", 10, 64*mib)
			web.Budget = &model.BudgetSpec{MinReady: amount(8), Rate: &model.RateSpec{Max: 2, Window: 3 * model.Second}}
			tight := group("first", 6, 64*mib) // each stop uses up the budget until its replacement is ready
			tight.Budget = &model.BudgetSpec{MaxDown: amount(1)}
			tight.Eviction.Order = model.OrderStopFirst
			slow := group("slow", 6, 64*mib)
			slow.Budget = &model.BudgetSpec{MinReady: amount(5)}
			slow.Env = map[string]string{"SLOW": "1500ms"}
			w.truth.hold(w.run("web", web), 8)
			w.truth.hold(w.run("tight", tight), 5)
			w.truth.hold(w.run("slow", slow), 5)
			c := chaos{w: w, random: random}
			c.run(90*time.Second, c.drain, c.drain, c.uncordon, c.evict, c.evict, c.release, c.killServer,
				c.killLeader, c.cutServer, c.lossy)
			c.settle(map[model.GroupID]int{"web/http": 10, "tight/first": 6, "slow/slow": 6})
		})
	})
}

// Machines lose power, agents die and return, servers die, and nodes and servers are cut off, at random and while nodes
// are drained. All checks that doc.go lists must succeed. Two instances of an exclusive slot never run at once (S2). At
// the end, everything that is wanted runs once, and nothing more is written.
func TestRandomFaults(t *testing.T) {
	eachRandom(t, 1, func(t *testing.T, random *rand.Rand) {
		inBubble(t, options{nodes: 6}, func(t *testing.T, w *world) {
			web := group("http", 12, 64*mib)
			web.Budget = &model.BudgetSpec{MinReady: amount(9)}
			w.run("web", web)
			w.run("big", group("big", 3, 2<<30))
			alone := group("alone", 2, 64*mib)
			alone.Exclusive = &model.ExclusiveSpec{Lease: 10 * model.Second}
			w.run("alone", alone)
			c := chaos{w: w, random: random}
			c.run(2*time.Minute, c.drain, c.uncordon, c.evict, c.release, c.killServer, c.killLeader, c.cutServer, c.lossy,
				c.powerOff, c.killAgent, c.cutNode, c.cutNode)
			c.settle(map[model.GroupID]int{"web/http": 12, "big/big": 3, "alone/alone": 2})
		})
	})
}
