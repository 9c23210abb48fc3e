package driver

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/fxamacker/cbor/v2"
	"golang.org/x/sys/unix"
)

// fdReport is the descriptor on which the shim sends its startReport to the agent that started it.
const fdReport = 3

// initTimeout is how long an init step (see plan) may take to become the program. It is far longer than a healthy step
// takes, and shorter than the default of Config.StartTimeout, so that the agent gets the shim's error.
const initTimeout = 10 * time.Second

// shim is the process that owns one run of an instance. Only the goroutine of ShimMain uses the fields.
type shim struct {
	dir    stateDir
	launch launch
	lock   *os.File
	cg     *cgroup // nil without cgroups
	self   Identity
	main   Identity
	ctl    *controlServer
	logs   *logPumps
	link   *link // to the init of a container; otherwise nil
	// linkOver says that nothing more comes over link.
	linkOver bool
	lease    *bootTimer
	sigchld  chan os.Signal
	end      ending
}

// ShimMain implements the hidden subcommand `shim STATEDIR` and returns its exit code. It starts the program, waits
// until no process of the instance is left, and writes the exit to disk. Afterwards it returns 0, even if the exit
// could not be written. It returns 1 if the start failed, and 2 for wrong arguments.
func ShimMain(args []string) int {
	// The kernel kills the program when the thread that forked it ends, so this thread must last as long as the process.
	runtime.LockOSThread()
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: outspan shim STATEDIR (started by the agent only)")
		return 2
	}
	CloseInherited(fdReport)
	report := openReport()
	s, err := newShim(stateDir(args[0]))
	if err != nil {
		fmt.Fprintln(os.Stderr, "outspan shim:", err)
		report.send(startReport{Message: err.Error()})
		return 1
	}
	if err := s.start(); err != nil {
		s.abort(err)
		report.send(startReport{Message: err.Error()})
		return 1
	}
	report.send(startReport{Main: s.main})
	s.run()
	s.finish()
	return 0
}

// reportPipe carries the startReport to the agent.
type reportPipe struct{ file *os.File } // nil if the shim was started without a pipe

func openReport() reportPipe {
	var st unix.Stat_t
	if unix.Fstat(fdReport, &st) != nil {
		return reportPipe{}
	}
	unix.CloseOnExec(fdReport)
	return reportPipe{os.NewFile(fdReport, "report")}
}

