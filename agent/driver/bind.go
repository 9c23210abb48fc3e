package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// Bind mounts the directory Source at Target. Only one instance and the commands that run beside it see the mount.
// Binds work only if Capabilities.Binds is true.
type Bind struct {
	Source string `cbor:"1,keyasint"` // absolute path of a directory; the instance's user needs no access to its parents
	Target string `cbor:"2,keyasint"` // absolute, clean, without symbolic links
	// If Make is true, a missing Target is made, with mode 0755. The driver sets Make, from Config.VolumePaths.
	Make bool `cbor:"3,keyasint,omitempty"`
}

// validateBinds checks the paths only. Bind.mount checks the directories on the disk.
func (s Spec) validateBinds() error {
	for i, b := range s.Binds {
		bad := func(format string, args ...any) error {
			return model.Refuse(CodeInvalidSpec, "instance %s can't have a directory mounted at %q: %s", s.ID, b.Target,
				fmt.Sprintf(format, args...))
		}
		switch {
		case !filepath.IsAbs(b.Target) || filepath.Clean(b.Target) != b.Target || strings.ContainsRune(b.Target, 0):
			return bad("it is not a clean absolute path")
		case b.Target == "/":
			return bad("it would hide the whole node")
		case within(b.Target, "/proc") || within(b.Target, "/sys") || within(b.Target, "/dev"):
			return bad("/proc, /sys and /dev belong to the kernel")
		case !filepath.IsAbs(b.Source) || strings.ContainsRune(b.Source, 0):
			return bad("its source %q is not an absolute path", b.Source)
		}
		for j, other := range s.Binds {
			if j < i && overlap(b.Target, other.Target) {
				return bad("%s is mounted too, and one may not be inside the other", other.Target)
			}
			if overlap(b.Target, other.Source) {
				return bad("it overlaps with %s, where the data is", other.Source)
			}
		}
	}
	return nil
}

// checkBinds refuses all binds if the agent can't mount. It also refuses targets that overlap with the driver's
// directories.
func (d *Driver) checkBinds(s Spec) error {
	if len(s.Binds) > 0 && !d.caps.Binds {
		return model.Refuse(CodeInvalidSpec, "instance %s can't have a directory mounted at %q: the agent may not mount",
			s.ID, s.Binds[0].Target).
			WithHint("run the agent as root")
	}
	for _, b := range s.Binds {
		for _, own := range []string{d.cfg.Dir, d.cfg.WorkDir} {
			if overlap(b.Target, own) {
				return model.Refuse(CodeInvalidSpec,
					"instance %s can't have a directory mounted at %q: it overlaps with %s of the agent", s.ID, b.Target, own)
			}
		}
	}
	return nil
}

// mayMake returns a copy of binds, with Make set where the target is one of Config.VolumePaths or below one.
func (d *Driver) mayMake(binds []Bind) []Bind {
	binds = slices.Clone(binds)
	for i := range binds {
		binds[i].Make = slices.ContainsFunc(d.cfg.VolumePaths, func(dir string) bool {
			return within(binds[i].Target, filepath.Clean(dir))
		})
	}
	return binds
}

// within reports whether path is dir or below dir. Both paths must be clean.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func overlap(a, b string) bool { return within(a, b) || within(b, a) }

// probeBinds returns nil if the agent can make Binds. It forks a child with its own mount namespace and a program that
// doesn't exist. The error ENOTDIR is about the program's path, and shows that the kernel has made the namespace.
func probeBinds() error {
	if os.Geteuid() != 0 {
		return errors.New("needs root")
	}
	_, err := syscall.ForkExec("/proc/self/exe/none", []string{"none"}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS},
	})
	if errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

// mount makes the plan's mounts for the calling thread, which later executes the program. A command beside an instance
// enters the mount namespace of the instance's program, unless joinMounts returns false. In all other cases mount makes
// a new mount namespace.
func (p plan) mount() error {
	if len(p.Binds) == 0 {
		return nil
	}
	if p.Beside.PID != 0 {
		if joined, err := joinMounts(p.Beside); joined || err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// Without this call, mounts could propagate between this namespace and the rest of the node.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	for _, b := range p.Binds {
		if err := b.mount(); err != nil {
			return fmt.Errorf("mount %s at %s: %w", b.Source, b.Target, err)
		}
	}
	return nil
}

