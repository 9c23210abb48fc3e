package driver

import (
	"github.com/outspan/outspan/agent/driver/inside"
	"github.com/outspan/outspan/model"
)

// launcher is what differs between the kinds of instances. Everything else is shared: shim, records, control socket,
// lease, logs, cgroup, stop and adoption.
type launcher interface {
	// resolve adds to l what depends on the node. The agent calls it before anything is written.
	resolve(d *Driver, l *launch) error
	// spawn starts the program under the shim, and returns once the program was executed. It sets shim.main, which must be
	// a child of the shim. After an error no process of the instance runs.
	spawn(s *shim) error
	// beside returns the plan of a command that runs beside the program of t.
	beside(t *Task, argv []string) plan
}

func (s Spec) launcher() launcher {
	if s.Container != nil {
		return containers{}
	}
	return programs{}
}

// programs launches programs that are installed on the node.
type programs struct{}

func (programs) resolve(d *Driver, l *launch) (err error) {
	if err := d.checkBinds(l.Spec); err != nil {
		return err
	}
	l.Spec.Binds = d.mayMake(l.Spec.Binds)
	if l.Account, err = resolveAccount(l.Spec.User, d.cfg); err != nil {
		return err
	}
	if l.Dir = l.Spec.Dir; l.Dir == "" {
		l.Dir, l.OwnDir = d.WorkDir(l.Spec.ID), true
	}
	return nil
}

func (programs) beside(t *Task, argv []string) plan {
	p := t.launch.plan(argv)
	p.Beside = t.Process()
	return p
}

// containers launches containers by an OCI runtime. The runtime makes the container and ends. The container's init then
// becomes a child of the shim.
type containers struct{}

// resolve gives no working directory of its own to a container: what it keeps is in its volumes.
func (containers) resolve(d *Driver, l *launch) error {
	if why := d.caps.NoContainers; why != "" {
		return model.Refuse(CodeNoContainers, "instance %s is a container, and this node runs none: %s", l.Spec.ID, why)
	}
	if l.Dir = l.Spec.Dir; l.Dir == "" {
		l.Dir = "/"
	}
	if err := l.Spec.checkSources(); err != nil {
		return err
	}
	var err error
	if l.Runtime, err = d.ociRuntime(*l); err != nil {
		return model.Refuse(CodeStateFailed, "prepare container %s: %v", l.Spec.ID, err)
	}
	l.Cgroup.Extra = d.host.others(l.Spec.ID, l.Token)
	return nil
}

func (containers) beside(t *Task, argv []string) plan {
	return plan{Argv: argv, Env: t.launch.Env, Dir: t.launch.Dir,
		Command: &besideContainer{runtime: t.launch.Runtime.Path, bundle: t.dir.path(dirBundle), id: string(t.ID())}}
}

// insidePlan returns what the init of a container, or the parent of a command beside its program, gets over the link.
func (p plan) insidePlan() inside.Plan { return inside.Plan{Argv: p.Argv, Env: p.Env, Dir: p.Dir} }
