package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/outspan/outspan/internal/erase"
	"github.com/outspan/outspan/model"
)

// adoptTimeout is how long Adopt waits for a shim that has not started its program yet. The earlier agent may have been
// killed right after it started the shim.
const adoptTimeout = 5 * time.Second

// Adopt finds the instances that an earlier agent left on this node, running or ended, and returns them sorted by id.
// It deletes state directories whose launch is missing or damaged, after it has killed their processes. The result
// unclear lists instances that may or may not run; call Readopt for them. CodeStateFailed means that the directory of
// all states can't be read. If ctx ends, Adopt returns the error of ctx. Call it once, right after New.
func (d *Driver) Adopt(ctx context.Context) (tasks []*Task, unclear []ID, err error) {
	entries, err := os.ReadDir(d.stateRoot())
	if err != nil {
		return nil, nil, model.Refuse(CodeStateFailed, "read state directory: %v", err)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		t, err := d.adoptEntry(ctx, e.Name(), adoptTimeout)
		if err != nil {
			d.cfg.Logger.Error("state directory can't be adopted", "name", e.Name(), "error", err)
			if ID(e.Name()).Valid() {
				unclear = append(unclear, ID(e.Name()))
				d.keepUnclear(ID(e.Name()))
			}
		}
		if t != nil {
			tasks = append(tasks, t)
		}
	}
	d.sweepWork()
	d.host.sweep(d.cgroupsInUse())
	sort.Slice(tasks, func(i, j int) bool { return tasks[i].ID() < tasks[j].ID() })
	return tasks, unclear, nil
}

// Readopt tries again to adopt an instance that Adopt listed as unclear. It returns nil if nothing of the instance is
// left. CodeShimSilent means that it is still not known whether the instance runs; the same cause gives the same
// message. Readopt usually blocks for about a second, and for a damaged launch up to half a minute.
func (d *Driver) Readopt(ctx context.Context, id ID) (*Task, error) {
	var t *Task
	if _, err := os.Lstat(string(d.dir(id))); !errors.Is(err, os.ErrNotExist) {
		if t, err = d.adoptEntry(ctx, string(id), 0); err != nil {
			return nil, advise(model.Refuse(CodeShimSilent, "can't tell whether instance %s runs: %v", id, err), err)
		}
	}
	d.mu.Lock()
	delete(d.unclear, id)
	d.mu.Unlock()
	return t, nil
}

// keepUnclear records the cgroup of an instance that may run, so that cgroupHost.sweep does not remove the cgroup.
func (d *Driver) keepUnclear(id ID) {
	l, _ := d.dir(id).readLaunch()
	_, _ = d.dir(id).traces(&l)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unclear[id] = l.Cgroup
}

// adoptEntry adopts one entry of the directory of all states. If it removed the entry, it returns nil without an error.
// The parameter patience is how long it waits for a shim that has not started its program yet.
func (d *Driver) adoptEntry(ctx context.Context, name string, patience time.Duration) (*Task, error) {
	dir := stateDir(filepath.Join(d.stateRoot(), name))
	if known, ok := d.Task(ID(name)); ok {
		return known, nil
	}
	if strings.HasPrefix(name, prefixNew) || strings.HasPrefix(name, prefixRemoved) {
		return nil, erase.Tree(string(dir))
	}
	if st, err := os.Lstat(string(dir)); err == nil && !st.IsDir() {
		return nil, os.Remove(string(dir))
	}
	l, err := dir.readLaunch()
	if err == nil && string(l.Spec.ID) != name {
		err = fmt.Errorf("%w: it belongs to instance %s", errRecordDamaged, l.Spec.ID)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errRecordDamaged):
		d.cfg.Logger.Warn("removing a state directory without a launch", "name", name, "error", err)
		return nil, d.discard(ctx, dir)
	case err != nil: // the entry stays, because a later call may be able to read it
		return nil, err
	}
	t, err := d.reopen(ctx, dir, l, patience)
	if t != nil {
		d.add(t)
	}
	return t, err
}

