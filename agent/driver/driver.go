package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// Config says where a Driver keeps its files and what it allows.
type Config struct {
	// Dir is required. It contains state/ (mode 0700, with one directory per instance) and, by default, the working
	// directories. It must be an absolute path on a local disk. Only one Driver at a time may use it.
	Dir string
	// WorkDir contains the working directories of instances whose Spec names no Dir. Default Dir/work. Each directory
	// belongs to its instance's user. If this user has no access to a parent of WorkDir, the program can use its directory
	// as ".", but not by its full path.
	WorkDir string
	// CgroupParent is a path below each cgroup mount, such as "outspan/n1", where the cgroups of this agent's instances
	// are made. Two agents of one machine need different parents. "" turns cgroups off. Close removes the parent if it is
	// empty.
	CgroupParent string
	// Executable is the binary from which shims are started. It must have the subcommands `shim` and `shim-init`. The
	// default is the binary of this process, even after an upgrade has replaced its file.
	Executable string
	// AllowRoot lets instances run as uid 0. If it is false, such instances are refused with root_not_allowed.
	AllowRoot bool
	// If AllowUsers or MinUID is set, a Spec may name only the users in AllowUsers (by name or uid), and those whose uid
	// is at least MinUID if that is set. Other users are refused with user_not_allowed. AllowUsers and MinUID don't apply
	// to root and to DefaultUser.
	AllowUsers []string
	MinUID     int
	// OwnUIDs are the user ids that the agent itself gives to instances. A Spec may always name them, even if AllowUsers
	// and MinUID exclude them.
	OwnUIDs UIDRange
	// If the agent runs as root, DefaultUser is the user of instances whose Spec names no user. Default "nobody".
	DefaultUser string
	// VolumePaths are the directories at or below which the driver may make missing targets of Binds. They need not exist
	// themselves. Targets that exist can be anywhere. Nil means DefaultVolumePaths. An empty list that is not nil means
	// that no target is made.
	VolumePaths []string
	// Runtime is the OCI runtime of containers, a path or a name in this process's PATH. Default "runc".
	Runtime string
	// ContainerInit is a static binary with the subcommand `container-init`. Default Executable.
	ContainerInit string
	// Seccomp returns the seccomp profile, as JSON of the OCI runtime specification, of a container with these
	// capabilities. If it is nil, containers may make all system calls.
	Seccomp func(capabilities []string) ([]byte, error)
	// StartTimeout is how long one start may take, from the fork to the exec. Default 20 s. With a short StartTimeout,
	// starts fail on a busy node.
	StartTimeout time.Duration
	// Logger receives the driver's log lines. If it is nil, they are dropped.
	Logger hclog.Logger
}

