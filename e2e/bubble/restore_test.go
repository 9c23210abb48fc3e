package bubble

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/testbed/invariant"
	"github.com/outspan/outspan/model"
)

// S2, L2: an operator restores a snapshot after much has changed: agents have registered again, machines were off,
// instances were evicted, updated and moved, and servers have died. Until the restore is confirmed, no program is asked
// to stop because of it. Within convergesWithin after the confirmation, every node is online and the state shows what
// really runs.
func TestOldSnapshots(t *testing.T) {
	eachRandom(t, 2, func(t *testing.T, random *rand.Rand) {
		inBubble(t, options{nodes: 5, seed: random.Uint64(), raft: shortLog}, func(t *testing.T, w *world) {
			web := group("http", 6, 64*mib)
			web.Budget = &model.BudgetSpec{MinReady: amount(4)}
			w.run("web", web)
			leased := group("leased", 2, 64*mib)
			leased.Exclusive = &model.ExclusiveSpec{Lease: 10 * model.Second}
			w.run("leased", leased)
			single := group("single", 1, 64*mib)
			single.Role, single.Env = model.RoleSingleton, map[string]string{"ONE": "1"}
			w.run("single", single)
			c := &chaos{w: w, random: random}
			before := []func(){c.evict, c.evict, c.release, c.drain, c.uncordon, c.killAgent, c.powerOff,
				c.killLeader, c.restartServer}
			c.run(time.Duration(random.IntN(20))*time.Second, before...)
			old := c.save()
			c.run(time.Minute, append(before, c.cutNode, c.loseServer, c.wipeServer)...)
			if random.IntN(2) == 0 {
				c.recover()
			}
			c.restoreSnapshot(old)
			c.unconfirmed(15 * time.Second)
			c.confirm()
			c.converge()
			c.settle(map[model.GroupID]int{"web/http": 6, "leased/leased": 2, "single/single": 1})
		})
	})
}

// save does what `outspan server snapshot save` does.
func (c *chaos) save() []byte {
	w := c.w
	w.t.Helper()
	var b bytes.Buffer
	w.eventually(time.Minute, "a snapshot is saved", func() bool {
		ctx, cancel := w.brief()
		defer cancel()
		b.Reset()
		return w.leader().cluster.Save(ctx, &b) == nil
	})
	c.say("save a snapshot at index %d", w.state().Index)
	return b.Bytes()
}

// restoreSnapshot does what `outspan server snapshot restore` does. If the outcome is unknown, it tries again, as an
// operator would.
func (c *chaos) restoreSnapshot(snapshot []byte) {
	w := c.w
	w.t.Helper()
	w.receipts.forget()
	w.eventually(2*time.Minute, "a snapshot is restored", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		c.mend(time.Now())
		leader := w.leads()
		if leader == nil {
			return false
		}
		c.before = w.state()
		err := leader.cluster.Restore(ctx, bytes.NewReader(snapshot))
		c.say("restore the snapshot: %v", err)
		return err == nil
	})
	w.eventually(time.Minute, "a leader of the restored state", func() bool {
		leader := w.leads()
		return leader != nil && leader.state().Unconfirmed
	})
}

// unconfirmed makes agents and servers die and return for a while, before the restore is confirmed. No program may be
// asked to stop because of the restore.
func (c *chaos) unconfirmed(during time.Duration) {
	w := c.w
	w.t.Helper()
	told, before := w.truth.toldToStop(), c.before
	c.run(during, c.killAgent, c.killLeader, c.restartServer, func() {})
	for id := range w.truth.toldToStop() {
		_, was := told[id]
		old, known := before.Instances.Get(id)
		row, _ := w.state().Instances.Get(id)
		switch {
		case was:
		case known && !old.Wanted(): // the stop was already in progress when the snapshot was restored
		case row != nil && row.Marks.StopCause == model.CauseNodeOffline:
			// the node went offline after the restore, and another instance replaces this one
		default:
			w.t.Errorf("instance %s was told to stop before the restore was confirmed: %+v", id, row)
		}
	}
}

// confirm does what `outspan settings resume restore` does.
func (c *chaos) confirm() {
	w := c.w
	w.t.Helper()
	w.eventually(2*time.Minute, "the restore is confirmed", func() bool {
		st := w.state()
		return !st.Unconfirmed || c.send("POST", "/v1/settings/resume", map[string]any{"what": "restore"}) == nil
	})
}

// convergesWithin limits how long the servers' state may differ from what runs, after a restore was confirmed and all
// faults have ended.
const convergesWithin = 30 * time.Second

// converge ends all faults. It expects that within convergesWithin every node is online and the state shows what really
// runs.
func (c *chaos) converge() {
	w := c.w
	w.t.Helper()
	w.net.Lose(0, 0)
	c.mend(time.Now().Add(time.Hour))
	w.net.Heal()
	w.leader()
	took := w.eventually(convergesWithin, "each instance's state is the truth", func() bool {
		c.decide()
		return w.diverged() == ""
	})
	w.t.Logf("what servers believe is what runs %s after everything was mended", took)
}

// decide stops the instances that the restored state does not know and that keep running until an operator stops them.
func (c *chaos) decide() {
	st := c.w.state()
	for _, n := range st.Nodes.All() {
		for _, h := range n.Restore.Unknown {
			if st.Keeps(h) {
				c.ask("/v1/instances/"+string(h.ID)+"/stop", nil)
			}
		}
	}
}

// diverged describes which nodes are not back online, and where the servers' state differs from the running programs.
// It returns "" if there is no difference.
func (w *world) diverged() string {
	var b strings.Builder
	st := w.state()
	for _, n := range w.nodes {
		if row := n.row(); row.Health != model.HealthOnline || row.Return.Recovering {
			fmt.Fprintf(&b, "node %s is %s, recovering %v\n", n.name, row.Health, row.Return.Recovering)
		}
	}
	alive := map[model.InstanceID]bool{}
	for _, id := range w.truth.running() {
		alive[id] = true
		if i, ok := st.Instances.Get(id); !ok || !invariant.Runs(i) && i.Status.Observed != model.ObservedDraining {
			fmt.Fprintf(&b, "instance %s runs, and its state does not say so\n", id)
		}
	}
	for id, i := range st.Instances.All() {
		if (invariant.Runs(i) || i.Status.Observed == model.ObservedDraining) && !alive[id] {
			fmt.Fprintf(&b, "instance %s is %s, and it does not run\n", id, i.Status.Observed)
		}
	}
	return b.String()
}