// reopen makes the task of a launch, running or ended. It returns nil without an error if giveUp has removed the
// launch.
func (d *Driver) reopen(ctx context.Context, dir stateDir, l launch, patience time.Duration) (*Task, error) {
	if e, ok := dir.readExit(l.Run); ok {
		if shim, ok := dir.readIdentity(fileShim, l.Run); ok {
			awaitEnd(shim, 5*time.Second) // the shim has recorded the exit, and only has to exit itself
		}
		return newTask(d, dir, l, &e), nil
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	if boot != l.Boot {
		e, err := d.otherBoot(ctx, dir, &l, boot)
		if err != nil {
			return nil, err
		}
		if e != nil {
			t := newTask(d, dir, l, nil)
			t.record(*e)
			return t, nil
		}
	}
	shim, main, err := d.findShim(ctx, dir, l, patience)
	if err != nil {
		return nil, err
	}
	if e, ok := dir.readExit(l.Run); ok { // while findShim looked, the run ended, or giveUp recorded an exit
		return newTask(d, dir, l, &e), nil
	}
	if shim.PID == 0 {
		return nil, nil
	}
	t := newTask(d, dir, l, nil)
	t.shim, t.main = shim, main
	return t, nil
}

// otherBoot handles a launch whose boot id differs from the present one. The machine need not have rebooted, because
// containers on one kernel can have different boot ids. If a shim holds the lock, the shim runs on this kernel, so
// otherBoot writes the present boot id to the launch and returns nil. Otherwise it kills every process with the run's
// token, removes the run's cgroup, and returns the exit of the run.
func (d *Driver) otherBoot(ctx context.Context, dir stateDir, l *launch, boot string) (*Exit, error) {
	here := *l
	here.Boot = boot
	lock, err := dir.lock()
	switch {
	case errors.Is(err, errLocked):
		d.cfg.Logger.Warn("the boot id is another one, but the shim runs on", "instance", l.Spec.ID)
		*l = here
		return nil, dir.writeBoot(here)
	case err != nil:
		return nil, err
	}
	defer lock.Close()
	left, err := leftovers(here, Identity{}, Identity{})
	if err != nil {
		return nil, err
	}
	e := Exit{Reason: ReasonHostRebooted, Code: -1, Message: "the machine was rebooted", EndedAt: time.Now()}
	if len(left) > 0 || !here.Cgroup.open().empty() {
		if err := killLeftovers(ctx, here, Identity{}, Identity{}); err != nil {
			return nil, err
		}
		e.Reason, e.Message, e.EndedAt = ReasonShimLost,
			"its shim had ended; its processes still ran and were killed", time.Now()
	}
	if c := here.Cgroup.open(); c != nil { // the next run has another one
		if err := c.remove(); err != nil {
			d.cfg.Logger.Warn("cgroup remains", "instance", l.Spec.ID, "error", err)
		}
	}
	return &e, nil
}

// findShim returns the identities of the run's shim, dead or alive, and of its program. A shim first takes its lock,
// then writes its identity, and then starts the program and writes the program's identity.
//
// While the shim holds the lock, findShim waits up to patience for both identities on the disk or for an answer of the
// shim. After that it returns the identities on the disk, or an error if the shim's identity is not there. If the lock
// is free and the disk has no identity, findShim gives the run up and returns zero identities.
func (d *Driver) findShim(ctx context.Context, dir stateDir, l launch, patience time.Duration) (shim,
	main Identity, err error) {
	for deadline := time.Now().Add(patience); ; {
		shim, known := dir.readIdentity(fileShim, l.Run)
		main, started := dir.readIdentity(fileMain, l.Run)
		if known && (started || !shim.Alive()) {
			return shim, main, nil
		}
		lock, err := dir.lock()
		if err == nil {
			return d.unshimmed(ctx, lock, dir, l)
		}
		if !errors.Is(err, errLocked) {
			return Identity{}, Identity{}, err
		}
		if r, err := callShim(ctx, dir, request{Op: opWatch}, time.Second); err == nil && r.Shim.Alive() {
			return r.Shim, r.Main, nil
		}
		if time.Now().After(deadline) && known { // the shim may be frozen; the task's watch continues to look at it
			return shim, main, nil
		}
		if time.Now().After(deadline) {
			return Identity{}, Identity{}, silentShim{dir.holder(ctx, shim).PID}
		}
		if !sleep(ctx, 10*time.Millisecond) {
			return Identity{}, Identity{}, ctx.Err()
		}
	}
}

// unshimmed finishes findShim when this process has got the lock, so no shim of the run is alive. If the disk has the
// shim's identity by now, unshimmed returns the identities. Otherwise it gives the run up. Before that it kills every
// process of the run, because a shim may have started some and the disk may have lost its identity.
func (d *Driver) unshimmed(ctx context.Context, lock *os.File, dir stateDir, l launch) (shim,
	main Identity, err error) {
	defer lock.Close()
	if shim, known := dir.readIdentity(fileShim, l.Run); known {
		main, _ := dir.readIdentity(fileMain, l.Run)
		return shim, main, nil
	}
	if err := killLeftovers(ctx, l, Identity{}, Identity{}); err != nil {
		return Identity{}, Identity{}, err
	}
	return Identity{}, Identity{}, d.giveUp(dir, l)
}

// giveUp gives up a launch whose agent was killed before the shim began. It removes the directories of a first run. It
// records a later run as failed, and keeps the logs and the working directory. The caller has the shim's lock. When a
// late shim gets the lock, it finds the directory renamed, or the exit, and starts nothing.
func (d *Driver) giveUp(dir stateDir, l launch) error {
	if l.Run > 1 {
		return WriteRecord(dir.path(fileExit), exitRecord{Run: l.Run, Reason: ReasonStartFailed, Code: -1,
			Message: "the agent ended before the program was started", Ended: time.Now().UnixMilli()})
	}
	if err := os.Rename(string(dir), dir.removedName()); err != nil {
		return err
	}
	if l.OwnDir {
		if err := erase.Tree(l.Dir); err != nil {
			return err
		}
	}
	return erase.Tree(dir.removedName())
}

// sweepWork removes working directories that no instance uses any more.
func (d *Driver) sweepWork() {
	entries, err := os.ReadDir(d.cfg.WorkDir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if _, err := os.Lstat(string(d.dir(ID(e.Name())))); errors.Is(err, os.ErrNotExist) && ID(e.Name()).Valid() {
			if err := erase.Tree(filepath.Join(d.cfg.WorkDir, e.Name())); err != nil {
				d.cfg.Logger.Warn("working directory remains", "name", e.Name(), "error", err)
			}
		}
	}
}
