package agent

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// L2: after a snapshot was saved, an instance became ready or stopped, and the servers acknowledged the agent's report.
// When the snapshot is restored, the agent reports the instance's state again.
func TestReportsBehindARestore(t *testing.T) {
	for name, stop := range map[string]bool{"ready": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.start()
				group := b.submit("web", sh(""))
				id := b.place(group, 0, b.node(), nil)
				want := model.ObservedReady
				if stop {
					b.pass(time.Second)
					b.stop(id, nil)
					want = model.ObservedStopped
				}
				var saved bytes.Buffer
				must(t, fsm.WriteSnapshot(&saved, b.m.State()))
				b.pass(time.Second)
				b.want(id, want, "")
				must(t, b.m.Restore(&saved))
				b.apply(&fsm.RestoreMark{})
				if got := b.instance(id).Status.Observed; got == want {
					t.Fatalf("the snapshot has it %s already", got)
				}
				b.pass(5 * time.Second)
				b.want(id, want, "")
			})
		})
	}
}

// Servers are restored from an old snapshot. After the snapshot was saved, one instance was stopped, another was
// placed, and the agent registered again up to twice. The log continues either after the newest entry, as when a
// running cluster is restored, or after the snapshot, as in a recovery. The test does all this twice with the same
// snapshot.
func TestRestoreOfAnOldSnapshot(t *testing.T) {
	for _, tt := range []struct {
		name      string
		registers int
		recovered bool
	}{
		{"restored", 0, false},
		{"restored after a registration", 1, false},
		{"restored after two registrations", 2, false},
		{"recovered", 0, true},
		{"recovered after a registration", 1, true},
		{"recovered after two registrations", 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.start()
				group := b.submit("web", sh(""))
				first := b.place(group, 0, b.node(), nil)
				b.pass(time.Second)
				var saved bytes.Buffer
				must(t, fsm.WriteSnapshot(&saved, b.m.State()))
				holder := first
				for range 2 {
					b.stop(holder, nil)
					for range tt.registers {
						b.agent.session.renew()
						b.pass(3 * time.Second)
					}
					second := b.place(group, 0, b.node(), nil)
					b.pass(time.Second)
					b.want(second, model.ObservedReady, "")
					old := b.m.State()
					restored, err := fsm.ReadSnapshot(bytes.NewReader(saved.Bytes()))
					must(t, err)
					if !tt.recovered {
						mark := fsm.Entry{Format: model.CurrentFormat, At: old.Now, Actor: model.ActorLeader,
							Groups: [][]fsm.Command{{&fsm.RestoreMark{}}}}
						for restored, _ = restored.Apply(old.Index+1, 1, mark); restored.Incarnation <= old.Incarnation; {
							restored, _ = restored.Apply(restored.Index+1, 1, mark)
						}
					}
					b.m.Replace(restored)
					if tt.recovered {
						b.apply(&fsm.RestoreMark{})
					}
					b.pass(5 * time.Second)
					b.want(first, model.ObservedStopped, model.ReasonEnded)
					if b.mem.running() != 1 || ended(b.mem.task(second)) {
						t.Errorf("%d programs run before it is confirmed, want the one that the state does not know: what has stopped "+
							"never starts again", b.mem.running())
					}
					b.apply(&fsm.RestoreMark{Confirm: true})
					b.pass(5 * time.Second)
					holder = b.place(group, 0, b.node(), nil)
					b.pass(time.Second)
					b.agrees(holder)
				}
			})
		})
	}
}

// A node that was forgotten while it was cut off registers again, and then runs instances.
func TestForgottenNodeReturns(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.start()
		n, _ := b.m.State().Nodes.Get(b.node())
		b.setDown(true)
		b.apply(&fsm.NodeHealth{ID: n.ID, Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch})
		b.apply(&fsm.NodeForget{ID: n.ID})
		b.setDown(false)
		b.pass(2 * time.Minute) // the long poll from before has ended
		b.agrees(b.run("web", sh("")))
	})
}

// agrees checks that the node is known and eligible, that the given instance is ready and the only one that runs, and
// that a change of this instance reaches the state.
func (b *bubble) agrees(id model.InstanceID) {
	b.t.Helper()
	b.pass(time.Second)
	state := b.m.State()
	n, ok := state.Nodes.Get(b.node())
	if !ok {
		b.t.Fatal("the node is not known")
	}
	if refusal := state.Eligible(n); refusal != nil {
		b.t.Errorf("the node is not eligible: %v", refusal)
	}
	if b.mem.running() != 1 {
		b.t.Errorf("%d programs run, want 1", b.mem.running())
	}
	b.want(id, model.ObservedReady, "")
	before := b.instance(id).Status.Generation
	b.mem.task(id).finish(fencedExit())
	b.pass(time.Minute)
	said, _ := b.agent.shared.reports.status(id)
	if got := b.instance(id).Status; got.Observed != said.Observed || got.Generation <= before {
		b.t.Errorf("it ended: the agent says %s, the state %s", said.Observed, got.Observed)
	}
}

