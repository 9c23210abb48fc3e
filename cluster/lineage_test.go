package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// forget removes servers from the rig's list.
func (r *rig) forget(servers ...*rigServer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range servers {
		delete(r.servers, s.host)
	}
}

// recoverFirst runs three servers and crashes them. It recovers the first one, and starts that server together with two
// new ones. join edits the configuration of these three. recoverFirst returns the two servers that were left behind.
func (r *rig) recoverFirst(join func(*Config)) (left []*rigServer) {
	r.t.Helper()
	r.threeServersRunning(nil)
	for i := range 5 {
		r.mustRegister(fmt.Sprint("n", i))
	}
	r.agree(5 * time.Second)
	all := r.all()
	for _, s := range all {
		s.crash()
	}
	if _, err := Recover(RecoverConfig{DataDir: all[0].dir, Cluster: "test", Address: host(1) + ":7640"}); err != nil {
		r.t.Fatal(err)
	}
	r.forget(all[1:]...)
	r.net.Heal()
	r.start(1, join)
	r.start(4, join)
	r.start(5, join)
	eventually(r.t, time.Minute, "three voters", func() bool { return len(r.leader(time.Minute).voters()) == 3 })
	r.mustRegister("recovered")
	return all[1:]
}

// The servers that a recovery left behind start again. While they are cut off from the recovered ones, they elect a
// leader. Once they reach the recovered ones, they stop with an error that gives the reason, and don't start again.
func TestLeftServersReturn(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(4) {
		t.Run(fmt.Sprintf("seed=%d", seed+i), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t)
				random := rand.New(rand.NewPCG(seed+i, 0))
				join := func(c *Config) { c.Gossip.Join = []string{host(1) + ":7642", host(4) + ":7642"} }
				if random.IntN(2) == 0 { // old and new servers know each other only from the log, not by gossip
					join = func(c *Config) { c.Gossip.Join = []string{host(4) + ":7642"} }
				}
				left := r.recoverFirst(join)
				news := r.running()
				for _, n := range news {
					for i := 2; i <= 3; i++ {
						r.net.Isolate(n.host, host(i))
					}
				}
				var olds []*rigServer
				for i, s := range left {
					olds = append(olds, r.start(i+2, func(c *Config) {
						c.DataDir = s.dir
						c.Gossip.Join = []string{host(2) + ":7642", host(3) + ":7642"}
					}))
				}
				r.forget(olds...)
				eventually(t, time.Minute, "the old servers elect one", func() bool {
					return olds[0].Term() > 0 || olds[1].Term() > 0
				})
				time.Sleep(time.Duration(random.IntN(20_000)) * time.Millisecond)
				r.net.Heal()
				healed := time.Now()
				acknowledged := 0
				eventually(t, time.Minute, "the old servers end", func() bool {
					for _, o := range olds {
						ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
						if o.Term() > 0 && o.register(ctx, fmt.Sprint("stale", acknowledged)) == nil {
							acknowledged++
						}
						cancel()
					}
					return olds[0].failure() != nil && olds[1].failure() != nil
				})
				t.Logf("ended %s after the network healed; %d writes were acknowledged meanwhile", time.Since(healed), acknowledged)
				for i, o := range olds {
					<-o.done
					var refusal *model.Error
					if !errors.As(o.err, &refusal) || refusal.Code != model.CodeConflict ||
						!strings.Contains(refusal.Message, "recovered without this server") {
						t.Errorf("%s ended with %v", o.host, o.err)
					}
					again := r.open(i+7, func(c *Config) { c.DataDir = left[i].dir })
					if again.cancel != nil || !strings.Contains(again.err.Error(), "recovered without this server") {
						t.Errorf("%s started again: %v", o.host, again.err)
					}
				}
				r.mustRegister("after")
				for _, n := range news {
					if err := n.failure(); err != nil {
						t.Errorf("%s failed: %v", n.host, err)
					}
				}
			})
		})
	}
}

