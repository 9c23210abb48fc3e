package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// OtherBoot sets another boot id in the launch record in dir, and in the identities of the instance's processes.
func OtherBoot(t *testing.T, dir string) {
	t.Helper()
	d := stateDir(dir)
	l, err := d.readLaunch()
	if err != nil {
		t.Fatal(err)
	}
	l.Boot = "00000000-0000-0000-0000-000000000000"
	if err := d.writeBoot(l); err != nil {
		t.Fatal(err)
	}
}

func TestIdentity(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := identify(cmd.Process.Pid)
	if err != nil || !id.Alive() {
		t.Fatalf("identity %+v, %v, alive %v", id, err, id.Alive())
	}
	for name, other := range map[string]Identity{
		"another boot":       {id.PID, id.Start, "00000000-0000-0000-0000-000000000000"},
		"another start time": {id.PID, id.Start + 1, id.Boot},
		"another pid":        {1, id.Start, id.Boot},
		"no pid":             {0, id.Start, id.Boot},
		"our own group":      {-1, id.Start, id.Boot},
	} {
		if other.Alive() {
			t.Errorf("%s counts as alive", name)
		}
		if err := other.signal(0); err == nil {
			t.Errorf("%s could be signalled", name)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Nobody waits for the child, so it becomes a zombie, which still has its pid and start time.
	for deadline := time.Now().Add(10 * time.Second); id.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a killed process counts as alive")
		}
	}
	if st, ok := id.stat(); !ok || st.state != 'Z' {
		t.Fatalf("it is not a zombie: %+v, %v", st, ok)
	}
	if err := id.signal(0); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal to a zombie: %v", err)
	}
	_ = cmd.Wait()
	if _, ok := id.stat(); ok {
		t.Error("a reaped process has a stat")
	}
}

// If a child has not exited when awaitEnd gives up, reapLate reaps it.
func TestReapLate(t *testing.T) {
	cmd := exec.Command("sleep", "0.5")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	awaitEnd(id, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reapLate(ctx, id)
	if st, ok := id.stat(); ok {
		t.Errorf("it is still there: %+v", st)
	}
}

func TestParseStat(t *testing.T) {
	tail := " S 12 34 56 0 -1 4194560 1 0 0 0 7 8 5 6 20 0 3 0 987654 1000 77 18446744073709551615 0 0"
	for _, comm := range []string{"sh", "a b", ") R 1 1", "((", "x) S 9 9 9"} {
		p, err := parseStat([]byte("11 (" + comm + ")" + tail))
		want := procStat{pid: 11, ppid: 12, pgrp: 34, session: 56, state: 'S', start: 987654, cpuTicks: 15,
			childTicks: 11, rssPages: 77, threads: 3}
		if err != nil || p != want {
			t.Errorf("%q: %+v, %v", comm, p, err)
		}
	}
	for _, bad := range []string{"", "11", "11 (x)", "11 (x) S 1 2", "x (sh)" + tail, ")("} {
		if p, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q gave %+v", bad, p)
		}
	}
}

// A record that is cut anywhere, has a flipped bit in any byte, or has another byte at its end is refused as damaged.
func TestRecordDamage(t *testing.T) {
	want := runIdentity{Run: 3, ID: Identity{PID: 4, Start: 5, Boot: "b"}, Token: "t"}
	b, err := encodeRecord(want)
	if err != nil {
		t.Fatal(err)
	}
	var got runIdentity
	if err := decodeRecord(b, &got); err != nil || got.ID != want.ID || got.Run != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range b {
		if err := decodeRecord(b[:n], &got); !errors.Is(err, errRecordDamaged) {
			t.Errorf("cut at %d: %v", n, err)
		}
		flipped := append([]byte(nil), b...)
		flipped[n] ^= 0x04
		if err := decodeRecord(flipped, &got); !errors.Is(err, errRecordDamaged) {
			t.Errorf("flip at %d: %v", n, err)
		}
	}
	if err := decodeRecord(append(b, 0), &got); !errors.Is(err, errRecordDamaged) {
		t.Errorf("longer: %v", err)
	}
}

// If a launch has no shim and the lock of its directory is free, the agent was killed before it started a shim. Adopt
// gives that launch up, and a shim that starts later must not run it.
func TestLateShim(t *testing.T) {
	for run := 1; run <= 2; run++ {
		lateShim(t, run)
	}
}

func lateShim(t *testing.T, run int) {
	d, err := New(Config{Dir: filepath.Join(t.TempDir(), "d")})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l, err := d.resolve(Spec{ID: "late", Command: "/bin/sh", Args: []string{"-c", "touch " + t.TempDir() + "/ran"}})
	if err != nil {
		t.Fatal(err)
	}
	l.Run = run
	dir := d.dir("late")
	if err := d.prepare(dir, l); err != nil {
		t.Fatal(err)
	}
	tasks, _, err := d.Adopt(t.Context())
	if err != nil || len(tasks) != run-1 {
		t.Fatalf("run %d: adopted %d, %v", run, len(tasks), err)
	}
	cmd := exec.Command("/proc/self/exe", "shim", string(dir))
	says := []string{"lock the state directory", "gave this run up"}[run-1]
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), says) {
		t.Errorf("run %d: the late shim ran: %v, %s", run, err, out)
	}
	if run == 2 {
		if e, ok := tasks[0].Exit(); !ok || e.Reason != ReasonStartFailed {
			t.Errorf("exit = %+v, %v", e, ok)
		}
	}
}

func TestMemberOf(t *testing.T) {
	list := []procStat{
		{pid: 100, pgrp: 100, session: 100, start: 50},  // the process of the first identity
		{pid: 101, pgrp: 101, session: 100, start: 60},  // in its session
		{pid: 102, pgrp: 100, session: 7, start: 60},    // in its group
		{pid: 103, pgrp: 103, session: 103, start: 60},  // unrelated
		{pid: 200, pgrp: 200, session: 200, start: 900}, // has the second identity's pid, but started later
		{pid: 201, pgrp: 201, session: 200, start: 901},
	}
	member := memberOf(list, Identity{PID: 100, Start: 50}, Identity{PID: 200, Start: 55}, Identity{})
	got := ""
	for _, p := range list {
		if member(p) {
			got += fmt.Sprint(p.pid, " ")
		}
	}
	if got != "100 101 102 " {
		t.Errorf("members = %s", got)
	}
}

func TestCPUWeight(t *testing.T) {
	for shares, want := range map[int64]int64{2: 1, 1024: 39, 262144: 10000} {
		if got := cpuWeight(shares); got != want {
			t.Errorf("%d shares = weight %d, want %d", shares, got, want)
		}
	}
}
