package agent

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// unsure is a runtime in memory. While its field blind is true, it can't tell whether its instances run.
type unsure struct {
	*memory
	blind bool        // guarded by mu
	named []driver.ID // ids that Adopt lists as unclear although they have no task
	// If immortal is true, End fails. If unread is true, Launched finds no spec. mu guards both fields.
	immortal, unread bool
}

func (u *unsure) see(clearly bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.blind = !clearly
}

func (u *unsure) Adopt(ctx context.Context) ([]Task, []driver.ID, error) {
	tasks, _, err := u.memory.Adopt(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.blind {
		return tasks, nil, err
	}
	return nil, append(sortedKeys(u.tasks), u.named...), err
}

func (u *unsure) Readopt(_ context.Context, id driver.ID) (Task, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.blind {
		return nil, errors.New("it is dark")
	}
	if t := u.tasks[id]; t != nil {
		return t, nil
	}
	return nil, nil
}

// unsure makes later agents of the bubble use a runtime that can be blind, and returns that runtime.
func (b *bubble) unsure() *unsure {
	u := &unsure{memory: b.mem}
	b.cfg.Runtime = u
	return u
}

// rewrite changes the journal's entry of an instance while no agent runs.
func (b *bubble) rewrite(id model.InstanceID, change func(*entry)) {
	b.t.Helper()
	r, err := openRecords(filepath.Join(b.cfg.DataDir, "journal"), b.cfg.Log)
	must(b.t, err)
	e := r.entries()[id]
	change(&e)
	must(b.t, r.save(id, e))
	must(b.t, r.Close())
}

// An instance that stopped or failed according to the journal keeps that state while the agent can't tell whether the
// program runs. The instance also keeps the state once the agent can tell.
func TestUnclearStaysOver(t *testing.T) {
	for _, tt := range []struct {
		name     string
		observed model.Observed
		reason   string
		left     bool // the runtime still has the exited task
	}{
		{"stopped, something is left", model.ObservedStopped, model.ReasonEnded, true},
		{"stopped, nothing is left", model.ObservedStopped, model.ReasonEnded, false},
		{"failed, something is left", model.ObservedFailed, "crash_loop", true},
		{"failed, nothing is left", model.ObservedFailed, "crash_loop", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				u := b.unsure()
				b.start()
				g := sh("")
				g.Volumes = []model.VolumeSpec{{Name: "data", Kind: "local", Path: "/data"}}
				id := b.run("web", g)
				b.pass(time.Second)
				b.want(id, model.ObservedReady, "")
				b.end()
				b.mem.task(id).finish(memExit(1))
				if !tt.left {
					delete(b.mem.tasks, driver.ID(id))
				}
				b.rewrite(id, func(e *entry) {
					e.Live = false
					e.Status.Observed, e.Status.Reason = tt.observed, tt.reason
					e.Status.Generation++
				})
				u.see(false)
				if !tt.left { // Adopt lists the instance as unclear although the runtime has no task of it
					u.named = append(u.named, driver.ID(id))
				}
				b.setDown(true)
				b.start()
				was := b.agent.home.records.entries()[id]
				same := func(when string) {
					t.Helper()
					b.pass(time.Minute)
					st, _ := b.agent.shared.reports.status(id)
					e := b.agent.home.records.entries()[id]
					if st.Observed != tt.observed || st.Reason != tt.reason || st.Generation != was.Status.Generation ||
						len(e.Failures) > 0 || e.Live {
						t.Errorf("%s it is %+v, in the journal %+v", when, st, e)
					}
					if n := b.mem.starts(); n != 1 {
						t.Errorf("%s %d were started", when, n)
					}
				}
				same("in the dark")
				if n := len(b.agent.shared.volumes.holders); n != 1 {
					t.Errorf("in the dark %d volumes are held", n)
				}
				u.see(true)
				same("afterwards")
				if n := len(b.agent.shared.volumes.holders); n != 0 {
					t.Errorf("afterwards %d volumes are held", n)
				}
			})
		})
	}
}

func (u *unsure) End(_ context.Context, id driver.ID) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.immortal {
		return errors.New("it can't be killed")
	}
	u.blind = false
	u.tasks[id].finish(driver.Exit{Reason: driver.ReasonShimLost, Code: -1, EndedAt: time.Now()})
	return nil
}

// dark runs a group, edited by change, until its instance is ready. Then it starts a new agent that can't tell whether
// the program runs.
func (b *bubble) dark(change func(*model.GroupSpec)) (*unsure, model.InstanceID) {
	b.t.Helper()
	u := b.unsure()
	b.start()
	g := sh("")
	g.Stop = model.StopSpec{DrainDelay: 2 * model.Second, Grace: 7 * model.Second}
	change(&g)
	id := b.run("web", g)
	b.pass(time.Second)
	b.want(id, model.ObservedReady, "")
	b.end()
	u.see(false)
	b.start()
	b.pass(time.Second)
	b.want(id, model.ObservedUnready, "not_adopted: it is dark")
	return u, id
}

