package driver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/fxamacker/cbor/v2"
	"golang.org/x/sys/unix"
)

// plan returns the plan with which an init step runs argv as the instance's user, inside the instance's limits.
func (l launch) plan(argv []string) plan {
	p := plan{Argv: argv, Env: l.Env, Dir: l.Dir, Account: l.Account, Rlimits: l.Spec.Limits.Rlimits,
		OwnDir: l.OwnDir, Binds: l.Spec.Binds}
	if c := l.Cgroup.open(); c != nil {
		p.Join = c.joinFiles()
	}
	return p
}

// initStep is an init step that was forked and is about to become the program.
type initStep struct {
	pid    int
	status *os.File // read end of the pipe that the step has as fdStatus
	link   *link    // of a command beside a container's program, which has no status; otherwise nil
}

// fork starts an init step, with this process's binary, in a process group of its own. The step of a container also
// gets an end of a link. The caller must reap the step.
func (p plan) fork(stdout, stderr *os.File, link ...*os.File) (initStep, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return initStep{}, err
	}
	defer null.Close()
	if p.Command != nil {
		return p.Command.fork(p.insidePlan(), p.marks(), null, stdout, stderr)
	}
	mem, err := p.memory()
	if err != nil {
		return initStep{}, err
	}
	defer mem.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return initStep{}, err
	}
	defer w.Close()
	argv, files := []string{"outspan", "shim-init"}, []uintptr{null.Fd(), stdout.Fd(), stderr.Fd(), w.Fd(), mem.Fd()}
	for _, end := range link {
		argv, files = append(argv, "link"), append(files, end.Fd())
	}
	pid, err := syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   append(initEnv(), p.marks()...),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		r.Close()
		return initStep{}, fmt.Errorf("fork the init step: %w", err)
	}
	return initStep{pid: pid, status: r}, nil
}

// initEnv returns the init step's environment. It keeps the number of threads low, because the step may enter a cgroup
// with a low limit of processes and threads.
func initEnv() []string { return []string{"GOMAXPROCS=1", "GOTRACEBACK=none"} }

// marks returns the entries of the program's environment that identify the processes of a run. fork gives them to the
// init step too, so that a lost step can be found.
func (p plan) marks() []string {
	var list []string
	for _, e := range p.Env {
		for _, key := range []string{envInstance, envRun} {
			if len(e) > len(key) && e[:len(key)+1] == key+"=" {
				list = append(list, e)
			}
		}
	}
	return list
}

// memory writes the plan to a memory file. A pipe could fill up, and a file on disk would leave secrets there.
func (p plan) memory() (*os.File, error) {
	body, err := cbor.Marshal(p)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create the plan: %w", err)
	}
	f := os.NewFile(uintptr(fd), "plan")
	if _, err := f.Write(body); err != nil {
		f.Close()
		return nil, fmt.Errorf("write the plan: %w", err)
	}
	return f, nil
}

// kill kills the step with its process group. In a container, the command's parent kills the command's group when the
// link is closed. The runtime then ends too. It is killed only if it does not.
func (i initStep) kill() {
	if i.link == nil {
		_ = syscall.Kill(-i.pid, syscall.SIGKILL)
		return
	}
	i.link.close()
	if self, err := identify(i.pid); err == nil {
		time.AfterFunc(abandonAfter/2, func() { _ = self.signal(syscall.SIGKILL) })
	}
}

// await returns nil once the step has executed the program. It returns an error if the step fails or takes longer than
// timeout.
func (i initStep) await(timeout time.Duration) error {
	if i.link != nil {
		return i.link.await(timeout)
	}
	defer i.status.Close()
	if err := i.status.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(i.status, 4096))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the init step took longer than %v", timeout)
	}
	if err != nil {
		return fmt.Errorf("read from the init step: %w", err)
	}
	return initResult(string(b))
}

// initResult interprets all that an init step wrote to its status pipe. "R" alone means that execve succeeded and
// closed the pipe. "E" and a message, also after "R", mean an error. Anything else means that the step died.
func initResult(said string) error {
	ready := len(said) > 0 && said[0] == 'R'
	if ready {
		said = said[1:]
	}
	switch {
	case said == "" && ready:
		return nil
	case said != "" && said[0] == 'E':
		return errors.New(said[1:])
	}
	return errors.New("the init step died before it could execute the program")
}

// logPumps has the program's two output pipes, and the goroutines that copy from the pipes to the logs.
type logPumps struct {
	stdout, stderr *os.File // write ends; started closes them
	notes          *os.File // a second write end of the stderr pipe, for notes; drain closes it
	readers        []*os.File
	done           chan struct{} // receives a value for each goroutine that has ended
	running        int           // number of goroutines that drain must still wait for
}

func openLogPumps(l launch) (*logPumps, error) {
	p := &logPumps{done: make(chan struct{}, 2)}
	clock := new(logClock)
	for _, end := range []struct {
		stream Stream
		file   **os.File
	}{{Stdout, &p.stdout}, {Stderr, &p.stderr}} {
		w, err := openLogWriter(l.LogDir, end.stream, l.Spec.Logs, clock)
		if err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		r, pw, err := os.Pipe()
		if err != nil {
			w.close()
			return nil, err
		}
		*end.file = pw
		p.readers = append(p.readers, r)
		p.running++
		go func() {
			pumpLog(r, w)
			p.done <- struct{}{}
		}()
	}
	notes, err := openNotes(p.stderr)
	if err != nil {
		return nil, err
	}
	p.notes = notes
	return p, nil
}

// started closes the shim's copies of the write ends. Otherwise the pumps would never reach the end of the pipes.
func (p *logPumps) started() {
	p.stdout.Close()
	p.stderr.Close()
}

// drain waits until everything that was written to the pipes is in the files. It waits at most for limit, because a
// process outside of the instance may have a pipe open.
func (p *logPumps) drain(limit time.Duration) {
	p.notes.Close()
	timer := time.AfterFunc(limit, func() {
		for _, r := range p.readers {
			r.Close()
		}
	})
	defer timer.Stop()
	for ; p.running > 0; p.running-- {
		<-p.done
	}
}