// After a recovery, the recovered servers are lost too. A server that the recovery left behind can be recovered in
// turn, but only if the operator names the lost lineage. The new lineage replaces the lost one.
func TestRecoverSuperseded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		join := func(c *Config) { c.Gossip.Join = []string{host(1) + ":7642", host(2) + ":7642"} }
		left := r.recoverFirst(join)
		old := r.start(2, func(c *Config) { c.DataDir = left[0].dir; join(c) })
		r.forget(old)
		eventually(t, time.Minute, "S4: the server that was left behind ends", func() bool { return old.failure() != nil })
		<-old.done
		first := r.leader(time.Minute).History().Lineage()
		news := r.running()
		for _, n := range news {
			n.crash()
		}
		r.forget(news...)
		cfg := RecoverConfig{DataDir: left[0].dir, Cluster: "test", Address: host(2) + ":7640"}
		for _, wrong := range []string{"", "another"} {
			cfg.Supersedes = wrong
			if _, err := Recover(cfg); err == nil || !strings.Contains(err.Error(), first) {
				t.Fatalf("recovered with --supersedes %q: %v", wrong, err)
			}
		}
		cfg.Supersedes = first
		if _, err := Recover(cfg); err != nil {
			t.Fatal(err)
		}
		r.net.Heal()
		again := r.start(2, func(c *Config) { c.DataDir = left[0].dir; join(c) })
		r.mustRegister("second")
		if h := again.History(); len(h.Lineages) != 2 || h.Lineages[0] != first {
			t.Errorf("history %s, want %s and a new one", h, first)
		}
		returned := r.start(1, func(c *Config) { c.DataDir = news[0].dir; join(c) })
		r.forget(returned)
		eventually(t, time.Minute, "the superseded server ends", func() bool { return returned.failure() != nil })
	})
}

// A recovered server is lost before any other server knew its lineage. Agents may follow the lost lineage already, so
// the operator can still name it in the next recovery, and the new lineage replaces it.
func TestRecoverSupersedesUnmet(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		r.mustRegister("n1")
		var saved bytes.Buffer
		if err := r.leader(time.Minute).Save(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		all := r.all()
		eventually(t, 10*time.Second, "it knows its cluster", func() bool { return all[0].ClusterID() != "" })
		for _, s := range all {
			s.crash()
		}
		lost := model.History{Cluster: all[0].ClusterID(), Lineages: []string{"0123456789abcdef"}}
		for name, cfg := range map[string]RecoverConfig{
			"a server that was left": {DataDir: all[1].dir},
			"the same snapshot":      {DataDir: filepath.Join(t.TempDir(), "data"), Snapshot: &saved},
		} {
			cfg.Cluster, cfg.Address, cfg.Supersedes = "test", host(2)+":7640", lost.Lineage()
			if _, err := Recover(cfg); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			d, err := openDataDir(cfg.DataDir, "test", true)
			if err != nil {
				t.Fatal(err)
			}
			if !d.history().Replaces(lost) || !d.history().Replaces(model.History{Cluster: lost.Cluster}) {
				t.Errorf("%s: %s does not replace %s", name, d.history(), lost)
			}
		}
		for _, wrong := range []string{"L1,x", lost.Lineage() + "-5000", lost.Lineage() + "-"} {
			if _, err := Recover(RecoverConfig{DataDir: all[2].dir, Cluster: "test", Address: host(3) + ":7640",
				Supersedes: wrong}); !errors.Is(err, &model.Error{Code: model.CodeInvalid}) {
				t.Errorf("superseded %s, a lineage that can't be: %v", wrong, err)
			}
		}
	})
}

// A server whose recovery was interrupted does not start. With the new lineage and the old configuration, the server
// would make the other servers stop. A second run of Recover completes the recovery.
func TestRecoverInterrupted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		first := r.all()[0]
		for _, s := range r.all() {
			s.crash()
		}
		mark := filepath.Join(first.dir, fileRecovering)
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if again := r.open(1, nil); again.cancel != nil || !strings.Contains(again.err.Error(), "interrupted") {
			t.Fatalf("it started: %v", again.err)
		}
		cfg := RecoverConfig{DataDir: first.dir, Cluster: "test", Address: host(1) + ":7640"}
		if _, err := Recover(cfg); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(mark); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the mark is still there: %v", err)
		}
		r.forget(r.all()[1:]...)
		r.net.Heal()
		r.start(1, nil)
		r.mustRegister("after")
	})
}

// A server is recovered from a state that was saved after an earlier recovery. The new lineage replaces the lineage of
// the earlier recovery, even if an operator restored an older state between that recovery and the save.
func TestLineageInSnapshots(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		join := func(c *Config) { c.Gossip.Join = []string{host(1) + ":7642"} }
		r.recoverFirst(join)
		leader := r.leader(time.Minute)
		var old bytes.Buffer
		before := leader.machine.State()
		before.Cluster.Lineages = ""
		if err := fsm.WriteSnapshot(&old, before); err != nil {
			t.Fatal(err)
		}
		if err := leader.Restore(t.Context(), &old); err != nil {
			t.Fatal(err)
		}
		var saved bytes.Buffer
		if err := leader.Save(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "data")
		if _, err := Recover(RecoverConfig{DataDir: dir, Cluster: "test", Address: host(9) + ":7640",
			Snapshot: &saved}); err != nil {
			t.Fatal(err)
		}
		d, err := openDataDir(dir, "test", true)
		if err != nil {
			t.Fatal(err)
		}
		if !d.history().Replaces(leader.History()) {
			t.Errorf("%s does not replace %s", d.history(), leader.History())
		}
	})
}
