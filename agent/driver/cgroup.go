package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupRef is the stored form of an instance's cgroup: its directory in each hierarchy. A shim or a later agent needs
// nothing else to open the cgroup.
type cgroupRef struct {
	Version int               `cbor:"1,keyasint"` // 1 or 2; 0 if the instance has no cgroup
	Dirs    map[string]string `cbor:"2,keyasint"` // directory by controller; for v2 the only key is ""
	// directories that an OCI runtime makes in other hierarchies of v1
	Extra []string `cbor:"3,keyasint,omitempty"`
}

// usage is what the processes of a cgroup use, and the limits of the cgroup. A number is Unknown if the cgroup lacks
// the controller, or the kernel does not tell the number. A limit is also Unknown if there is none.
type usage struct {
	cpu         time.Duration
	memory      int64 // in bytes; without page cache that the kernel can drop
	memoryPeak  int64 // in bytes; with page cache
	memoryLimit int64 // in bytes
	threads     int64 // processes and threads
	threadLimit int64
	oomKills    int64 // 0 if it is not known
}

func unknownUsage() usage {
	return usage{cpu: Unknown, memory: Unknown, memoryPeak: Unknown, memoryLimit: Unknown, threads: Unknown,
		threadLimit: Unknown}
}

// controllers hides the differences between cgroup versions 1 and 2.
type controllers interface {
	limit(Limits) error
	killAll(*cgroup) error // may miss processes that are forked meanwhile, so callers repeat it
	usage() (usage, error)
}

// cgroup is the cgroup of an instance. It has one directory (v2), or one in each hierarchy (v1).
type cgroup struct {
	ref  cgroupRef
	ctrl controllers
}

// open returns the cgroup, or nil for an instance that has none.
func (r cgroupRef) open() *cgroup {
	switch r.Version {
	case 1:
		return &cgroup{ref: r, ctrl: cgroup1(r.Dirs)}
	case 2:
		return &cgroup{ref: r, ctrl: cgroup2(r.Dirs[""])}
	}
	return nil
}

// dirs lists each directory once. In v1, controllers that are mounted together have the same directory.
func (c *cgroup) dirs() []string {
	seen := make(map[string]bool, len(c.ref.Dirs))
	var list []string
	for _, d := range c.ref.Dirs {
		if !seen[d] {
			seen[d] = true
			list = append(list, d)
		}
	}
	sort.Strings(list)
	return list
}

// create makes the cgroup with its limits, before any process is in it.
func (c *cgroup) create(l Limits) error {
	for _, d := range c.dirs() {
		if err := makeCgroupDir(d); err != nil {
			return fmt.Errorf("create cgroup: %w", err)
		}
	}
	return c.ctrl.limit(l)
}

// makeCgroupDir calls MkdirAll up to five times, because another agent may remove an empty parent while MkdirAll runs.
func makeCgroupDir(dir string) error {
	var err error
	for range 5 {
		if err = os.MkdirAll(dir, 0o755); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// joinFiles returns the files into which a process writes "0" to enter the cgroup.
func (c *cgroup) joinFiles() []string {
	var list []string
	for _, d := range c.dirs() {
		list = append(list, filepath.Join(d, "cgroup.procs"))
	}
	return list
}

// procs lists the processes in the cgroup and in the cgroups that the program made below it.
func (c *cgroup) procs() ([]int, error) {
	dirs := c.dirs()
	if len(dirs) == 0 {
		return nil, nil
	}
	var pids []int
	err := filepath.WalkDir(dirs[0], func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return ignoreGone(err)
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for _, f := range strings.Fields(string(b)) {
			// 0 stands for a process outside this pid namespace. kill(0) would signal this process's own group.
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
		return ignoreGone(err)
	})
	return pids, err
}

// ignoreGone returns nil for the errors of a cgroup that disappears while it is read, and err otherwise.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// empty reports whether no process is in the cgroup. It returns true for a nil cgroup, and false if the cgroup can't be
// read.
func (c *cgroup) empty() bool {
	if c == nil {
		return true
	}
	pids, err := c.procs()
	return err == nil && len(pids) == 0
}

// killEach sends SIGKILL to every process in the cgroup except this one.
func (c *cgroup) killEach() error {
	pids, err := c.procs()
	for _, pid := range pids {
		if pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // an error means that the process has ended
		}
	}
	return err
}

// remove deletes the empty cgroup and the cgroups that the program made below it. A cgroup may stay busy for a moment
// after its last process has ended, so remove tries for up to a second per directory.
func (c *cgroup) remove() error {
	var errs []error
	for _, d := range append(c.dirs(), c.ref.Extra...) {
		errs = append(errs, removeCgroupDir(d))
	}
	return errors.Join(errs...)
}

func removeCgroupDir(dir string) error {
	var err error
	poll(time.Second, 5*time.Millisecond, func() bool {
		err = removeCgroupTree(dir)
		return !errors.Is(err, unix.EBUSY)
	})
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}

// removeCgroupTree removes the cgroups below dir, and then dir. The files in these directories belong to the kernel and
// disappear with them.
func removeCgroupTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ignoreGone(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroupTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return ignoreGone(unix.Rmdir(dir))
}

func writeCgroup(dir, file string, value int64) error {
	return writeCgroupString(dir, file, strconv.FormatInt(value, 10))
}

func writeCgroupString(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func readCgroupInt(dir, file string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// readCgroupOptional reads a number that not every kernel or cgroup has. It returns Unknown if the file is missing, and
// for "max" and noLimit1, which stand for no limit.
func readCgroupOptional(dir, file string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	text := strings.TrimSpace(string(b))
	if errors.Is(err, fs.ErrNotExist) || err == nil && text == "max" {
		return Unknown, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if n >= noLimit1 {
		return Unknown, err
	}
	return n, err
}

// readCgroupKey reads the number of key from a file of "key value" lines. It returns 0 if the key is missing.
func readCgroupKey(dir, file, key string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			return strconv.ParseInt(f[1], 10, 64)
		}
	}
	return 0, nil
}
