package driver

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/outspan/outspan/agent/driver/inside"
)

// ending is what a shim knows so far about the end of its instance.
type ending struct {
	started    time.Time
	exited     bool // the main process was reaped, and status and ended are set
	status     syscall.WaitStatus
	ended      time.Time
	stopAsked  bool      // an agent asked for a stop before the main process was reaped
	beforeKill bool      // the program had ended before the kill began
	deadline   time.Time // end of the grace; zero = no grace has begun
	killing    Reason    // why everything is being killed; "" = no kill has begun
	graceTimer *time.Timer
	retryTimer *time.Timer // next pass of a kill, or next check whether the cgroup is empty
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// reap reaps every child that has ended. It reports whether the shim has no child any more and the cgroup is empty. As
// the shim is a subreaper, it has no descendants if it has no child.
func (s *shim) reap() bool {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD):
			if s.cg.empty() {
				return true
			}
			s.end.retryTimer.Reset(20 * time.Millisecond) // the cgroup's processes send no SIGCHLD to the shim
			return false
		case err != nil || pid == 0:
			return false
		case pid == s.main.PID && !s.end.exited:
			if s.link != nil {
				ws = s.link.status(ws)
			}
			s.mainEnded(ws)
		}
	}
}

// mainEnded records the end of the main process. Unless everything is being killed, it sends the stop signal to the
// processes that the program left, and starts the grace if no grace has begun.
func (s *shim) mainEnded(ws syscall.WaitStatus) {
	s.end.exited, s.end.status, s.end.ended = true, ws, time.Now()
	s.end.beforeKill = s.end.killing == ""
	if s.end.killing != "" {
		return
	}
	s.signalRest(s.launch.Spec.Stop.Signal)
	if s.end.deadline.IsZero() {
		s.setGrace(s.launch.Spec.Stop.Grace)
	}
}

// signalRest sends sig to the processes that the program left. It skips the program's own process group if stop has
// already sent a signal to that group.
func (s *shim) signalRest(sig syscall.Signal) {
	list, err := s.members()
	if err != nil {
		return
	}
	for _, p := range list {
		if s.end.stopAsked && p.pgrp == s.main.PID {
			continue
		}
		_ = syscall.Kill(p.pid, sig)
		_ = syscall.Kill(p.pid, syscall.SIGCONT)
	}
}

// members lists the living processes of the instance: descendants of the shim, and processes in the cgroup.
func (s *shim) members() ([]procStat, error) {
	list, err := processes()
	if err != nil {
		return nil, err
	}
	inside := make(map[int]bool)
	if s.cg != nil {
		pids, err := s.cg.procs()
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			inside[pid] = true
		}
	}
	for _, p := range descendants(list, os.Getpid()) {
		inside[p.pid] = true
	}
	var found []procStat
	for _, p := range list {
		if inside[p.pid] && !p.dead() && p.pid != os.Getpid() {
			found = append(found, p)
		}
	}
	return found, nil
}

// stop carries out an agent's request to stop. The first request starts the grace and, if the program still runs, sends
// sig to its process group. A later request can only shorten the grace. If grace is zero or negative, stop kills
// everything at once. If a kill has begun, stop does nothing.
func (s *shim) stop(sig syscall.Signal, grace time.Duration) {
	if s.end.killing != "" {
		return
	}
	first := !s.end.stopAsked
	s.end.stopAsked = s.end.stopAsked || !s.end.exited
	if grace <= 0 {
		s.kill(ReasonKilled)
		return
	}
	if first && !s.end.exited {
		_ = syscall.Kill(-s.main.PID, sig)
		_ = syscall.Kill(-s.main.PID, syscall.SIGCONT) // a process that is stopped can't handle a signal
	}
	s.setGrace(grace)
}

func (s *shim) setGrace(grace time.Duration) {
	at := time.Now().Add(grace)
	if s.end.deadline.IsZero() || at.Before(s.end.deadline) {
		s.end.deadline = at
		s.end.graceTimer.Reset(grace)
	}
}

// kill begins to kill everything, with why as the reason. If a kill has begun before, its reason remains. The passes
// are repeated until reap finds no process.
func (s *shim) kill(why Reason) {
	if s.end.killing == "" {
		s.end.killing = why
	}
	s.killAgain()
}

// killAgain makes one pass of a kill that has begun, and sets the timer for the next pass. If no kill has begun but the
// program has ended, it only sets the timer, after which run calls reap again.
func (s *shim) killAgain() {
	if s.end.killing == "" && !s.end.exited {
		return
	}
	if s.end.killing != "" {
		if s.cg != nil {
			_ = s.cg.ctrl.killAll(s.cg) // an error does not matter, because the next pass tries again
		}
		s.killDescendants()
	}
	s.end.retryTimer.Reset(20 * time.Millisecond)
}

// killDescendants kills all members.
func (s *shim) killDescendants() {
	inside.KillAll(func() (pids []int) {
		list, _ := s.members() // an error does not matter, because the next pass tries again
		for _, p := range list {
			pids = append(pids, p.pid)
		}
		return pids
	})
}

// finish drains the logs, writes the exit and removes the cgroup. It closes the connections last, because an agent
// reads the exit when its connection breaks.
func (s *shim) finish() {
	s.logs.drain(2 * time.Second)
	s.writeExit(s.verdict())
	if s.cg != nil {
		if err := s.cg.remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	s.lease.close()
	if s.link != nil {
		s.link.close()
	}
	_ = os.Remove(s.dir.path(fileControl))
	s.ctl.close()
}

func (s *shim) verdict() exitRecord {
	e, ws := s.end, s.end.status
	r := exitRecord{Started: e.started.UnixMilli(), Code: ws.ExitStatus()}
	if ws.Signaled() {
		r.Signal, r.Code = int(ws.Signal()), 128+int(ws.Signal())
	}
	if s.cg != nil {
		if u, err := s.cg.ctrl.usage(); err == nil {
			r.OOM = u.oomKills > 0
		}
	}
	byItself := !e.stopAsked && e.beforeKill
	// A shell exits with 128+9 if its child was killed.
	killed := ws.Signal() == syscall.SIGKILL || r.Code == 128+int(syscall.SIGKILL)
	switch {
	case e.killing == ReasonFenced:
		r.Reason = ReasonFenced
	case r.OOM && killed && e.beforeKill:
		r.Reason = ReasonOOMKilled
	case byItself && ws.Signaled():
		r.Reason = ReasonSignaled
	case byItself:
		r.Reason = ReasonExited
	case e.killing != "":
		r.Reason = e.killing
	default:
		r.Reason = ReasonStopped
	}
	if byItself && e.killing != "" {
		r.Message = "processes that the program left behind had to be killed"
	}
	return r
}

// writeExit writes the exit. It tries for up to 5 s, because without the exit an agent would report shim_lost.
func (s *shim) writeExit(r exitRecord) {
	r.Run, r.Ended = s.launch.Run, time.Now().UnixMilli()
	var err error
	written := poll(5*time.Second, 100*time.Millisecond, func() bool {
		err = WriteRecord(s.dir.path(fileExit), r)
		return err == nil || errors.Is(err, os.ErrNotExist) // ErrNotExist: an agent gave up the directory
	})
	if !written {
		fmt.Fprintln(os.Stderr, "outspan shim: write the exit:", err)
	}
}