// After a confirmed restore, an unknown instance that must not run twice continues in its slot until an operator stops
// it. Meanwhile no other instance can be placed in that slot. An unknown instance that may run twice is stopped.
func TestUnknownHolderGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.start()
		alone := sh("")
		alone.Replacement.Identity = "same"
		group := b.submit("one", alone)
		var saved bytes.Buffer
		must(t, fsm.WriteSnapshot(&saved, b.m.State()))
		holder := b.place(group, 0, b.node(), nil)
		other := b.run("web", sh(""))
		b.pass(time.Second)
		must(t, b.m.Restore(&saved))
		b.apply(&fsm.RestoreMark{})
		b.pass(5 * time.Second)
		b.apply(&fsm.RestoreMark{Confirm: true})
		b.pass(5 * time.Second)
		if ended(b.mem.task(holder)) || !ended(b.mem.task(other)) {
			t.Fatalf("the holder has ended: %v, what any number may run of: %v", ended(b.mem.task(holder)),
				ended(b.mem.task(other)))
		}
		next := &fsm.InstancePlace{ID: "next", Group: group, Version: 1, Node: b.node(), Cause: model.CauseScaleUp}
		if refusal := b.try(next); refusal == nil {
			t.Fatal("the slot is filled beside its holder")
		}
		b.apply(&fsm.InstanceStop{ID: holder, Cause: model.CauseUser})
		b.pass(15 * time.Second)
		if !ended(b.mem.task(holder)) {
			t.Fatal("a person's word does not end it")
		}
		b.apply(next)
		b.pass(time.Second)
		b.agrees("next")
	})
}

// The snapshot lacks a node, and the node's agent registers only after the restore was confirmed. An instance on that
// node that must not run twice continues, and can be adopted.
func TestHolderOnANodeThatARestoreLost(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		alone := sh("")
		alone.Replacement.Identity = "same"
		group := b.submit("one", alone)
		var saved bytes.Buffer
		must(t, fsm.WriteSnapshot(&saved, b.m.State()))
		b.start()
		holder := b.place(group, 0, b.node(), nil)
		other := b.run("web", sh(""))
		b.pass(time.Second)
		must(t, b.m.Restore(&saved))
		b.apply(&fsm.RestoreMark{}, &fsm.RestoreMark{Confirm: true})
		b.pass(time.Minute)
		if ended(b.mem.task(holder)) || !ended(b.mem.task(other)) {
			t.Fatalf("the holder has ended: %v, what any number may run of: %v", ended(b.mem.task(holder)),
				ended(b.mem.task(other)))
		}
		b.apply(&fsm.InstanceAdopt{ID: holder})
		b.pass(5 * time.Second)
		b.agrees(holder)
	})
}

// An instance that is adopted after a restore is not started again. The agent reports the instance's state, and the
// servers expect the volume epoch that the instance's data has.
func TestAdoptedInstanceGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.start()
		alone := sh("")
		alone.Volumes = []model.VolumeSpec{{Name: "rows", Kind: model.VolumeLocal, Path: filepath.Join(t.TempDir(), "rows")}}
		group := b.submit("one", alone)
		var saved bytes.Buffer
		must(t, fsm.WriteSnapshot(&saved, b.m.State()))
		holder := b.place(group, 0, b.node(), nil)
		b.pass(time.Second)
		b.want(holder, model.ObservedReady, "")
		task, data := b.mem.task(holder), b.volume(group, "rows").Made
		must(t, b.m.Restore(&saved))
		b.apply(&fsm.RestoreMark{})
		b.pass(5 * time.Second)
		b.apply(&fsm.RestoreMark{Confirm: true}, &fsm.InstanceAdopt{ID: holder})
		b.pass(5 * time.Second)
		if b.mem.task(holder) != task {
			t.Error("it was started again")
		}
		if v := b.volume(group, "rows"); v.Made != data || v.Home != b.node() {
			t.Errorf("its data is of epoch %d, the volume %+v", data, v)
		}
		b.agrees(holder)
	})
}

func (b *bubble) volume(group model.GroupID, name string) fsm.Volume {
	b.t.Helper()
	state := b.m.State()
	v, ok := state.Volumes.Get(model.NewVolumeID(group, 0, name))
	if !ok {
		b.t.Fatalf("there is no volume %s of %s", name, group)
	}
	return *v
}

// Instances of jobs that a restored state lacks are stopped with their stop signal and their grace, even if they must
// not run twice.
func TestUnknownInstancesHaveTheirGrace(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.start()
		var saved bytes.Buffer
		must(t, fsm.WriteSnapshot(&saved, b.m.State()))
		alone := sh("")
		alone.Replacement.Identity = "same"
		one := b.place(b.submit("one", alone), 0, b.node(), nil)
		web := b.run("web", sh(""))
		b.pass(time.Second)
		tasks := map[model.InstanceID]*memTask{one: b.mem.task(one), web: b.mem.task(web)}
		must(t, b.m.Restore(&saved))
		b.apply(&fsm.RestoreMark{})
		b.pass(5 * time.Second)
		b.apply(&fsm.RestoreMark{Confirm: true})
		b.pass(5 * time.Second)
		for id, task := range tasks {
			if exit, ok := task.Exit(); !ok || exit.Reason != driver.ReasonStopped {
				t.Errorf("instance %s ended by %q, %v; want %q", id, exit.Reason, ok, driver.ReasonStopped)
			}
		}
	})
}

// An instance that must not run twice and is no longer assigned to the node is killed without grace if its slot may
// have another holder.
func TestForgottenHolderIsKilled(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.start()
		alone := sh("")
		alone.Replacement.Identity = "same"
		id := b.place(b.submit("one", alone), 0, b.node(), nil)
		b.pass(time.Second)
		task := b.mem.task(id)
		b.agent.supervisors.dismiss(b.agent.supervisors.member(id), false)
		b.pass(5 * time.Second)
		if exit, ok := task.Exit(); !ok || exit.Reason != driver.ReasonKilled {
			t.Errorf("it ended by %q, %v; want %q", exit.Reason, ok, driver.ReasonKilled)
		}
	})
}
