package driver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/driver"
)

func smallLogs(s *driver.Spec) { s.Logs = driver.LogPolicy{MaxBytes: 1024, MaxFiles: 3} }

func TestLogRotation(t *testing.T) {
	b := newBench(t)
	task, _ := b.run(`i=0; while [ $i -lt 1000 ]; do echo "line $i"; i=$((i+1)); done`, smallLogs)
	dir := filepath.Join(b.cfg.Dir, "state", string(task.ID()), "logs")
	files, err := filepath.Glob(filepath.Join(dir, "stdout.*[0-9]"))
	must(t, err)
	if len(files) != 3 {
		t.Fatalf("files = %v", files)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		must(t, err)
		if st.Size() > 1024 || st.Mode().Perm() != 0o600 {
			t.Errorf("%s has %d bytes and mode %v", f, st.Size(), st.Mode())
		}
	}
	// The 1000 lines have 8890 bytes in all, so only the newest lines are kept. Offset is the position of the first line
	// that is kept.
	out := b.logs(task, driver.Stdout)
	r, err := task.OpenLog(t.Context(), driver.Stdout, 0, false)
	must(t, err)
	defer r.Close()
	whole := numbered(0, 1000)
	if want := whole[r.Offset():]; out != want || len(out) < 1024 || !strings.HasPrefix(out, "line ") {
		t.Errorf("from %d: %d bytes, want %d; starts %.20q", r.Offset(), len(out), len(want), out)
	}
	tail, err := task.OpenLog(t.Context(), driver.Stdout, -27, false)
	must(t, err)
	defer tail.Close()
	if got, err := io.ReadAll(tail); err != nil || string(got) != "line 997\nline 998\nline 999\n" {
		t.Errorf("the last 27 bytes = %q, %v", got, err)
	}
	_, err = task.OpenLog(t.Context(), "stdin", 0, false)
	wantCode(t, err, driver.CodeInvalidSpec)
}

func numbered(from, to int) string {
	var s strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&s, "line %d\n", i)
	}
	return s.String()
}

// A reader that keeps up gets every byte once, over many rotations and a restart of the agent. When the instance has
// stopped, the reader gets io.EOF.
func TestFollow(t *testing.T) {
	b := newBench(t)
	task := b.start(b.sh(`trap 'exit 0' TERM
		i=0; while [ $i -lt 300 ]; do echo "line $i"; i=$((i+1)); done
		until [ -e go ]; do sleep 0.01; done
		while [ $i -lt 600 ]; do echo "line $i"; i=$((i+1)); done
		while :; do sleep 0.01; done`, func(s *driver.Spec) { s.Logs = driver.LogPolicy{MaxBytes: 1024, MaxFiles: 20} }))
	r, err := task.OpenLog(t.Context(), driver.Stdout, 0, true)
	must(t, err)
	lines := bufio.NewScanner(r)
	read := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if !lines.Scan() || lines.Text() != fmt.Sprint("line ", i) {
				t.Fatalf("line %d = %q, %v", i, lines.Text(), lines.Err())
			}
		}
	}
	read(0, 300)
	offset := r.Offset()
	if offset != int64(len(numbered(0, 300))) {
		t.Fatalf("offset = %d after 300 lines", offset)
	}
	must(t, r.Close())

	task = b.restart()[0]
	r, err = task.OpenLog(t.Context(), driver.Stdout, offset, true)
	must(t, err)
	defer r.Close()
	lines = bufio.NewScanner(r)
	must(t, os.WriteFile(filepath.Join(task.Dir(), "go"), nil, 0o644))
	read(300, 600)
	stopped := make(chan struct{})
	go func() { stop(t, task, 0, 5*time.Second); close(stopped) }()
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("after the end: %q, %v", lines.Text(), lines.Err())
	}
	<-stopped
}

func TestFollowEndsWithContext(t *testing.T) {
	b := newBench(t)
	task := b.start(b.sh("exec sleep 1000"))
	ctx, cancel := context.WithCancel(t.Context())
	r, err := task.OpenLog(ctx, driver.Stdout, 0, true)
	must(t, err)
	defer r.Close()
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := r.Read(make([]byte, 10)); !errors.Is(err, context.Canceled) {
		t.Fatalf("error = %v", err)
	}
}

// A program that writes much is not blocked while no agent runs.
func TestBigOutput(t *testing.T) {
	b := newBench(t)
	task := b.start(b.sh("yes 0123456789abcdef | head -c 30000000; yes fedcba9876543210 | head -c 1000 >&2"))
	must(t, b.d.Close())
	eventually(t, "the program to end", func() bool { return !running(task.Process().PID) })
	b.open()
	task = b.adopt()[0]
	if e := wait(t, task); e.Code != 0 {
		t.Fatalf("exit = %+v", e)
	}
	r, err := task.OpenLog(t.Context(), driver.Stdout, 0, false)
	must(t, err)
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || r.Offset() != 30000000 || len(got) < 20<<20 || strings.Trim(string(got), "0123456789abcdef\n") != "" {
		t.Errorf("read %d bytes up to %d, %v", len(got), r.Offset(), err)
	}
	if n := len(b.logs(task, driver.Stderr)); n != 1000 {
		t.Errorf("stderr has %d bytes", n)
	}
}

