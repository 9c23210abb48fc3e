package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

func diskFaults() []fault {
	return []fault{
		{name: "full-disk-leader", kind: ofServers, begin: func(s *strike) { s.fill(s.leader()) }},
		{name: "full-disk-follower", kind: ofServers, begin: func(s *strike) { s.fill(s.follower()) }},
		{name: "full-disk-agent", kind: ofAgents, begin: func(s *strike) { s.fill(s.agent()) }},
		{name: "slow-fsync-leader", kind: ofServers, begin: func(s *strike) {
			s.inject(s.leader(), "fsync,fdatasync", "delay_enter=300ms")
		}},
		{name: "hung-fsync-leader", kind: ofServers, begin: func(s *strike) { s.hang(s.leader()) }},
		{name: "hung-fsync-follower", kind: ofServers, begin: func(s *strike) { s.hang(s.follower()) }},
		{name: "eio-leader", kind: ofServers, begin: func(s *strike) { s.fail(s.leader()) }},
		{name: "eio-follower", kind: ofServers, begin: func(s *strike) { s.fail(s.follower()) }},
		{name: "flipped-log", kind: ofServers, alone: true, begin: func(s *strike) { s.flip("raft.db") }},
		{name: "flipped-snapshot", kind: ofServers, alone: true, begin: func(s *strike) { s.flip("snapshots/*/*") }},
	}
}

// fill takes all space of a member's file system until the strike is repaired. A member that exits because of that is
// started again by the repair.
func (s *strike) fill(m *member) {
	s.mayEnd = m
	free := m.fillDisk(s.x.t)
	s.later(free)
}

// hang delays each fsync of a server for longer than the store's watchdog waits (10 s). The server should exit, so that
// another server can lead.
func (s *strike) hang(m *member) {
	s.mayEnd, s.hold = m, 20*time.Second
	s.countEnd(m, "a hung fsync")
	s.inject(m, "fsync,fdatasync", "delay_enter=60s")
}

// fail makes each write and each fdatasync of a server fail, as a broken disk does.
func (s *strike) fail(m *member) {
	s.mayEnd = m
	s.countEnd(m, "EIO")
	s.inject(m, "pwrite64,fdatasync", "error=EIO")
}

// countEnd makes the repair of the strike count whether the server exited by itself or survived. It must be called
// before inject: the repair runs its steps in reverse order, and must undo the injection before it counts.
func (s *strike) countEnd(m *member, why string) {
	s.later(func() {
		what := "servers that survived " + why
		if m.hasEnded() {
			what = "servers that ended themselves over " + why
		}
		s.x.book.count(what, 1)
	})
}

// inject makes strace change system calls of a running process until the strike is repaired.
func (s *strike) inject(m *member, calls, how string) { s.later(m.inject(s.x.t, calls, how)) }

// inject makes strace change system calls of the running process, until the returned function is called or the process
// has exited.
func (m *member) inject(t *testing.T, calls, how string) (end func()) {
	t.Helper()
	out := m.c.path("strace-" + m.Name + ".log")
	tracer := procs.Process{Name: "strace", Log: out, Family: relatives, Command: []string{"strace", "-f", "-q", "-o", out,
		"-e", "trace=" + calls, "-e", "inject=" + calls + ":" + how, "-p", fmt.Sprint(m.PID())}}
	if err := tracer.Start(); err != nil {
		t.Fatal(err)
	}
	if err := within(10*time.Second, func() error { return traced(m.PID()) }); err != nil {
		t.Fatalf("strace of %s: %v", m.Name, err)
	}
	return func() {
		tracer.Kill() // other signals may have to wait for a call that strace delays; the kernel detaches its tracees
		if err := within(10*time.Second, func() error { return untraced(m) }); err != nil {
			t.Errorf("%s behind its tracer: %v", m.Name, err)
		}
	}
}

// untraced returns an error if a member's process has exited but is not reaped yet. The parent can't reap the process
// while a tracer is attached.
func untraced(m *member) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.PID()))
	if m.Running() && (err != nil || strings.Contains(string(text), "State:\tZ")) {
		return fmt.Errorf("it has ended and is not reaped (%w)", err)
	}
	return nil
}

// traced returns nil if every thread of a process is traced.
func traced(pid int) error {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, path := range threads {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "TracerPid:\t0\n") {
			return fmt.Errorf("%s has no tracer", filepath.Dir(path))
		}
	}
	return nil
}

// flip kills a server, flips bits in one of its files and starts the server again. The server must refuse to run, or
// have the same state as the other servers. The repair of the strike replaces the server.
func (s *strike) flip(pattern string) {
	m, x := s.follower(), s.x
	s.mayEnd = m
	m.Kill()
	files, _ := filepath.Glob(filepath.Join(m.data(), pattern))
	if len(files) == 0 {
		s.say("there is no %s", pattern)
		return
	}
	slices.Sort(files)
	path := files[x.random.IntN(len(files))]
	info, err := os.Stat(path)
	if err != nil {
		x.t.Fatal(err)
	}
	for range 8 {
		x.flipBit(path, x.random.Int64N(info.Size()))
	}
	s.say("8 bits of %s, %d bytes", filepath.Base(path), info.Size())
	m.start(x.t)
	ended := within(15*time.Second, func() error {
		if m.Running() {
			return errors.New("it runs")
		}
		return nil
	}) == nil
	switch said := m.LastLines(15); {
	case !ended:
		x.book.count("servers that started over flipped bits", 1)
		s.w.history.end()
		x.work.gate.Lock() // stops the writes, so that all servers can reach the same index
		err := within(time.Minute, func() error { return x.sameOrEnded(m) })
		x.work.gate.Unlock()
		if err != nil {
			x.book.violate("S5: %s goes on over flipped bits of %s: %v", m.Name, filepath.Base(path), err)
		}
	case m.ExitCode() <= 0 || strings.Contains(said, "fatal error:"):
		x.book.violate("S5: %s did not refuse flipped bits of %s, it crashed (exit code %d):\n%s", m.Name,
			filepath.Base(path), m.ExitCode(), said)
	default:
		x.book.count("servers that refused flipped bits", 1)
	}
	s.later(func() { s.replace(m, false) })
}

// sameOrEnded returns nil if all servers have the same state, or if m has exited. A server that sees that its state
// differs from the majority's must exit.
func (x *chaos) sameOrEnded(m *member) error {
	if !m.Running() {
		return nil
	}
	return x.sameState()
}

func (x *chaos) flipBit(path string, at int64) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		x.t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err = f.ReadAt(b, at); err == nil {
		_, err = f.WriteAt([]byte{b[0] ^ 1<<x.random.IntN(8)}, at)
	}
	if err != nil {
		x.t.Fatal(err)
	}
}
