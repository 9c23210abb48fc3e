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

// adoptTimeout bounds the wait for a shim whose agent was killed right after it had started the shim.
const adoptTimeout = 5 * time.Second

// Adopt finds the instances that an earlier agent left on this node, and returns them sorted by id. Running instances
// are watched again; ended ones have their Exit. An instance that ran before a reboot is returned as ended. An instance
// whose shim died ends once the processes that the shim left are killed. Adopt deletes half-made state directories, and
// damaged ones after it has killed their processes. unclear lists the ids of instances that may run; call Readopt for
// them. CodeStateFailed means that the directory can't be read. If ctx ends, Adopt returns the error of ctx. Call it
// once, right after New.
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

// Readopt looks again at an instance that Adopt listed as unclear, because its shim could not be reached or a file
// could not be read. It returns nil if nothing of the instance is left. CodeShimSilent means that it still can't be
// determined whether the instance runs; the message is the same as long as the cause is. Readopt usually blocks for
// about a second; for a damaged launch, up to half a minute.
func (d *Driver) Readopt(ctx context.Context, id ID) (*Task, error) {
	var t *Task
	if _, err := os.Lstat(string(d.dir(id))); !errors.Is(err, os.ErrNotExist) {
		if t, err = d.adoptEntry(ctx, string(id), 0); err != nil {
			return nil, advise(model.Refuse(CodeShimSilent, "whether instance %s runs can't be told: %v", id, err), err)
		}
	}
	d.mu.Lock()
	delete(d.unclear, id)
	d.mu.Unlock()
	return t, nil
}

// keepUnclear keeps the cgroup of an instance that may run, so that the sweep does not remove it.
func (d *Driver) keepUnclear(id ID) {
	l, _ := d.dir(id).readLaunch()
	_, _ = d.dir(id).traces(&l)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unclear[id] = l.Cgroup
}

// adoptEntry handles one entry of the directory of states. If it removed the entry, it returns nil without an error.
// patience is how long a shim may take to begin.
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
	case err != nil: // the disk may work the next time
		return nil, err
	}
	t, err := d.reopen(ctx, dir, l, patience)
	if t != nil {
		d.add(t)
	}
	return t, err
}

// reopen finds out what became of a launch. It returns nil without an error if the launch was given up and removed.
func (d *Driver) reopen(ctx context.Context, dir stateDir, l launch, patience time.Duration) (*Task, error) {
	if e, ok := dir.readExit(l.Run); ok {
		if shim, ok := dir.readIdentity(fileShim, l.Run); ok {
			awaitEnd(shim, 5*time.Second) // the shim has done its work and only has to exit
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
	if e, ok := dir.readExit(l.Run); ok { // the run has ended meanwhile, or was given up
		return newTask(d, dir, l, &e), nil
	}
	if shim.PID == 0 {
		return nil, nil
	}
	t := newTask(d, dir, l, nil)
	t.shim, t.main = shim, main
	return t, nil
}

// otherBoot handles a launch whose boot id differs from the present one. That alone proves no reboot, because
// containers on one kernel can have different boot ids. If a shim holds the lock, it runs on this kernel: the launch
// gets the present boot id, and otherBoot returns no exit. Otherwise it kills every process with the run's token, and
// returns the exit.
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
	e := Exit{Reason: ReasonHostRebooted, Code: -1, Message: "the machine was started anew", EndedAt: time.Now()}
	if len(left) > 0 || !here.Cgroup.open().empty() {
		if err := killLeftovers(ctx, here, Identity{}, Identity{}); err != nil {
			return nil, err
		}
		e.Reason, e.Message, e.EndedAt = ReasonShimLost,
			"its shim had ended, and processes of it ran on until they were killed", time.Now()
	}
	return &e, nil
}

// findShim returns the identities of the run's shim, dead or alive, and of its program. A shim takes its lock first,
// then writes its identity, then starts the program.
//
// While the lock is held, findShim waits up to patience for both identities. It also asks the shim for them, since the
// disk may have lost them. If the shim stays silent, findShim returns the identities on the disk, or an error if that
// of the shim is missing. If the lock is free and there is no identity, nothing was started: findShim gives the run up,
// and returns zero identities. It looks at least once.
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
		if time.Now().After(deadline) && known { // the shim may be frozen; the caller watches it
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

// unshimmed continues findShim while this process holds the lock, which proves that no shim is alive. If the shim wrote
// its identity meanwhile, unshimmed returns the identities. Otherwise it kills what a shim may have left whose identity
// the disk lost, and gives the run up.
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

// giveUp gives up a launch whose agent was killed before the shim began. The caller holds the shim's lock. So a shim
// that starts late finds the directory renamed, or the exit. A first run is removed without a trace. A later run counts
// as failed, and its logs and working directory are kept.
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