// On a full disk the program continues. Once there is room again, the log says how many bytes are missing.
func TestLogDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to mount a small file system")
	}
	b := newBench(t)
	disk := openDir(t)
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("skipped: no right to mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	task := b.start(
		b.sh("yes | head -c 300000; touch written; until [ -e go ]; do sleep 0.01; done; echo after; exec sleep 1000",
			func(s *driver.Spec) { s.Logs.Dir = disk }))
	written := filepath.Join(task.Dir(), "written")
	eventually(t, "the program to get past its output", func() bool { _, err := os.Stat(written); return err == nil })
	must(t, unix.Mount("", disk, "", unix.MS_REMOUNT, "size=1m"))
	must(t, os.WriteFile(filepath.Join(task.Dir(), "go"), nil, 0o644))
	b.says(task, "after\n")
	if out := b.logs(task, driver.Stdout); !strings.Contains(out, "bytes lost, the log could not be written]\n") ||
		len(out) > 200000 {
		t.Errorf("%d bytes, nothing said of the rest: ...%s", len(out), out[max(0, len(out)-200):])
	}
}

func TestOwnLogDir(t *testing.T) {
	b := newBench(t)
	dir := filepath.Join(openDir(t), "logs")
	task, _ := b.run("echo here", func(s *driver.Spec) { s.Logs.Dir = dir })
	must(t, task.Remove())
	if got, err := os.ReadFile(filepath.Join(dir, "stdout.00000000000000000000")); string(got) != "here\n" {
		t.Errorf("log = %q, %v; want it to outlive the instance", got, err)
	}
}

// Each log line has the time at which the shim read it. These times order the lines of both streams, also after
// rotations.
func TestLogTimes(t *testing.T) {
	b := newBench(t)
	// The shim reads the two streams independently, so the program writes each line only after the previous one is logged.
	turn := filepath.Join(openDir(t), "turn")
	must(t, unix.Mkfifo(turn, 0o644))
	next, err := os.OpenFile(turn, os.O_RDWR, 0)
	must(t, err)
	defer next.Close()
	began := time.Now()
	task := b.start(b.sh(`i=0; exec 3<`+turn+`; while [ $i -lt 60 ]; do
		read x <&3; echo "out line number $i which is long enough"; read x <&3; echo "err $i" >&2; i=$((i+1))
		done`, smallLogs))
	follow := func(s driver.Stream) *bufio.Scanner {
		r, err := task.OpenLog(t.Context(), s, 0, true)
		must(t, err)
		t.Cleanup(func() { r.Close() })
		return bufio.NewScanner(r)
	}
	streams := [...]*bufio.Scanner{follow(driver.Stdout), follow(driver.Stderr)}
	for i := range 120 {
		_, err := next.WriteString("\n")
		must(t, err)
		if s := streams[i%2]; !s.Scan() {
			t.Fatalf("line %d is missing: %v", i, s.Err())
		}
	}
	wait(t, task)
	ended := time.Now()
	type line struct {
		text string
		at   time.Time
	}
	read := func(s driver.Stream) (lines []line) {
		r, err := task.OpenLog(t.Context(), s, 0, false)
		must(t, err)
		defer r.Close()
		at := r.Offset()
		text, err := io.ReadAll(r)
		must(t, err)
		for _, one := range strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n") {
			lines = append(lines, line{strings.TrimSpace(one), r.WrittenAt(at)})
			at += int64(len(one))
		}
		return lines
	}
	out, errs := read(driver.Stdout), read(driver.Stderr)
	all := slices.Concat(out[len(out)-30:], errs[len(errs)-30:])
	slices.SortStableFunc(all, func(a, b line) int { return a.at.Compare(b.at) })
	for i, l := range all {
		want := fmt.Sprintf("out line number %d which is long enough", 30+i/2)
		if i%2 == 1 {
			want = fmt.Sprint("err ", 30+i/2)
		}
		if l.text != want || l.at.Before(began) || l.at.After(ended) || i > 0 && !l.at.After(all[i-1].at) {
			t.Fatalf("line %d is %q of %s, want %q", i, l.text, l.at, want)
		}
	}
	dir := filepath.Join(b.cfg.Dir, "state", string(task.ID()), "logs")
	marks, err := filepath.Glob(filepath.Join(dir, "stdout.*.times"))
	must(t, err)
	if len(marks) != 3 {
		t.Errorf("marks are left of files that are gone: %v", marks)
	}
	for _, f := range marks { // logs of an older version have no marks
		must(t, os.Remove(f))
	}
	if lines := read(driver.Stdout); !lines[0].at.IsZero() {
		t.Errorf("without marks a line is of %s", lines[0].at)
	}
}
