package agent

import (
	"cmp"
	"path/filepath"
	"syscall"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// The kernel's bounds for CPU shares.
const (
	minShares = 2
	maxShares = 262144
)

func (w *shared) values(a transport.Assignment) values {
	return values{node: w.node(), slot: a.Slot, port: a.Ports}
}

// launch returns the driver's Spec for an assignment. lease is when the instance's lease ends, or 0 if the instance has
// no lease. Code: invalid, for an unknown variable. Trying again does not help.
func (w *shared) launch(a transport.Assignment, lease driver.BootTime) (driver.Spec, error) {
	if a.Spec.Container != nil {
		return driver.Spec{}, model.Refuse(model.CodeNoRuntime, "this node has no container runtime")
	}
	v := w.values(a)
	command, err := v.expand("command", a.Spec.Exec.Command)
	if err != nil {
		return driver.Spec{}, err
	}
	args, err := v.expandAll("argument", a.Spec.Exec.Args)
	if err != nil {
		return driver.Spec{}, err
	}
	binds, places := w.mounts(a)
	env, err := v.environment(a, func(name string) string { return places[name] }, w.services(), w.peers.path(a.Group))
	if err != nil {
		return driver.Spec{}, err
	}
	sig, grace := w.stopPolicy(a)
	spec := driver.Spec{
		ID: driver.ID(a.ID), Command: command, Args: args, Env: env, User: a.Spec.Exec.User,
		Limits: limits(a), Stop: driver.StopPolicy{Signal: sig, Grace: grace}, Binds: binds, LeaseUntil: lease,
	}
	return spec, nil
}

// mounts returns the binds for the assignment's volumes, and the path of each volume by name. If the runtime can mount,
// the path is the one in the volume's spec. Otherwise there are no binds, and the path is the volume's own directory.
func (w *shared) mounts(a transport.Assignment) (binds []driver.Bind, places map[string]string) {
	mount := w.runtime.Capabilities().Binds
	places = make(map[string]string, len(a.Spec.Volumes))
	for _, v := range a.Spec.Volumes {
		dir := w.volumes.dir(a, v.Name)
		places[v.Name] = dir
		if mount {
			places[v.Name] = filepath.Clean(v.Path)
			binds = append(binds, driver.Bind{Source: dir, Target: places[v.Name]})
		}
	}
	return binds, places
}

// defaultPids limits the processes and threads of an instance whose job file sets no limit.
const defaultPids = 4096

func limits(a transport.Assignment) driver.Limits {
	l := driver.Limits{
		MemoryBytes: a.Memory, PidsMax: cmp.Or(a.Spec.Resources.Pids, defaultPids),
		CPUShares: min(max(a.Spec.Resources.CPU, minShares), maxShares),
	}
	if len(a.Spec.Exec.Rlimits) > 0 {
		l.Rlimits = make(map[string]driver.Rlimit, len(a.Spec.Exec.Rlimits))
		for name, n := range a.Spec.Exec.Rlimits {
			l.Rlimits[name] = driver.Rlimit{Soft: n, Hard: n}
		}
	}
	return l
}

// stopPolicy returns the signal that asks the assignment's program to stop, and its grace. If the spec is not known, it
// returns SIGTERM and 0.
func (w *shared) stopPolicy(a transport.Assignment) (syscall.Signal, time.Duration) {
	if a.Spec == nil {
		return syscall.SIGTERM, 0
	}
	sig, err := driver.ParseSignal(a.Spec.Stop.Signal)
	if err != nil {
		sig = syscall.SIGTERM
	}
	grace := a.Spec.Stop.Grace
	if a.Grace != nil {
		grace = *a.Grace
	}
	return sig, asDuration(grace)
}

// prepareNode makes the volumes of an assignment and reserves its ports. If the program runs as another user than the
// agent, prepareNode lets other users pass through the data directory. It returns an error if the program's user still
// can't reach the directories that the program uses.
func (a *Agent) prepareNode(as transport.Assignment) error {
	who, err := accountOf(as.Spec.Exec.User, a.cfg.Exec.defaultUser())
	if err != nil {
		return err
	}
	if who.other {
		if err := a.home.letThrough(); err != nil {
			return err
		}
		// Without binds, the program uses paths in the data directory, so its user must be able to pass through it.
		if binds, _ := a.shared.mounts(as); len(binds) == 0 {
			if err := reachable(a.home.dir, who); err != nil {
				return err
			}
		}
	}
	if err := a.shared.volumes.prepare(as, who); err != nil {
		return err
	}
	for _, name := range sortedKeys(as.Ports) {
		if err := a.forward.ports.check(as.Ports[name]); err != nil {
			return err
		}
		if err := a.shared.ports.Reserve(driver.ID(as.ID), uint16(as.Ports[name])); err != nil {
			return err
		}
	}
	return nil
}

// claim records the volumes and ports of an instance whose program runs already, or may run. It only logs a conflict,
// because the program can't be refused any more.
func (w *shared) claim(a transport.Assignment) {
	if holder, _ := w.volumes.claim(a); holder != "" {
		w.log.Error("two programs run on one volume", "instance", a.ID, "holder", holder)
	}
	for _, name := range sortedKeys(a.Ports) {
		if err := w.ports.Claim(driver.ID(a.ID), uint16(a.Ports[name])); err != nil {
			w.log.Error("two programs run on one port", "instance", a.ID, "error", err)
		}
	}
}

// release frees the volumes and ports of an instance. Call it when no process of the instance runs.
func (w *shared) release(id model.InstanceID) {
	w.volumes.release(id)
	w.ports.Release(driver.ID(id))
}

// users returns the driver's settings for the users that programs may run as.
func (c ExecConfig) users() driver.Config {
	return driver.Config{AllowRoot: c.AllowRoot, AllowUsers: c.AllowUsers, MinUID: c.MinUID, OwnUIDs: c.UIDs,
		DefaultUser: c.defaultUser()}
}

func (c ExecConfig) defaultUser() string {
	if c.DefaultUser == "" {
		return "nobody"
	}
	return c.DefaultUser
}
