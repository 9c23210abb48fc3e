package driver

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/driver/inside"
	"github.com/outspan/outspan/agent/driver/oci"
)

// ociRuntime is what a launch of a container needs besides its Spec.
type ociRuntime struct {
	Path       string `cbor:"1,keyasint"` // of runc
	Init       string `cbor:"2,keyasint"` // static binary that becomes process 1
	CgroupPath string `cbor:"3,keyasint"` // the instance's cgroup below each mount
	Seccomp    []byte `cbor:"4,keyasint"` // JSON of the profile; empty = none
}

// detectRuntime returns the path of the OCI runtime, or why this node can't run containers.
func (c Config) detectRuntime(host *cgroupHost) (path, why string) {
	if os.Geteuid() != 0 {
		return "", "the agent is not root"
	}
	if host == nil {
		return "", "it has no cgroups"
	}
	path, err := exec.LookPath(c.Runtime)
	if err != nil {
		return "", fmt.Sprintf("the OCI runtime %s is not installed", c.Runtime)
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", err.Error()
	}
	return path, ""
}

func (d *Driver) ociRuntime(l launch) (ociRuntime, error) {
	r := ociRuntime{Path: d.runtime, CgroupPath: "/" + filepath.Join(d.cfg.CgroupParent, cgroupName(l.Spec.ID, l.Token))}
	if d.cfg.Seccomp != nil {
		c := l.Spec.Container
		profile, err := d.cfg.Seccomp(oci.Capabilities(c.CapAdd, c.CapDrop))
		if err != nil {
			return r, err
		}
		r.Seccomp = profile
	}
	var err error
	r.Init, err = d.containerInit()
	return r, err
}

// containerInit returns the path of a copy of the binary that becomes process 1 of containers. A copy, because an
// upgrade may replace or remove the binary, and containers of root could otherwise see its inode. The copy is made once
// for each version of the binary. Containers that run keep the old file.
func (d *Driver) containerInit() (string, error) {
	d.initMu.Lock()
	defer d.initMu.Unlock()
	source, err := os.Open(d.cfg.ContainerInit)
	if err != nil {
		return "", err
	}
	defer source.Close()
	st, err := source.Stat()
	if err != nil {
		return "", err
	}
	path := filepath.Join(d.cfg.Dir, "container-init")
	if old, err := os.Stat(path); err == nil && old.Size() == st.Size() && old.ModTime().Equal(st.ModTime()) {
		return path, nil
	}
	if err := static(source); err != nil {
		return "", fmt.Errorf("%s can't be process 1 of a container: %w", d.cfg.ContainerInit, err)
	}
	tmp, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(tmp, source)
	err = errors.Join(err, tmp.Chmod(0o755), tmp.Sync(), tmp.Close(), os.Chtimes(tmp.Name(), st.ModTime(), st.ModTime()))
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return path, err
}

// static returns an error if a binary needs a dynamic linker, which an image need not have.
func static(f io.ReaderAt) error {
	bin, err := elf.NewFile(f)
	if err != nil {
		return err
	}
	for _, p := range bin.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("it is linked dynamically; build it with CGO_ENABLED=0")
		}
	}
	return nil
}

// spawn has the runtime make the container, records the container's init as the main process, and then lets the init
// execute the program.
func (containers) spawn(s *shim) error {
	link, other, err := newLink()
	if err != nil {
		s.logs.started()
		return err
	}
	bundle := s.launch.bundle(s.dir)
	step, err := plan{Argv: []string{bundle.Runtime}, Env: s.launch.Env, Shim: os.Getpid(), Bundle: &bundle}.
		fork(s.logs.stdout, s.logs.stderr, other)
	s.logs.started()
	other.Close()
	if err == nil {
		err = s.awaitRuntime(step, bundle.Dir)
	}
	if err == nil {
		s.main, err = initOf(bundle.Dir)
	}
	if err == nil {
		err = s.writeIdentity(fileMain, s.main)
	}
	if err == nil {
		p := s.launch.plan(append([]string{s.launch.Spec.Command}, s.launch.Spec.Args...))
		err = link.send(p.insidePlan())
	}
	if err == nil {
		err = link.await(initTimeout)
	}
	s.end.started, s.link = time.Now(), link
	if err != nil {
		link.close()
		s.clear()
	}
	return err
}

