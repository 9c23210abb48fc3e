package driver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/fxamacker/cbor/v2"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/driver/inside"
	"github.com/outspan/outspan/agent/driver/oci"
)

// plan has the instructions for an init step, the process that prepares itself and then becomes the program. The step
// reads the plan from a memory file at descriptor fdPlan.
type plan struct {
	Argv    []string          `cbor:"1,keyasint"`
	Env     []string          `cbor:"2,keyasint"`
	Dir     string            `cbor:"3,keyasint"`
	Account account           `cbor:"4,keyasint"`
	Rlimits map[string]Rlimit `cbor:"5,keyasint"`
	Join    []string          `cbor:"6,keyasint"` // the cgroup.procs files of the cgroups to join
	Shim    int               `cbor:"7,keyasint"` // pid of the shim whose death kills the program; 0 = no shim
	OwnDir  bool              `cbor:"8,keyasint"` // the driver made Dir for this user
	Binds   []Bind            `cbor:"9,keyasint"`
	// the process whose mount namespace the step joins; if this is zero, the step mounts the Binds itself
	Beside Identity `cbor:"10,keyasint"`
	// set for a container: the step becomes the OCI runtime
	Bundle *oci.Bundle `cbor:"11,keyasint,omitempty"`
	// set for a command beside a container's program, for which there is no step
	Command *besideContainer `cbor:"-"`
}

// Descriptors that an init step inherits besides the three standard ones.
const (
	fdStatus = 3 // pipe to the parent: 'R' right before the exec, 'E' and a message after an error
	fdPlan   = 4
	fdLink   = 5 // of a container's step: the link of its init
)

// InitMain implements the hidden subcommand `shim-init`. It enters the cgroup, makes the mounts, gives up its rights
// and becomes the program. Due to this order no instruction of the program runs outside its limits. InitMain returns
// only after an error, which it has sent to its parent.
func InitMain(args []string) int {
	// Rights, mounts, no_new_privs and the parent death signal belong to a thread, so the thread that sets them must also
	// call execve.
	runtime.LockOSThread()
	CloseInherited(fdPlan + len(args)) // a container's step has an argument for its link
	unix.CloseOnExec(fdStatus)
	unix.CloseOnExec(fdPlan)
	status := os.NewFile(fdStatus, "status")
	fmt.Fprintf(status, "E%v", becomeProgram(status))
	return 125
}

// becomeProgram carries out the plan and executes the program. It writes 'R' to status right before the exec. It
// returns only after an error.
func becomeProgram(status *os.File) error {
	p, err := readPlan()
	if err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	if p.Bundle != nil {
		return p.becomeRuntime(status)
	}
	if err := p.enter(); err != nil {
		return err
	}
	// If the driver made the directory, its parents may be closed to the user, so the step enters the directory before it
	// drops its rights. A directory that a Spec names must be reachable with the user's own rights.
	if p.OwnDir {
		if err := os.Chdir(p.Dir); err != nil {
			return fmt.Errorf("enter the working directory: %w", err)
		}
	}
	if err := p.dropRights(); err != nil {
		return err
	}
	if !p.OwnDir {
		if err := os.Chdir(p.Dir); err != nil {
			return fmt.Errorf("enter the working directory as uid %d: %w", p.Account.UID, err)
		}
	}
	path, err := inside.LookPath(p.Argv[0], p.Env)
	if err != nil {
		return err
	}
	resetSignals()
	if _, err := status.Write([]byte{'R'}); err != nil {
		return err
	}
	return fmt.Errorf("execute %s: %w", path, syscall.Exec(path, p.Argv, p.Env))
}

func readPlan() (plan, error) {
	f := os.NewFile(fdPlan, "plan")
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, recordLimit))
	if err != nil {
		return plan{}, err
	}
	var p plan
	if err := cbor.Unmarshal(b, &p); err != nil {
		return plan{}, err
	}
	if len(p.Argv) == 0 {
		return plan{}, errors.New("it names no program")
	}
	return p, nil
}

// enter carries out the parts of the plan that need the agent's rights.
func (p plan) enter() error {
	if err := dieWith(p.Shim); err != nil {
		return err
	}
	for _, file := range p.Join {
		if err := writeCgroupString(filepath.Dir(file), filepath.Base(file), "0"); err != nil {
			return fmt.Errorf("join the cgroup: %w", err)
		}
	}
	// The step inherits the shim's score, with which the out-of-memory killer would spare the program. Raising the score
	// is always allowed.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)
	unix.Umask(0o022)
	if err := p.mount(); err != nil {
		return err
	}
	for name, r := range p.Rlimits {
		number, ok := rlimitNumber(name)
		if !ok {
			return fmt.Errorf("set rlimit %s: no such limit", name)
		}
		if err := unix.Setrlimit(number, &unix.Rlimit{Cur: r.Soft, Max: r.Hard}); err != nil {
			return fmt.Errorf("set rlimit %s: %w", name, err)
		}
	}
	return nil
}

// dropRights changes to the account's user if Account.Switch is set, and makes sure that the program can't gain new
// rights.
func (p plan) dropRights() error {
	a := p.Account
	if a.Switch {
		// A program that reopens /dev/stdout or /dev/stderr must own the pipe behind it.
		_ = unix.Fchown(1, a.UID, a.GID)
		_ = unix.Fchown(2, a.UID, a.GID)
		if err := syscall.Setgroups(a.Groups); err != nil {
			return fmt.Errorf("set groups: %w", err)
		}
		if err := syscall.Setgid(a.GID); err != nil {
			return fmt.Errorf("set gid %d: %w", a.GID, err)
		}
		if err := syscall.Setuid(a.UID); err != nil {
			return fmt.Errorf("set uid %d: %w", a.UID, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return dieWith(p.Shim) // changing the user has cleared the parent death signal
}

// dieWith asks the kernel to kill this process when its parent, the shim, dies. It does nothing if shim is 0, and
// returns an error if the shim has died already. Without the shim, nobody would read the program's output or kill the
// program at the end of its lease.
func dieWith(shim int) error {
	if shim == 0 {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("set the parent death signal: %w", err)
	}
	if os.Getppid() != shim {
		return errors.New("the shim died in the meantime")
	}
	return nil
}

// CloseInherited closes all descriptors with a number above last that stay open across exec. Go opens its own
// descriptors with close-on-exec, so the others were inherited from whoever started the agent. A shim or a door would
// keep such a pipe or file open for as long as it runs.
func CloseInherited(last int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= last {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// resetSignals gives every signal its default action and empties the signal mask. Otherwise signals that a parent
// ignores, as under nohup, would stay ignored across execve. resetSignals calls the kernel directly, because package
// os/signal can't reset the two signals that the C library reserves.
func resetSignals() {
	var fallback [4]uint64 // the kernel's sigaction on 64-bit machines: SIG_DFL, no flags, no restorer, an empty mask
	for sig := uintptr(1); sig <= 64; sig++ {
		// The call fails for SIGKILL and SIGSTOP, which can't be ignored anyway.
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&fallback)), 0, 8, 0,
			0) //nolint:gosec // see above
	}
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil)
}