func (c Config) withDefaults() Config {
	c.CgroupParent = strings.Trim(filepath.Clean("/"+c.CgroupParent), "/")
	if c.WorkDir == "" {
		c.WorkDir = filepath.Join(c.Dir, "work")
	}
	if c.Executable == "" {
		c.Executable = "/proc/self/exe"
	}
	if c.Runtime == "" {
		c.Runtime = "runc"
	}
	if c.ContainerInit == "" {
		c.ContainerInit = c.Executable
	}
	if c.DefaultUser == "" {
		c.DefaultUser = "nobody"
	}
	if c.VolumePaths == nil {
		c.VolumePaths = DefaultVolumePaths()
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 20 * time.Second
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Driver starts, adopts and keeps track of the instances of one agent. Safe for concurrent use.
type Driver struct {
	cfg     Config
	host    *cgroupHost // nil without cgroups
	caps    Capabilities
	runtime string // path of the OCI runtime; "" if Capabilities.NoContainers says why there is none
	lock    *os.File
	ctx     context.Context // canceled by Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	initMu  sync.Mutex // for containerInit
	table   processTable

	mu    sync.Mutex
	tasks map[ID]*Task
	busy  map[ID]bool // instances that claim has reserved
	// unclear has the cgroup of each instance that Adopt listed as unclear and for which Readopt has not succeeded yet.
	unclear map[ID]cgroupRef
}

// New prepares the directories and finds out what the node can enforce. It starts no instance. It blocks for some
// milliseconds, or for up to a second if Dir is locked. It returns CodeInvalidSpec if Dir is not absolute,
// CodeDriverLocked if another agent uses Dir, and CodeStateFailed if Dir or WorkDir can't be prepared.
func New(cfg Config) (*Driver, error) {
	if !filepath.IsAbs(cfg.Dir) {
		return nil, model.Refuse(CodeInvalidSpec, "driver directory %q is not absolute", cfg.Dir)
	}
	cfg = cfg.withDefaults()
	d := &Driver{cfg: cfg, tasks: make(map[ID]*Task), busy: make(map[ID]bool), unclear: make(map[ID]cgroupRef)}
	if err := d.makeDirs(); err != nil {
		return nil, model.Refuse(CodeStateFailed, "prepare driver directory %s: %v", cfg.Dir, err)
	}
	lock, err := lockPatiently(filepath.Join(cfg.Dir, "driver.lock"))
	if errors.Is(err, errLocked) {
		return nil, model.Refuse(CodeDriverLocked, "driver directory %s is in use", cfg.Dir).
			WithHint("stop the other agent first")
	}
	if err != nil {
		return nil, model.Refuse(CodeStateFailed, "lock driver directory: %v", err)
	}
	d.lock = lock
	d.host, d.caps = detectHost(cfg.CgroupParent)
	d.runtime, d.caps.NoContainers = cfg.detectRuntime(d.host)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d, nil
}

// lockPatiently tries to lock a file for up to a second. If an agent was killed while it forked, its child still has
// the lock for a moment, until the exec.
func lockPatiently(path string) (f *os.File, err error) {
	poll(time.Second, 10*time.Millisecond, func() bool {
		f, err = lockFile(path)
		return !errors.Is(err, errLocked)
	})
	return f, err
}

func (d *Driver) makeDirs() error {
	// Other users must be able to pass through Dir, because the working directories are below it by default.
	if err := os.MkdirAll(d.cfg.Dir, 0o711); err != nil {
		return err
	}
	if err := os.MkdirAll(d.stateRoot(), 0o700); err != nil {
		return err
	}
	if err := os.MkdirAll(d.cfg.WorkDir, 0o711); err != nil {
		return err
	}
	return os.Chmod(d.stateRoot(), 0o700)
}

func (d *Driver) stateRoot() string { return filepath.Join(d.cfg.Dir, "state") }

func (d *Driver) dir(id ID) stateDir { return stateDir(filepath.Join(d.stateRoot(), string(id))) }

// Capabilities returns what this node can enforce.
func (d *Driver) Capabilities() Capabilities { return d.caps }

// CheckCgroups returns an error if cgroups can't be made any more. It returns nil if the Driver uses no cgroups. It
// blocks for about a second at most.
func (d *Driver) CheckCgroups() error { return d.host.check() }

// WorkDir returns the working directory of an instance whose Spec names none. The directory need not exist.
func (d *Driver) WorkDir(id ID) string { return filepath.Join(d.cfg.WorkDir, string(id)) }

// Task returns an instance that was started or adopted, running or ended. It returns false if there is no such
// instance, or if it was removed.
func (d *Driver) Task(id ID) (*Task, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tasks[id]
	return t, ok
}

// Close stops watching, waits for the Driver's goroutines, and removes cgroups that no instance uses. Running instances
// continue under their shims, and the next Driver adopts them. Tasks of a closed Driver may still be read, but the
// channel Done of a running task is never closed.
func (d *Driver) Close() error {
	d.cancel()
	d.wg.Wait()
	d.host.sweep(d.cgroupsInUse())
	d.host.removeParents(d.cfg.CgroupParent)
	// Closing the file alone might not unlock it, because a child between fork and exec has a copy of the descriptor.
	_ = unix.Flock(int(d.lock.Fd()), unix.LOCK_UN)
	return d.lock.Close()
}

// cgroupsInUse returns the known cgroup directories of all instances, whether running, ended or unclear.
func (d *Driver) cgroupsInUse() map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	keep := make(map[string]bool)
	refs := slices.Collect(maps.Values(d.unclear))
	for _, t := range d.tasks {
		refs = append(refs, t.launch.Cgroup)
	}
	for _, ref := range refs {
		for _, dir := range append(slices.Collect(maps.Values(ref.Dirs)), ref.Extra...) {
			keep[dir] = true
		}
	}
	return keep
}

// claim reserves id, so that only one start, removal or End of an instance runs at a time. It returns CodeStillRunning
// if id is reserved already.
func (d *Driver) claim(id ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[id] {
		return model.Refuse(CodeStillRunning, "instance %s is just being started or removed", id).WithHint("try again")
	}
	d.busy[id] = true
	return nil
}

func (d *Driver) unclaim(id ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, id)
}

// add registers t, and watches t until it ends or the Driver is closed.
func (d *Driver) add(t *Task) {
	d.mu.Lock()
	d.tasks[t.ID()] = t
	d.mu.Unlock()
	if closed(t.done) {
		return
	}
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		t.watch(d.ctx)
	}()
}

// resolve turns a Spec into a launch. It adds everything that depends on this node.
func (d *Driver) resolve(spec Spec) (launch, error) {
	spec = spec.withDefaults()
	if err := spec.validate(); err != nil {
		return launch{}, err
	}
	boot, err := bootID()
	if err != nil {
		return launch{}, model.Refuse(CodeStateFailed, "%v", err)
	}
	l := launch{Run: 1, Token: randomToken(), Boot: boot, Spec: spec, LogDir: spec.Logs.Dir}
	l.Cgroup = d.host.ref(spec.ID, l.Token)
	if err := spec.launcher().resolve(d, &l); err != nil {
		return launch{}, err
	}
	if l.LogDir == "" {
		l.LogDir = d.dir(spec.ID).path(dirLogs)
	}
	l.Env = environ(l.fullEnv())
	return l, nil
}

// Environment variables that every instance gets in addition to those of its Spec.
const (
	envInstance = "OUTSPAN_INSTANCE_ID"
	envDir      = "OUTSPAN_DIR"
	envRun      = "OUTSPAN_RUN" // random for each run; leftovers finds the run's processes by it
)

func (l launch) fullEnv() map[string]string {
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if l.Account.Name != "" {
		env["USER"], env["LOGNAME"], env["HOME"] = l.Account.Name, l.Account.Name, l.Account.Home
	}
	if l.Account.Home == "" && l.Account.Switch { // a user id without an account
		env["HOME"] = l.Dir
	}
	for k, v := range l.Spec.Env {
		env[k] = v
	}
	env[envInstance], env[envRun] = string(l.Spec.ID), l.Token
	if l.Spec.Container == nil {
		env[envDir] = l.Dir
	}
	return env
}

// makeInstanceDirs makes the log directory. If the Spec names no working directory, it also makes the instance's own,
// which belongs to the instance's user.
func makeInstanceDirs(l launch) error {
	if err := os.MkdirAll(l.LogDir, 0o700); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	if !l.OwnDir {
		return nil
	}
	if err := os.Mkdir(l.Dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make working directory: %w", err)
	}
	if l.Account.Switch {
		if err := unix.Lchown(l.Dir, l.Account.UID, l.Account.GID); err != nil {
			return fmt.Errorf("give the working directory to uid %d: %w", l.Account.UID, err)
		}
	}
	return nil
}
