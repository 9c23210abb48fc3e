package agent

import (
	"context"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outspan/outspan/agent/bridge"
	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
)

// Runtime runs the processes of instances. The exec driver implements it, and tests implement it in memory. Safe for
// concurrent use.
type Runtime interface {
	// Start starts the program of spec. It returns when the program has begun to run, and does not wait for its end. If an
	// instance with the same id has ended, Start runs it again.
	Start(context.Context, driver.Spec) (Task, error)
	// Adopt returns the instances that an earlier agent left. found has those that are known to run or to have ended.
	// unclear has those of which the runtime can't find out whether they run. Call Adopt once, before Start.
	Adopt(context.Context) (found []Task, unclear []driver.ID, err error)
	// Readopt looks again at an unclear instance. It returns nil and no error if nothing of the instance is left. It
	// returns an error if the instance is still unclear.
	Readopt(context.Context, driver.ID) (Task, error)
	// End kills all processes of an unclear instance. After an error some of them may still run. It blocks for up to half
	// a minute.
	End(context.Context, driver.ID) error
	// Launched returns the Spec that an unclear instance was started with. known is false if that Spec can't be read.
	// Launched does not block for long.
	Launched(driver.ID) (spec driver.Spec, known bool)
	// Capabilities returns what this node can enforce. Its Notes are shown to people who look at the node.
	Capabilities() driver.Capabilities
	// BootNow reads the clock of leases.
	BootNow() driver.BootTime
	// Close stops watching the instances, which continue to run.
	Close() error
}

// Task is one instance of a Runtime, running or ended; see driver.Task. Safe for concurrent use.
type Task interface {
	ID() driver.ID
	// Alive reports whether the program itself runs. The instance's other processes may end much later than the program.
	Alive() bool
	// Done is closed when no process of the instance is left and Exit is known.
	Done() <-chan struct{}
	Exit() (driver.Exit, bool)
	// Stop sends sig, and kills after grace what still runs. A grace of 0 kills at once. Stop blocks until Done is closed
	// or ctx ends. If Stop is called again, the earliest deadline applies.
	Stop(ctx context.Context, sig syscall.Signal, grace time.Duration) error
	// Signal sends sig to the program's process group. It blocks for at most two seconds.
	Signal(ctx context.Context, sig syscall.Signal) error
	// Renew moves the end of the instance's lease to the time until, unless the lease ends later already.
	Renew(ctx context.Context, until driver.BootTime) error
	// Exec runs a command beside the program, as its user, in its environment and under its limits, and returns the
	// command's exit code. It blocks until the command has ended. When ctx ends, the command and its process group are
	// killed.
	Exec(ctx context.Context, c driver.Command) (code int, err error)
	// Enter runs a command for a person, with a terminal or pipes, in the same place as Exec. When ctx or the program
	// ends, the command and all its descendants are killed.
	Enter(ctx context.Context, s driver.Session) (code int, err error)
	// Stats returns what the instance uses now. Codes: not_running, state_failed.
	Stats() (driver.Stats, error)
	// Note writes whole lines, at most driver.NoteLimit bytes, to the program's stderr log.
	Note(ctx context.Context, text string) error
	OpenLog(ctx context.Context, s driver.Stream, offset int64, follow bool) (Log, error)
	// RemoveWork deletes the working directory of an ended instance that will not be started again. The logs stay.
	RemoveWork() error
	// Remove deletes everything that is left of an ended instance, including its logs.
	Remove() error
}

// Log reads one stream of an instance.
type Log interface {
	io.ReadCloser
	// Offset returns the position in the stream of the next byte to be read.
	Offset() int64
	// WrittenAt returns when the byte at offset was written, or the zero time if that is unknown.
	WrittenAt(offset int64) time.Time
}

// execRuntime adapts the driver to Runtime.
type execRuntime struct{ *driver.Driver }

type execTask struct{ *driver.Task }

func (r execRuntime) Start(ctx context.Context, spec driver.Spec) (Task, error) {
	t, err := r.Driver.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return execTask{t}, nil
}

func (r execRuntime) Adopt(ctx context.Context) (found []Task, unclear []driver.ID, err error) {
	list, unclear, err := r.Driver.Adopt(ctx)
	if err != nil {
		return nil, nil, err
	}
	tasks := make([]Task, 0, len(list))
	for _, t := range list {
		tasks = append(tasks, execTask{t})
	}
	return tasks, unclear, nil
}

func (r execRuntime) Readopt(ctx context.Context, id driver.ID) (Task, error) {
	t, err := r.Driver.Readopt(ctx, id)
	if t == nil || err != nil {
		return nil, err
	}
	return execTask{t}, nil
}

