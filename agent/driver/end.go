package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outspan/outspan/internal/erase"
	"github.com/outspan/outspan/model"
)

// End kills the shim and all processes of an instance that Adopt listed as unclear, even if the shim does not answer.
// If the launch can be read, End also records an exit, so that a later Readopt returns an ended task. If the instance
// has no state directory, End does nothing.
//
// It returns CodeShimSilent if something of the instance may still run. It returns CodeStillRunning if the instance is
// being started or removed, or is adopted; use Task.Stop for an adopted instance. It blocks for up to half a minute.
func (d *Driver) End(ctx context.Context, id ID) error {
	if err := d.claim(id); err != nil {
		return err
	}
	defer d.unclaim(id)
	if _, known := d.Task(id); known {
		return model.Refuse(CodeStillRunning, "instance %s is adopted", id).WithHint("stop it")
	}
	dir := d.dir(id)
	if _, err := os.Lstat(string(dir)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	l, unread := dir.readLaunch()
	run := l.Run
	lock, err := d.endRun(ctx, dir, &l)
	if err != nil {
		return advise(model.Refuse(CodeShimSilent, "instance %s can't be ended: %v", id, err), err)
	}
	defer lock.Close()
	if unread != nil && l.Token == "" {
		return model.Refuse(CodeShimSilent, "whether instance %s has ended can't be told: %v", id, unread)
	}
	if _, known := dir.readExit(run); known || unread != nil {
		return nil
	}
	return WriteRecord(dir.path(fileExit),
		exitRecord{Run: run, Reason: ReasonShimLost, Code: -1,
			Message: "its shim did not answer; it was killed, and what it left",
			Ended:   time.Now().UnixMilli()})
}

// Launched returns the Spec with which an instance was started, even if Adopt listed the instance as unclear. It
// returns false if the Spec can't be read.
func (d *Driver) Launched(id ID) (spec Spec, known bool) {
	l, err := d.dir(id).readLaunch()
	if err != nil || l.Spec.ID != id {
		return Spec{}, false
	}
	return l.Spec, true
}

// advise adds a hint to a refusal for an instance that may run. The parameter why is the cause of the refusal.
func advise(refused *model.Error, why error) *model.Error {
	if silent := (silentShim{}); errors.As(why, &silent) && silent.pid != 0 {
		return refused.WithHint("kill that process, or stop the instance")
	}
	return refused.WithHint("stop the instance to end what may run of it")
}

// discard kills what still runs of an instance whose launch is lost, and removes its state directory. If something may
// still run, it keeps the directory and returns an error.
func (d *Driver) discard(ctx context.Context, dir stateDir) error {
	lock, err := d.endRun(ctx, dir, &launch{})
	if err != nil {
		return err
	}
	defer lock.Close()
	return erase.Tree(string(dir))
}

// endRun kills the shim of a state directory, if a shim holds its lock, and every process with the token of the run. It
// also removes the run's cgroup. It returns the lock, which the caller must close. If l has no token, endRun fills in
// the token and the cgroup from the other files or the processes. After an error something may still run. It blocks for
// up to half a minute.
func (d *Driver) endRun(ctx context.Context, dir stateDir, l *launch) (*os.File, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	l.Boot = boot // every process with the run's token that can be found runs on this kernel, whatever boot id was stored
	shim, main := dir.traces(l)
	lock, err := dir.lock()
	if errors.Is(err, errLocked) {
		if shim = dir.holder(ctx, shim); shim.PID == 0 {
			return nil, silentShim{}
		}
		if l.Token == "" {
			if l.Token = tokenOf(shim); l.Token != "" {
				l.Cgroup = d.host.ref(ID(filepath.Base(string(dir))), l.Token)
			}
		}
		d.cfg.Logger.Warn("killing what runs of a state directory", "dir", dir, "shim", shim.PID)
		endShim(ctx, dir, shim)
		if lock, err = lockPatiently(dir.path(fileLock)); errors.Is(err, errLocked) {
			err = silentShim{shim.PID}
		}
	}
	if err != nil {
		return nil, err
	}
	if l.Token == "" && shim.PID == 0 {
		return lock, nil // no trace shows that anything was ever started
	}
	if err := killLeftovers(ctx, *l, shim, main); err != nil {
		lock.Close()
		return nil, err
	}
	if c := l.Cgroup.open(); c != nil {
		if err := c.remove(); err != nil {
			d.cfg.Logger.Warn("cgroup remains", "dir", dir, "error", err)
		}
	}
	return lock, nil
}

// silentShim is the error for a shim that holds its lock and does not answer.
type silentShim struct{ pid int } // 0 if the pid is not known

func (e silentShim) Error() string {
	if e.pid == 0 {
		return "its shim holds the lock, but does not answer"
	}
	return fmt.Sprintf("its shim, process %d, holds the lock, but does not answer", e.pid)
}

// traces returns the identities of the shim and the program, as the files of the run have them. An identity is zero if
// its file can't be read, or is of another run or boot. If l has no token, traces fills in token and cgroup from these
// files.
func (d stateDir) traces(l *launch) (shim, main Identity) {
	for file, id := range map[string]*Identity{fileShim: &shim, fileMain: &main} {
		var r runIdentity
		if ReadRecord(d.path(file), &r) != nil || l.Run != 0 && l.Run != r.Run {
			continue
		}
		if r.ID.Boot == l.Boot {
			*id = r.ID
		}
		if l.Token == "" {
			l.Token, l.Cgroup = r.Token, r.Cgroup
		}
	}
	return shim, main
}

// holder finds the shim that holds the directory's lock, even if the shim does not answer. If the process in noted is
// alive, it returns noted. Otherwise it returns the process that listens on the control socket. If nothing listens, it
// looks for a shim with the directory's path in its command line. It returns zero if it finds no process.
func (d stateDir) holder(ctx context.Context, noted Identity) Identity {
	if noted.Alive() {
		return noted
	}
	if c, err := dialControl(ctx, d); err == nil {
		defer c.Close()
		if u, ok := c.(*net.UnixConn); ok {
			if id, err := Listener(u); err == nil && id.Alive() {
				return id
			}
		}
	}
	list, err := processes()
	if err != nil {
		return Identity{}
	}
	for _, p := range list {
		cmd, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/cmdline")
		if args := bytes.Split(cmd, []byte{0}); err == nil && len(args) > 2 && string(args[1]) == "shim" &&
			string(args[2]) == string(d) {
			if id, err := identify(p.pid); err == nil && ours(p.pid) {
				return id
			}
		}
	}
	return Identity{}
}

// ours reports whether a process runs as the agent's user. Another user's process could imitate a shim's command line.
func ours(pid int) bool {
	var st syscall.Stat_t
	return syscall.Stat("/proc/"+strconv.Itoa(pid), &st) == nil && int(st.Uid) == os.Geteuid()
}

// endShim kills a shim and its descendants. First it asks the shim to kill its instance, because the shim knows all
// processes of the instance. It blocks for up to 12 s.
func endShim(ctx context.Context, dir stateDir, shim Identity) {
	list, _ := processes()
	below := descendants(list, shim.PID)
	if _, err := callShim(ctx, dir, request{Op: opStop, Signal: int(syscall.SIGKILL)}, time.Second); err == nil {
		awaitEnd(shim, 5*time.Second)
	}
	_ = shim.Kill()
	for _, p := range below {
		_ = p.identity(shim.Boot).signal(syscall.SIGKILL)
	}
}

// tokenOf reads the token of a run from the environment of a descendant of the shim. It returns "" if no descendant has
// a token.
func tokenOf(shim Identity) string {
	list, err := processes()
	if err != nil {
		return ""
	}
	for _, p := range descendants(list, shim.PID) { // the shim's own children, such as the program, come first
		env, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
		if err != nil {
			continue
		}
		entries := strings.Split(string(env), "\x00")
		at := slices.IndexFunc(entries, func(e string) bool {
			return strings.HasPrefix(e, envRun+"=") && len(e) == len(envRun)+1+tokenLength
		})
		if at >= 0 {
			return entries[at][len(envRun)+1:]
		}
	}
	return ""
}