// send sends the report and closes the pipe. It ignores errors, because the shim continues without an agent.
func (r reportPipe) send(rep startReport) {
	if r.file == nil {
		return
	}
	if body, err := cbor.Marshal(rep); err == nil {
		n := uint32(len(body))
		_, _ = r.file.Write(append([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, body...))
	}
	r.file.Close()
}

// newShim makes this process the only shim of the directory, by locking it, and reads the launch. It returns an error
// if an agent has given up the directory or the run.
func newShim(dir stateDir) (*shim, error) {
	sigchld := shieldProcess()
	lock, err := lockPatiently(dir.path(fileLock))
	if err != nil {
		return nil, fmt.Errorf("lock the state directory: %w", err)
	}
	// Before this process got the lock, an agent may have given up the directory by renaming it.
	named, err1 := os.Stat(dir.path(fileLock))
	locked, err2 := lock.Stat()
	if err1 != nil || err2 != nil || !os.SameFile(named, locked) {
		return nil, errors.New("the state directory was given up")
	}
	s := &shim{dir: dir, lock: lock, sigchld: sigchld}
	if s.launch, err = dir.readLaunch(); err != nil {
		return nil, err
	}
	if _, given := dir.readExit(s.launch.Run); given {
		return nil, errors.New("an agent gave this run up before it began")
	}
	if s.self, err = identify(os.Getpid()); err != nil {
		return nil, err
	}
	if err := s.writeIdentity(fileShim, s.self); err != nil {
		return nil, err
	}
	s.cg = s.launch.Cgroup.open()
	return s, nil
}

// shieldProcess makes this process survive the signals that may end the agent, and makes this process the parent of
// every orphan among its descendants. It returns a channel that receives SIGCHLD.
func shieldProcess() chan os.Signal {
	// These signals are caught, not ignored, because the program would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGPIPE,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGALRM)
	sigchld := make(chan os.Signal, 1)
	signal.Notify(sigchld, unix.SIGCHLD)
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	_ = os.WriteFile("/proc/self/comm", []byte("outspan-shim"), 0) // otherwise ps shows "exe"
	// With this score, the kernel kills the program before the shim when memory runs out. Only root may lower the score,
	// so an error is ignored.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0)
	return sigchld
}

func (s *shim) writeIdentity(file string, id Identity) error {
	return writeVolatile(s.dir.path(file),
		runIdentity{Run: s.launch.Run, ID: id, Token: s.launch.Token, Cgroup: s.launch.Cgroup})
}

// start starts the program. After an error no process of the program runs.
func (s *shim) start() error {
	var err error
	if s.launch.Spec.LeaseUntil != 0 && BootNow() >= s.launch.Spec.LeaseUntil {
		return errors.New("its lease had ended before it began")
	}
	if s.lease, err = newBootTimer(); err != nil {
		return err
	}
	if s.ctl, err = listenControl(s.dir); err != nil {
		return err
	}
	if s.cg != nil {
		if err := s.cg.create(s.launch.limits()); err != nil {
			return err
		}
	}
	if s.logs, err = openLogPumps(s.launch); err != nil {
		return err
	}
	if err := s.lease.extend(s.launch.Spec.LeaseUntil); err != nil {
		return err
	}
	return s.launch.Spec.launcher().spawn(s)
}

// spawn forks the init step and waits until the step has become the program. If the step fails, spawn kills and reaps
// it.
func (programs) spawn(s *shim) error {
	p := s.launch.plan(append([]string{s.launch.Spec.Command}, s.launch.Spec.Args...))
	p.Shim = os.Getpid()
	step, err := p.fork(s.logs.stdout, s.logs.stderr)
	s.logs.started()
	if err != nil {
		return err
	}
	// The step has not been reaped, so its identity can be read even if the step has ended.
	if s.main, err = identify(step.pid); err == nil {
		err = s.writeIdentity(fileMain, s.main)
	}
	if err == nil {
		err = step.await(initTimeout)
	}
	s.end.started = time.Now()
	if err != nil {
		_ = syscall.Kill(step.pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(step.pid, nil, 0, nil)
	}
	return err
}

// abort cleans up after a failed start, and writes the exit.
func (s *shim) abort(cause error) {
	if s.ctl != nil {
		s.ctl.close()
	}
	if s.cg != nil {
		_ = s.cg.remove()
	}
	s.writeExit(exitRecord{Reason: ReasonStartFailed, Code: -1, Message: cause.Error()})
}

// run handles one event at a time until no process of the instance is left.
func (s *shim) run() {
	s.end.graceTimer = stoppedTimer()
	s.end.retryTimer = stoppedTimer()
	for !s.reap() {
		select {
		case <-s.sigchld:
		case ws, said := <-s.programEnds():
			s.programEnded(ws, said)
		case c := <-s.ctl.calls:
			c.reply <- s.answer(c.req)
		case <-s.lease.C:
			s.kill(ReasonFenced)
		case <-s.end.graceTimer.C:
			s.kill(ReasonKilledAfterGrace)
		case <-s.end.retryTimer.C:
			s.killAgain()
		}
	}
}

func (s *shim) answer(req request) reply {
	switch req.Op {
	case opWatch:
		return reply{Shim: s.self, Main: s.main}
	case opStop:
		s.stop(unixSignal(req.Signal), time.Duration(req.GraceMS)*time.Millisecond)
		return reply{}
	case opSignal:
		return s.signalGroup(unixSignal(req.Signal))
	case opLease:
		return s.renew(req.Until)
	case opNote:
		return s.note(req.Text)
	}
	return reply{Code: CodeInvalidSpec, Message: fmt.Sprintf("this shim does not know request %d", req.Op)}
}

func (s *shim) signalGroup(sig syscall.Signal) reply {
	if s.end.exited {
		return reply{Code: CodeNotRunning, Message: "the program has ended"}
	}
	if s.link != nil && sig == syscall.SIGSTOP {
		return reply{Code: CodeSignalFailed, Message: "the init of a container can't pass SIGSTOP on; send SIGTSTP"}
	}
	// The program is not reaped yet, so no other process group can have its number.
	if err := syscall.Kill(-s.main.PID, sig); err != nil {
		return reply{Code: CodeSignalFailed, Message: fmt.Sprintf("signal %v: %v", sig, err)}
	}
	return reply{}
}

// renew moves the end of the lease to until, unless the lease ends later already. It refuses if the lease has ended,
// even if run has not handled the timer yet, or if the instance is being killed.
func (s *shim) renew(until BootTime) reply {
	if s.lease.expired() || s.end.killing != "" {
		return reply{Code: CodeNotRunning, Message: "the lease has ended and the instance is being killed"}
	}
	if err := s.lease.extend(until); err != nil {
		return reply{Code: CodeStateFailed, Message: err.Error()}
	}
	return reply{}
}