// joinMounts enters the mount namespace of a process. It does not enter the namespace, and returns false, if it is not
// owned by the user namespace of this process. Any user can make such a mount namespace and mount anything in it, but
// this process still has the agent's rights.
func joinMounts(beside Identity) (bool, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", beside.PID))
	if err != nil {
		return false, fmt.Errorf("find the mounts of the program: %w", err)
	}
	defer ns.Close()
	if !beside.Alive() { // checked after opening, because before that another process may have got the pid
		return false, errors.New("enter the mounts of the program: it has ended")
	}
	if ours, err := ownedByUs(ns); err != nil || !ours {
		return false, err
	}
	// The kernel refuses setns for a thread that shares its root and working directory with other threads.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return false, fmt.Errorf("part from the other threads: %w", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return false, fmt.Errorf("enter the mounts of the program: %w", err)
	}
	return true, nil
}

// ownedByUs reports whether a namespace belongs to the user namespace of this process.
func ownedByUs(ns *os.File) (bool, error) {
	fd, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_USERNS)
	if errors.Is(err, unix.EPERM) {
		return false, nil // the namespace belongs to another user namespace
	}
	if err != nil {
		return false, fmt.Errorf("find the owner of the program's mounts: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var owner, own unix.Stat_t
	if err := unix.Fstat(fd, &owner); err != nil {
		return false, err
	}
	if err := unix.Stat("/proc/self/ns/user", &own); err != nil {
		return false, err
	}
	return owner.Dev == own.Dev && owner.Ino == own.Ino, nil
}

// mount mounts Source at Target, with nosuid and nodev. It uses descriptors of open directories instead of paths, so
// that nobody can redirect it with a symbolic link. The descriptors are closed on exec.
func (b Bind) mount() error {
	source, err := unix.Open(b.Source, openDirectory, 0)
	if err != nil {
		return fmt.Errorf("open the source: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(source, &fs); err != nil {
		return fmt.Errorf("look at the source: %w", err)
	}
	parent, target, err := openTarget(b.Target, b.Make)
	if err != nil {
		return err
	}
	if err := unix.Mount(descriptorPath(source), descriptorPath(target), "", unix.MS_BIND, ""); err != nil {
		return err
	}
	// The kernel takes options only in a second call, which replaces all options. So read-only and noexec of the source's
	// mount are set again.
	mounted, err := unix.Openat(parent, filepath.Base(b.Target), openDirectory, 0)
	if err != nil {
		return fmt.Errorf("open the mount: %w", err)
	}
	kept := uintptr(fs.Flags) & (unix.MS_RDONLY | unix.MS_NOEXEC) // statfs and mount use the same bits
	flags := unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | kept
	if err := unix.Mount("", descriptorPath(mounted), "", flags, ""); err != nil {
		return fmt.Errorf("set nosuid and nodev: %w", err)
	}
	return nil
}

const openDirectory = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

func descriptorPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// DefaultVolumePaths returns the default of Config.VolumePaths. In these directories the system keeps nothing, or any
// user may make directories. A new directory elsewhere, such as in /etc, could change what a root program does.
func DefaultVolumePaths() []string {
	return []string{"/data", "/mnt", "/opt", "/srv", "/tmp", "/var/tmp"}
}

// openTarget opens the directory path, name by name from the root, and returns descriptors of its parent and of the
// directory. If mayMake is true, it makes missing directories. It follows no symbolic link, since a link could lead a
// root process anywhere.
func openTarget(path string, mayMake bool) (parent, dir int, err error) {
	if dir, err = unix.Open("/", openDirectory, 0); err != nil {
		return -1, -1, err
	}
	at := "/"
	for name := range strings.SplitSeq(path[1:], "/") {
		parent, at = dir, filepath.Join(at, name)
		dir, err = unix.Openat(parent, name, openDirectory, 0)
		if errors.Is(err, unix.ENOENT) && !mayMake {
			return -1, -1,
				fmt.Errorf("%s does not exist, and volume_paths of the agent lets none be made there; make it yourself or add it "+
					"to volume_paths", at)
		}
		if errors.Is(err, unix.ENOENT) {
			if err = unix.Mkdirat(parent, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
				return -1, -1, fmt.Errorf("make %s: %w", at, err)
			}
			dir, err = unix.Openat(parent, name, openDirectory, 0)
		}
		if err != nil {
			return -1, -1, notDirectory(parent, name, at, err)
		}
	}
	return parent, dir, nil
}

// notDirectory returns an error that explains why a step of openTarget failed.
func notDirectory(parent int, name, at string, err error) error {
	if !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("open %s: %w", at, err)
	}
	link := make([]byte, 256)
	if n, err := unix.Readlinkat(parent, name, link); err == nil {
		return fmt.Errorf("%s is a symbolic link to %s; name the directory itself", at, link[:n])
	}
	return fmt.Errorf("%s exists and is not a directory", at)
}
