// Package oci turns what a container runs into the bundle of an OCI runtime such as runc, and becomes that runtime.
package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// InitPath is where the container's init is inside. It is in /dev, whose file system belongs to the container, so that
// nothing is written to the image.
const InitPath = "/dev/outspan-init"

// Mount is a file system, or a file or directory of the node, that a container sees. Agents and shims of other releases
// read its stored form.
type Mount struct {
	Type    string   `cbor:"1,keyasint,omitempty"` // such as overlay; "" = bind
	Source  string   `cbor:"2,keyasint"`
	Target  string   `cbor:"3,keyasint,omitempty"` // inside the container; "" for a part of the root
	Options []string `cbor:"4,keyasint,omitempty"` // as for mount(8)
	// Give says that the source, a directory, is given to the container's user. What is in it keeps its owners.
	Give bool `cbor:"5,keyasint,omitempty"`
}

// Tmpfs is a file system in memory. What is in it counts for the container's memory.
type Tmpfs struct {
	Target string `cbor:"1,keyasint"`
	Bytes  int64  `cbor:"2,keyasint,omitempty"` // 0 = half of the node's memory
	// 0 = 01777. If the image has the directory, runc before 1.2 uses the directory's mode.
	Mode uint32 `cbor:"3,keyasint,omitempty"`
}

// Rlimit is a limit by its name in limits.conf.
type Rlimit struct {
	Name       string
	Soft, Hard uint64
}

// Bundle says how a container is made.
type Bundle struct {
	ID       string
	Dir      string // made if it is missing
	Runtime  string // path of the OCI runtime
	Init     string // static binary with the subcommand of package inside
	Rootfs   []Mount
	ReadOnly bool
	Tmpfs    []Tmpfs
	Mounts   []Mount
	CapAdd   []string
	CapDrop  []string
	User     string // see Spec.User of package driver
	Hostname string
	NetNS    string
	ShmBytes int64
	Rlimits  []Rlimit
	Cgroup   string // path below the cgroup mounts; the limits are set already
	Env      []string
	Seccomp  []byte // JSON of a profile; empty = none
}

// Names of the files in a bundle.
const (
	fileConfig  = "config.json"
	fileProcess = "process.json"
	dirRoot     = "rootfs"
	dirState    = "runtime" // the runtime's own
	// PidFile has the pid of the container's init.
	PidFile = "pid"
	// LogFile has the runtime's own messages.
	LogFile = "runtime.log"
)

// Become mounts the root in a mount namespace of its own, writes the bundle, and executes the runtime, which starts the
// container and ends. So nothing has to be unmounted after any kind of crash. Descriptor 3 is passed on to the
// container's init. The calling thread must be locked. Become calls ready right before it executes the runtime. It
// returns only after an error.
func (b Bundle) Become(ready func() error) error {
	root := filepath.Join(b.Dir, dirRoot)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	for _, m := range b.Rootfs {
		if err := m.mount(root); err != nil {
			return fmt.Errorf("mount the root of the container: %w", err)
		}
	}
	who, err := findUser(root, b.User)
	if err != nil {
		return err
	}
	for _, m := range b.Mounts {
		if m.Give {
			if err := os.Lchown(m.Source, int(who.UID), int(who.GID)); err != nil {
				return fmt.Errorf("give a directory to the container's user: %w", err)
			}
		}
	}
	spec := b.Spec(who)
	if len(b.Seccomp) > 0 {
		if err := json.Unmarshal(b.Seccomp, &spec.Linux.Seccomp); err != nil {
			return fmt.Errorf("read the seccomp profile: %w", err)
		}
	}
	if err := errors.Join(b.write(fileConfig, spec), b.write(fileProcess, spec.Process)); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	args := []string{b.Runtime, "--root", filepath.Join(b.Dir, dirState), "--log", filepath.Join(b.Dir, LogFile), "run",
		"--detach", "--preserve-fds", "1", "--pid-file", filepath.Join(b.Dir, PidFile), "--bundle", b.Dir, b.ID}
	for _, stale := range []string{PidFile, LogFile, dirState} { // of an earlier run
		if err := os.RemoveAll(filepath.Join(b.Dir, stale)); err != nil {
			return err
		}
	}
	if err := ready(); err != nil {
		return err
	}
	return fmt.Errorf("execute the OCI runtime %s: %w", b.Runtime, syscall.Exec(b.Runtime, args, RuntimeEnv()))
}

// RuntimeEnv returns the environment of the OCI runtime.
func RuntimeEnv() []string { return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"} }

// ExecArgs returns the arguments with which a runtime runs the init in the container, as the container's user and with
// its limits. Descriptor 3 is passed on to it.
func ExecArgs(runtime, dir, id string) []string {
	return []string{runtime, "--root", filepath.Join(dir, dirState), "exec", "--preserve-fds", "1", "--process",
		filepath.Join(dir, fileProcess), id}
}

// Message returns the last error that the runtime logged, or "".
func Message(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, LogFile))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	last := lines[len(lines)-1]
	if _, text, ok := strings.Cut(last, "msg="); ok {
		last = strings.Trim(text, `"`)
	}
	return strings.ReplaceAll(last, `\"`, `"`)
}

func (b Bundle) write(name string, v any) error {
	body, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.Dir, name), body, 0o600)
}

// mount mounts m at the root of the container.
func (m Mount) mount(root string) error {
	flags, data, bind := uintptr(0), []string{}, m.Type == "" || m.Type == "bind"
	for _, o := range m.Options {
		switch o {
		case "ro":
			flags |= unix.MS_RDONLY
		case "rw", "bind", "rbind":
		case "nosuid":
			flags |= unix.MS_NOSUID
		case "nodev":
			flags |= unix.MS_NODEV
		default:
			data = append(data, o)
		}
	}
	if m.Type == "overlay" {
		if err := shorten(data); err != nil {
			return err
		}
	}
	if !bind {
		return unix.Mount(m.Source, root, m.Type, flags, strings.Join(data, ","))
	}
	if err := unix.Mount(m.Source, root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil || flags == 0 {
		return err
	}
	return unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
}

// shorten makes the lower directories of an overlay relative and enters the directory that has all of them, because the
// kernel takes 4095 bytes of options, and an image may have more than a hundred layers. The thread must have a working
// directory of its own, as it has after unshare.
func shorten(options []string) error {
	for i, o := range options {
		list, ok := strings.CutPrefix(o, "lowerdir=")
		if !ok || !filepath.IsAbs(list) || strings.Contains(list, `\`) {
			continue
		}
		dirs := strings.Split(list, ":")
		common := filepath.Dir(dirs[0])
		for _, d := range dirs {
			for !strings.HasPrefix(d, strings.TrimSuffix(common, "/")+"/") {
				common = filepath.Dir(common)
			}
		}
		for j, d := range dirs {
			dirs[j], _ = filepath.Rel(common, d) // can't fail, as d is below common
		}
		options[i] = "lowerdir=" + strings.Join(dirs, ":")
		return os.Chdir(common)
	}
	return nil
}
