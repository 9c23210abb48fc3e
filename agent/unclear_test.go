package agent

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
)

// unsure is a memory that can't tell what became of what is in it, as long as it is blind.
type unsure struct {
	*memory
	blind bool        // under mu
	named []driver.ID // what it can't tell of beside its tasks, of which nothing is left
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

// unsure gives the bubble a runtime that can be blind.
func (b *bubble) unsure() *unsure {
	u := &unsure{memory: b.mem}
	b.cfg.Runtime = u
	return u
}

// rewrite changes what the journal says of an instance while no agent runs.
func (b *bubble) rewrite(id fsm.InstanceID, change func(*entry)) {
	b.t.Helper()
	r, err := openRecords(filepath.Join(b.cfg.DataDir, "journal"), b.cfg.Log)
	must(b.t, err)
	e := r.entries()[id]
	change(&e)
	must(b.t, r.save(id, e))
	must(b.t, r.Close())
}

// What has stopped for good, or failed, stays so while it can't be told whether something of it runs, and afterwards.
func TestUnclearStaysOver(t *testing.T) {
	for _, tt := range []struct {
		name     string
		observed fsm.Observed
		reason   string
		left     bool // an ended task is found
	}{
		{"stopped, something is left", fsm.ObservedStopped, fsm.ReasonEnded, true},
		{"stopped, nothing is left", fsm.ObservedStopped, fsm.ReasonEnded, false},
		{"failed, something is left", fsm.ObservedFailed, "crash_loop", true},
		{"failed, nothing is left", fsm.ObservedFailed, "crash_loop", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				u := b.unsure()
				b.start()
				g := sh("")
				g.Volumes = []fsm.VolumeSpec{{Name: "data", Kind: "local", Path: "/data"}}
				id := b.run("web", g)
				b.pass(time.Second)
				b.want(id, fsm.ObservedReady, "")
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
				if !tt.left { // it is named all the same
					u.named = append(u.named, driver.ID(id))
				}
				b.setDown(true)
				b.start()
				was := b.agent.home.records.entries()[id]
				same := func(when string) {
					t.Helper()
					b.pass(time.Minute)
					st, _ := b.agent.shop.reports.status(id)
					e := b.agent.home.records.entries()[id]
					if st.Observed != tt.observed || st.Reason != tt.reason || st.Generation != was.Status.Generation || len(e.Failures) > 0 || e.Live {
						t.Errorf("%s it is %+v, in the journal %+v", when, st, e)
					}
					if n := b.mem.starts(); n != 1 {
						t.Errorf("%s %d were started", when, n)
					}
				}
				same("in the dark")
				if n := len(b.agent.shop.volumes.holders); n != 1 {
					t.Errorf("in the dark %d volumes are held", n)
				}
				u.see(true)
				same("afterwards")
				if n := len(b.agent.shop.volumes.holders); n != 0 {
					t.Errorf("afterwards %d volumes are held", n)
				}
			})
		})
	}
}