// awaitRuntime waits until the runtime has made the container and has ended.
func (s *shim) awaitRuntime(step initStep, bundle string) error {
	if err := step.await(initTimeout); err != nil {
		return err // clear kills and reaps the step
	}
	timer := time.AfterFunc(initTimeout, func() { _ = syscall.Kill(step.pid, syscall.SIGKILL) })
	defer timer.Stop()
	waitNoReap(step.pid)
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(step.pid, &ws, 0, nil); err != nil {
		return fmt.Errorf("wait for the OCI runtime: %w", err)
	}
	if ws == 0 {
		return nil
	}
	if said := oci.Message(bundle); said != "" {
		return fmt.Errorf("the OCI runtime could not make the container: %s", said)
	}
	return fmt.Errorf("the OCI runtime ended with %s", describe(ws))
}

func describe(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "signal " + ws.Signal().String()
	}
	return "code " + strconv.Itoa(ws.ExitStatus())
}

// initOf returns the identity of the container's init. It is a child of this process, so its pid is not reused.
func initOf(bundle string) (Identity, error) {
	b, err := os.ReadFile(filepath.Join(bundle, oci.PidFile))
	if err != nil {
		return Identity{}, fmt.Errorf("find the container's init: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return Identity{}, fmt.Errorf("find the container's init: %w", err)
	}
	return identify(pid)
}

// clear kills and reaps everything that a failed start left. It blocks for up to leftoverTimeout.
func (s *shim) clear() {
	poll(leftoverTimeout, 5*time.Millisecond, func() bool {
		_ = s.cg.ctrl.killAll(s.cg) // an error does not matter, because the next pass tries again
		s.killDescendants()
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.ECHILD) {
				return s.cg.empty()
			}
			if pid == 0 || err != nil && !errors.Is(err, syscall.EINTR) {
				return false
			}
		}
	})
}

// becomeRuntime is the init step of a container. It passes its descriptor fdLink on as descriptor 3.
func (p plan) becomeRuntime(status *os.File) error {
	if err := dieWith(p.Shim); err != nil {
		return err
	}
	kept, err := unix.FcntlInt(status.Fd(), unix.F_DUPFD_CLOEXEC, fdLink+1)
	if err != nil {
		return err
	}
	unix.Umask(0o022)
	return p.Bundle.Become(func() error {
		if _, err := unix.Write(kept, []byte{'R'}); err != nil {
			return err
		}
		resetSignals()
		return unix.Dup3(fdLink, fdStatus, 0)
	})
}

// besideContainer says where a command runs beside a container's program.
type besideContainer struct{ runtime, bundle, id string }

// fork starts the runtime, which enters the container and becomes the init's twin, the parent of the command.
func (b besideContainer) fork(p inside.Plan, marks []string, stdin, stdout, stderr *os.File) (initStep, error) {
	l, other, err := newLink()
	if err != nil {
		return initStep{}, err
	}
	defer other.Close()
	pid, err := syscall.ForkExec(b.runtime, oci.ExecArgs(b.runtime, b.bundle, b.id), &syscall.ProcAttr{
		Dir: "/", Env: append(oci.RuntimeEnv(), marks...),
		Files: []uintptr{stdin.Fd(), stdout.Fd(), stderr.Fd(), other.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err == nil {
		err = l.send(p)
		if err != nil {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}
	if err != nil {
		l.close()
		return initStep{}, fmt.Errorf("enter the container: %w", err)
	}
	return initStep{pid: pid, link: l}, nil
}

// programEnds returns the channel that says how a container's program ended. It returns nil once that is known, and for
// programs without a container, whose end the shim sees by reaping them.
func (s *shim) programEnds() <-chan syscall.WaitStatus {
	if s.link == nil || s.end.exited || s.linkOver {
		return nil
	}
	return s.link.ended
}

// programEnded handles what programEnds sent. If the init said nothing, it has ended, and is reaped next.
func (s *shim) programEnded(ws syscall.WaitStatus, said bool) {
	if s.linkOver = true; said {
		s.mainEnded(ws)
	}
}
