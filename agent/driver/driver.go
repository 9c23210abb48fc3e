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
	// Dir holds state/ (0700, one directory per instance) and, by default, the working directories. Required.
	// One Driver at a time may use it. It must be on a local disk.
	Dir string
	// WorkDir holds the working directories of instances without a Dir of their own, each owned by the instance's user.
	// Default Dir/work. If other users can't pass a parent directory, their programs still start in it, but reach it only
	// as ".", not by its full path.
	WorkDir string
	// CgroupParent is the path below each cgroup mount for this agent's instances, such as "outspan/n1"; two
	// agents of one machine need different ones. "" turns cgroups off. It is removed by Close when empty.
	CgroupParent string
	// Executable is the binary that dispatches `shim` and `shim-init`. Default: this process's own, even if an upgrade
	// replaced the file meanwhile.
	Executable string
	// AllowRoot lets instances whose Spec names root run as uid 0. Default: refused with root_not_allowed.
	AllowRoot bool
	// A Spec may name the users in AllowUsers, by name or uid, and the users whose uid is at least MinUID. If neither is
	// set, it may name any user. Others are refused with user_not_allowed. Neither restricts DefaultUser.
	AllowUsers []string
	MinUID     int
	// OwnUIDs are user ids that the agent gives to instances: a Spec may also name them.
	OwnUIDs UIDRange
	// DefaultUser is used by an agent that runs as root for instances that name no user. Default "nobody".
	DefaultUser string
	// VolumePaths are the directories below which missing targets of Binds are made; each may be missing itself. Targets
	// that exist can be anywhere. Default DefaultVolumePaths; empty and not nil: none is made.
	VolumePaths []string
	// StartTimeout bounds one start, from fork to exec. Default 20 s; a short one makes starts fail on a busy node.
	StartTimeout time.Duration
	// Logger receives messages that belong to no single call. Default: none.
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

// Driver starts, adopts and knows the instances of one agent. Safe for many goroutines.
type Driver struct {
	cfg    Config
	host   *cgroupHost // nil without cgroups
	caps   Capabilities
	lock   *os.File
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	tasks map[ID]*Task
	busy  map[ID]bool // a start or removal is going on
	// unclear has the cgroups of instances that Adopt listed as unclear.
	unclear map[ID]cgroupRef
}

// New prepares the directories and finds out what the node can enforce. It blocks for some milliseconds and starts
// nothing; up to a second when Dir is in use. CodeDriverLocked means that another agent uses Dir; CodeStateFailed that
// Dir can't be used.
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
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d, nil
}

// lockPatiently tries for a second: an agent that was killed while it forked leaves a child that holds the lock
// until its exec.
func lockPatiently(path string) (f *os.File, err error) {
	poll(time.Second, 10*time.Millisecond, func() bool {
		f, err = lockFile(path)
		return !errors.Is(err, errLocked)
	})
	return f, err
}

func (d *Driver) makeDirs() error {
	// Other users must be able to pass through, because the working directories are below it by default.
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

// Capabilities returns what this node enforces.
func (d *Driver) Capabilities() Capabilities { return d.caps }

// CheckCgroups returns nil if cgroups can still be made, or if none could be made when the driver was created. It
// blocks for about a second at most.
func (d *Driver) CheckCgroups() error { return d.host.check() }

// WorkDir returns the instance's own working directory, whether it exists yet or not; a Spec may name another one.
func (d *Driver) WorkDir(id ID) string { return filepath.Join(d.cfg.WorkDir, string(id)) }

// Task returns the instance with that id, running or ended, if it was started or adopted and not yet removed.
func (d *Driver) Task(id ID) (*Task, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tasks[id]
	return t, ok
}

// Close stops watching; every instance goes on under its shim, to be adopted by the next Driver. It returns when the
// Driver's goroutines have ended. Tasks of a closed Driver may be read, but Done never closes.
func (d *Driver) Close() error {
	d.cancel()
	d.wg.Wait()
	d.host.sweep(d.cgroupsInUse())
	d.host.removeParents(d.cfg.CgroupParent)
	// Unlocked explicitly: a child that is just between fork and exec holds a copy of the descriptor.
	_ = unix.Flock(int(d.lock.Fd()), unix.LOCK_UN)
	return d.lock.Close()
}

// cgroupsInUse lists the cgroup directories of all known instances, and of unclear ones where they are known.
func (d *Driver) cgroupsInUse() map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	keep := make(map[string]bool)
	refs := slices.Collect(maps.Values(d.unclear))
	for _, t := range d.tasks {
		refs = append(refs, t.launch.Cgroup)
	}
	for _, ref := range refs {
		for _, dir := range ref.Dirs {
			keep[dir] = true
		}
	}
	return keep
}

// claim reserves id, so that a start, a restart and a removal of it can't overlap.
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

// add makes t known and watches it until it ends or the Driver is closed.
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

// resolve turns a Spec into a launch. Everything that depends on this node is decided here.
func (d *Driver) resolve(spec Spec) (launch, error) {
	spec = spec.withDefaults()
	if err := spec.validate(); err != nil {
		return launch{}, err
	}
	if err := d.checkBinds(spec); err != nil {
		return launch{}, err
	}
	spec.Binds = d.mayMake(spec.Binds)
	acct, err := resolveAccount(spec.User, d.cfg)
	if err != nil {
		return launch{}, err
	}
	boot, err := bootID()
	if err != nil {
		return launch{}, model.Refuse(CodeStateFailed, "%v", err)
	}
	l := launch{Run: 1, Token: randomToken(), Boot: boot, Spec: spec, Account: acct, Dir: spec.Dir, LogDir: spec.Logs.Dir}
	if l.Dir == "" {
		l.Dir, l.OwnDir = d.WorkDir(spec.ID), true
	}
	if l.LogDir == "" {
		l.LogDir = d.dir(spec.ID).path(dirLogs)
	}
	l.Cgroup = d.host.ref(spec.ID, l.Token)
	l.Env = environ(l.fullEnv())
	return l, nil
}

// Environment variables that every instance gets, beside those of its Spec.
const (
	envInstance = "OUTSPAN_INSTANCE_ID"
	envDir      = "OUTSPAN_DIR"
	envRun      = "OUTSPAN_RUN" // random for each run; marks the processes that a lost shim left
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
	env[envInstance], env[envDir], env[envRun] = string(l.Spec.ID), l.Dir, l.Token
	return env
}

// makeInstanceDirs makes the working and log directories. The working directory belongs to the instance's user.
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