func asIs(*model.GroupSpec) {}

// While it is unclear whether an instance runs, the agent still follows the servers' orders for the instance. The agent
// reports a drain, and kills any remaining process after the grace. It also kills the process if the servers order to
// stop the instance, or no longer assign it.
func TestUnclearIsEnded(t *testing.T) {
	t.Run("drain", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			_, id := b.dark(asIs)
			b.stop(id, nil)
			b.pass(100 * time.Millisecond)
			b.want(id, model.ObservedDraining, "not_adopted: it is dark")
			b.pass(8800 * time.Millisecond)
			b.want(id, model.ObservedDraining, "not_adopted: it is dark")
			if ended(b.mem.task(id)) {
				t.Error("killed within its grace")
			}
			b.pass(300 * time.Millisecond)
			b.want(id, model.ObservedStopped, "shim_lost")
		})
	})
	t.Run("stop", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			u, id := b.dark(asIs)
			u.mu.Lock()
			u.immortal = true
			u.mu.Unlock()
			b.stop(id, nil)
			b.pass(100 * time.Millisecond)
			b.alter(func(a *transport.Assignment) { a.Desired = model.DesiredStopped })
			b.pass(100 * time.Millisecond)
			b.want(id, model.ObservedDraining, "not_adopted: it is dark")
			u.mu.Lock()
			u.immortal = false
			u.mu.Unlock()
			b.pass(adoptRetry)
			b.want(id, model.ObservedStopped, "shim_lost")
		})
	})
	t.Run("not assigned", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			_, id := b.dark(func(g *model.GroupSpec) { g.Stop.DrainDelay, g.Stop.Grace = model.Second, model.Second })
			b.change(func(a *transport.Assignments) { a.Instances = nil })
			b.alter(func(*transport.Assignment) {})
			b.pass(2500 * time.Millisecond)
			if !ended(b.mem.task(id)) {
				t.Error("it runs on")
			}
			b.change(nil)
		})
	})
}

// The agent declines a preparation for a stop while it is unclear whether the program runs.
func TestUnclearDeclinesPreparation(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		u, id := b.dark(asIs)
		b.alter(func(a *transport.Assignment) { a.Prepare = 7 })
		b.pass(100 * time.Millisecond)
		if st, _ := b.agent.shared.reports.status(id); st.Hook == nil || st.Hook.OK || st.Hook.Seq != 7 {
			t.Errorf("the preparation: %+v", st.Hook)
		}
		b.alter(func(a *transport.Assignment) { a.Prepare = 0 })
		u.see(true)
		b.pass(adoptRetry)
		b.want(id, model.ObservedReady, "")
		if n := b.mem.starts(); n != 1 {
			t.Errorf("%d were started", n)
		}
	})
}

// An agent that drains its node before it exits also stops instances of which it can't tell whether they run.
func TestShutdownDrainsUnclear(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		_, id := b.dark(asIs)
		b.end()
		b.cfg.OnShutdown = ShutdownDrain
		b.cfg.Drain = drainBy(func() { b.stop(id, nil) })
		b.start()
		b.end()
		if b.mem.running() != 0 {
			t.Error("it still runs")
		}
		b.want(id, model.ObservedStopped, "shim_lost")
	})
}

func (u *unsure) Launched(id driver.ID) (driver.Spec, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, spec := range u.started {
		if spec.ID == id && !u.unread {
			return spec, true
		}
	}
	return driver.Spec{}, false
}

// The agent reports an instance that may run but is not in the journal. The report has the instance's group and slot if
// the runtime still has the spec of its launch. An instance that is known to have stopped is not reported.
func TestUnclearWithoutJournal(t *testing.T) {
	for name, unread := range map[string]bool{"launch can be read": false, "launch can't be read": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				u := b.unsure()
				u.unread = unread
				b.start()
				g := sh("")
				g.Count = 2
				id := b.place(b.submit("web", g), 1, b.node(), nil)
				stopped := b.run("gone", sh(""))
				b.pass(time.Second)
				b.want(stopped, model.ObservedReady, "")
				b.stop(stopped, nil)
				b.pass(time.Minute)
				b.want(stopped, model.ObservedStopped, "")
				b.end()
				r, err := openRecords(filepath.Join(b.cfg.DataDir, "journal"), b.cfg.Log)
				must(t, err)
				r.remove(id)
				if !r.hasStopped(stopped) {
					t.Fatal("it was not forgotten")
				}
				must(t, r.Close())
				u.see(false)
				b.setDown(true)
				b.start()
				want := model.Holding{ID: id, Group: "web/g", Slot: 1}
				if unread {
					want = model.Holding{ID: id}
				}
				if got := b.agent.supervisors.holds(); len(got) != 1 || got[0].ID != want.ID || got[0].Group != want.Group ||
					got[0].Slot != want.Slot {
					t.Errorf("holds %+v, want %+v", got, want)
				}
				u.see(true)
				b.setDown(false)
				b.pass(time.Minute)
				b.want(id, model.ObservedReady, "")
			})
		})
	}
}