// execOutput is how many bytes of a check's output are kept for error messages.
const execOutput = 4 << 10

// prefix keeps the beginning of what is written to it and drops what follows. Safe for concurrent use.
type prefix struct {
	mu   sync.Mutex
	left int
	kept []byte
}

func (p *prefix) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(b), p.left)
	p.kept, p.left = append(p.kept, b[:n]...), p.left-n
	return len(b), nil
}

func (p *prefix) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.kept)
}

func (execRuntime) BootNow() driver.BootTime { return driver.BootNow() }

func (t execTask) OpenLog(ctx context.Context, s driver.Stream, offset int64, follow bool) (Log, error) {
	r, err := t.Task.OpenLog(ctx, s, offset, follow)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// keepRuntime reports the state of the container runtime, and releases the layers of forgotten instances, until ctx
// ends. It does nothing without a runtime.
func (a *Agent) keepRuntime(ctx context.Context) {
	if a.shared.images == nil {
		return
	}
	for sleep(ctx, runtimeCheckEvery, nil) {
		if !a.lookAtRuntime(ctx, runtimeCheckEvery) {
			continue
		}
		known := func(id model.InstanceID) bool { return a.supervisors.member(id) != nil }
		if err := a.shared.images.release(ctx, known); err != nil && ctx.Err() == nil {
			a.log.Warn("file systems of containers that are gone remain for now", "error", err)
		}
	}
}

// keepNetworks returns what keeps the networks of containers, or nil if this agent makes none and no earlier one has
// left any.
func (c Config) keepNetworks(node model.NodeID, dir string) *bridge.Keeper {
	of := bridge.Config{Node: node, Dir: dir, Address: netip.MustParseAddr(c.Node.Address).Unmap()}
	if c.Containers != nil {
		of.Plugins, of.Subnet = c.Containers.Plugins, c.Containers.Subnet
	} else if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return bridge.Keep(of)
}

// lookAtNetworks finds out whether containers can have networks of their own.
func (a *Agent) lookAtNetworks() {
	if a.shared.networks == nil {
		return
	}
	if err := a.shared.networks.Look(); err != nil {
		a.log.Error("the ports of a container are not held", "error", err)
	}
}

// tendNetworks removes the networks of containers that have ended, looks at the rules of the firewall, and tells the
// instances whose networks are lost, until ctx ends.
func (a *Agent) tendNetworks(ctx context.Context) {
	if a.shared.networks == nil {
		return
	}
	for {
		made, err := a.shared.networks.Tend(ctx, func(id string) { a.shared.ports.Release(driver.ID(id)) })
		if bad := a.shared.networks.Lost(ctx, func(id, what string) { tellLost(a, id, what) }); err == nil {
			err = bad
		}
		if ctx.Err() != nil {
			return
		}
		problem := ""
		if err != nil {
			problem = message(err)
			a.log.Warn("networks of containers are not as they should be; it is tried again", "error", err)
		}
		a.setProblem("networks of containers", problem)
		if made > 0 {
			a.log.Warn("rules of the firewall for containers were missing and are made again", "rules", made)
		}
		if !sleep(ctx, networkEvery, nil) {
			return
		}
		a.lookAtNetworks()
	}
}

// tellLost tells an instance that its network is lost.
func tellLost(a *Agent, id, what string) {
	if m := a.supervisors.member(model.InstanceID(id)); m != nil {
		m.loseNetwork(what)
	}
}

// lookAtRuntime asks the container runtime for its state, for the reports, and returns whether it answers. It takes at
// most about limit. It must be called once before the first report, because a report without a runtime says that the
// node has none.
func (a *Agent) lookAtRuntime(ctx context.Context, limit time.Duration) (up bool) {
	if a.shared.images == nil {
		return false
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	now := a.shared.images.Runtime(timed)
	if ctx.Err() != nil {
		return false // the agent stops, so the answer says nothing about the runtime
	}
	if why := a.cfg.Runtime.Capabilities().NoContainers; why != "" && now.Down == "" {
		now.Down = model.LacksForContainers + why
	}
	subnet, err := a.shared.networks.State()
	now.Bridge = subnet
	if err != nil {
		now.NoBridge = message(err)
	}
	a.setProblem("container runtime", now.Down)
	turned := a.shared.reports.setRuntime(&now)
	switch {
	case turned && strings.HasPrefix(now.Down, model.LacksForContainers):
		a.log.Warn("this node runs no containers", "error", now.Down)
	case turned && now.Down != "":
		a.log.Warn("the container runtime does not answer; containers that run go on", "error", now.Down)
	case turned:
		a.log.Info("the container runtime answers again", "version", now.Version)
	}
	return now.Down == ""
}
