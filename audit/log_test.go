package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/audit"
	"github.com/outspan/outspan/model"
)

// run runs a log until the returned function is called or the test ends.
func run(t *testing.T, cfg audit.Config) (l *audit.Log, stop func()) {
	t.Helper()
	cfg.Server = "s1"
	l = audit.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return l, stop
}

func openFile(t *testing.T, path string, size int64, keep int) audit.Sink {
	t.Helper()
	sink, err := audit.OpenFile(audit.FileConfig{Path: path, MaxBytes: size, Keep: keep})
	if err != nil {
		t.Fatal(err)
	}
	return sink
}

// linesOf returns the lines of a file, each of which must be whole.
func linesOf(t *testing.T, path string) (all []audit.Line) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > 0 && !bytes.HasSuffix(raw, []byte("\n")) {
		t.Errorf("%s does not end with a whole line", path)
	}
	for _, text := range bytes.Split(bytes.TrimSuffix(raw, []byte("\n")), []byte("\n")) {
		var line audit.Line
		if err := json.Unmarshal(text, &line); err != nil {
			t.Errorf("%s: %v in %q", path, err, text)
		}
		all = append(all, line)
	}
	return all
}

// sink is a Sink in memory that can fail or block.
type sink struct {
	mu      sync.Mutex
	err     error
	block   chan struct{}
	written bytes.Buffer
	synced  int
}

func (s *sink) Write(lines []byte) error {
	s.mu.Lock()
	block := s.block
	s.mu.Unlock()
	if block != nil {
		<-block
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.written.Write(lines)
	return nil
}

func (s *sink) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced++
	return nil
}

func (s *sink) Reopen() error { return nil }
func (s *sink) Close() error  { return nil }

func (s *sink) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *sink) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: did not happen in 20 s", what)
		}
	}
}

func TestFileIsRotatedAndPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte(`{"half`), 0o644); err != nil { // what a crash left
		t.Fatal(err)
	}
	l, stop := run(t, audit.Config{Sinks: []audit.Sink{openFile(t, path, 2000, 2)}})
	for i := range 100 {
		line := audit.Line{Stage: audit.Begun, Index: uint64(i + 1), Subject: "cert:alice"}
		if err := l.Begin(t.Context(), line); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	var last uint64
	for _, name := range []string{path + ".2", path + ".1", path} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 || info.Size() > 2000 {
			t.Errorf("%s has the mode %s and %d bytes", name, info.Mode(), info.Size())
		}
		for _, line := range linesOf(t, name) {
			if last != 0 && line.Index != last+1 {
				t.Errorf("line %d follows line %d", line.Index, last)
			}
			last = line.Index
		}
	}
	if _, err := os.Stat(path + ".3"); err == nil || last != 100 {
		t.Errorf("the last line is %d, and a third file is kept: %v", last, err == nil)
	}
}

func TestFileThatWasMovedAwayIsBegunAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, stop := run(t, audit.Config{Sinks: []audit.Sink{openFile(t, path, 1<<20, 2)}})
	begin := func(index uint64) {
		t.Helper()
		if err := l.Begin(t.Context(), audit.Line{Stage: audit.Begun, Index: index}); err != nil {
			t.Fatal(err)
		}
	}
	begin(1)
	if err := os.Rename(path, path+"-old"); err != nil {
		t.Fatal(err)
	}
	l.Reopen()
	until(t, "a new file", func() bool { _, err := os.Stat(path); return err == nil })
	begin(2)
	if err := os.Remove(path); err != nil { // without a word
		t.Fatal(err)
	}
	until(t, "a new file without a request", func() bool { begin(3); _, err := os.Stat(path); return err == nil })
	stop()
	if old, now := linesOf(t, path+"-old"), linesOf(t, path); len(old) != 1 || now[0].Index != 3 {
		t.Errorf("before %v, now %v", old, now)
	}
}

// A write that is cut off leaves no half line, and the log tells how many lines are missing.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	lost := 0
	var mu sync.Mutex
	l, stop := run(t, audit.Config{Sinks: []audit.Sink{openFile(t, path, 1<<20, 2)},
		Lost: func(n int) { mu.Lock(); lost += n; mu.Unlock() }})
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	limit := func(n uint64) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: was.Max}); err != nil {
			t.Fatal(err)
		}
	}
	defer limit(was.Cur)
	limit(4000)
	done, refused := 0, 0
	for i := range 40 {
		err := l.Begin(t.Context(), audit.Line{Stage: audit.Begun, Index: uint64(i + 1), Subject: strings.Repeat("a", 100)})
		var refusal *model.Error
		switch {
		case err == nil:
			done++
		case errors.As(err, &refusal) && refusal.Code == model.CodeAuditUnavailable:
			refused++
		default:
			t.Fatal(err)
		}
	}
	if done == 0 || refused == 0 || l.Failing() == "" {
		t.Fatalf("%d done, %d refused, failing %q", done, refused, l.Failing())
	}
	limit(was.Cur)
	until(t, "the log works again by itself", func() bool { return l.Failing() == "" })
	stop()
	lines := linesOf(t, path)
	if last := lines[len(lines)-1]; last.Stage != audit.Lost || last.Count != refused || len(lines) != done+1 {
		t.Errorf("%d lines, the last one %+v; want %d and one of %d lost", len(lines), last, done, refused)
	}
	mu.Lock()
	defer mu.Unlock()
	if lost != refused {
		t.Errorf("counted %d lost lines, want %d", lost, refused)
	}
}

// A short line still fits on a disk that is full for every other line. It does not mean that the log works again.
func TestDiskWithRoomForAShortLineIsFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, stop := run(t, audit.Config{Sinks: []audit.Sink{openFile(t, path, 1<<20, 2)}})
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was)
	line := audit.Line{Stage: audit.Begun, Subject: "cert:alice", Path: strings.Repeat("/a", 200)}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 400, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	if err := l.Begin(t.Context(), line); err == nil {
		t.Fatal("the line is written")
	}
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if l.Failing() == "" {
			t.Fatal("the log is said to work again, and no line like the lost one fits")
		}
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	until(t, "the log works again by itself", func() bool { return l.Failing() == "" })
	if err := l.Begin(t.Context(), line); err != nil {
		t.Error(err)
	}
	stop()
	if all := linesOf(t, path); len(all) != 2 || all[0].Stage != audit.Lost || all[0].Count != 1 {
		t.Errorf("%+v", all)
	}
}

func TestDeviceThatIsFull(t *testing.T) {
	l, _ := run(t, audit.Config{Sinks: []audit.Sink{openFile(t, "/dev/full", 1<<20, 2)}})
	l.Record(audit.Line{Stage: audit.Ended})
	until(t, "the failure", func() bool { return strings.Contains(l.Failing(), "no space") })
	if err := l.Begin(t.Context(), audit.Line{}); err == nil {
		t.Error("a line is on a full device")
	}
}

// A disk that hangs delays only those who wait for their line, and those not for ever.
func TestSlowDiskDelaysNobodyElse(t *testing.T) {
	slow := &sink{block: make(chan struct{})}
	l, stop := run(t, audit.Config{Sinks: []audit.Sink{slow}, Wait: 50 * time.Millisecond})
	began := time.Now()
	for i := range 10_000 {
		l.Record(audit.Line{Stage: audit.Ended, Index: uint64(i + 1)})
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("recording took %s", took)
	}
	var refusal *model.Error
	err := l.Begin(t.Context(), audit.Line{})
	if !errors.As(err, &refusal) || refusal.Code != model.CodeAuditUnavailable {
		t.Errorf("a line that must be on disk: %v", err)
	}
	if l.Failing() == "" {
		t.Error("lines are lost and nobody is told")
	}
	close(slow.block)
	until(t, "lost lines are told", func() bool { return strings.Contains(slow.text(), `"stage":"lost"`) })
	stop()
	if n := strings.Count(slow.text(), `"stage":"ended"`); n < 1000 || n > 9000 {
		t.Errorf("%d lines", n)
	}
}

// A syslog daemon that reads nothing keeps no line from the file, and nobody waiting who needs only the file. When it
// reads again, it gets the lines that had room in its queue, and the number of the others.
func TestDestinationThatBlocks(t *testing.T) {
	file, stuck := &sink{}, &sink{block: make(chan struct{})}
	l, stop := run(t, audit.Config{Sinks: []audit.Sink{file, stuck}, Required: true,
		Lost: func(int) { t.Error("a line is lost that is in the file") }})
	for range 10 {
		for range 1000 {
			l.Record(audit.Line{Stage: audit.Ended})
		}
		if err := l.Begin(t.Context(), audit.Line{Stage: audit.Begun}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(file.text(), `"stage":"ended"`); n != 10_000 {
		t.Errorf("the file has %d lines", n)
	}
	if said := l.Failing(); !strings.Contains(said, "beside the first") {
		t.Errorf("the log says %q", said)
	}
	close(stuck.block)
	until(t, "lost lines are told", func() bool { return l.Failing() == "" })
	stop()
	if n := strings.Count(stuck.text(), "\n"); n < 4000 || n > 9900 || strings.Count(stuck.text(), `"stage":"lost"`) != 1 {
		t.Errorf("the other destination has %d lines", n)
	}
}

func TestLinesAreSyncedForThoseWhoWait(t *testing.T) {
	s := &sink{}
	l, _ := run(t, audit.Config{Sinks: []audit.Sink{s}, Required: true})
	if err := l.Begin(t.Context(), audit.Line{Stage: audit.Begun}); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	synced := s.synced
	s.mu.Unlock()
	if synced == 0 || !strings.Contains(s.text(), `"stage":"begun"`) {
		t.Errorf("%d syncs of %s", synced, s.text())
	}
	s.fail(errors.New("broken"))
	if err := l.Begin(t.Context(), audit.Line{}); err == nil {
		t.Error("a line was written that could not be")
	}
}

// With a file, a syslog daemon that is off loses no line and refuses nobody. The log says so as long as it is off.
func TestSecondDestinationDecidesNothing(t *testing.T) {
	first, second := &sink{}, &sink{err: errors.New("syslog is off")}
	lost := false
	l, stop := run(t, audit.Config{Sinks: []audit.Sink{first, second}, Required: true, Lost: func(int) { lost = true }})
	begin := func() {
		t.Helper()
		if err := l.Begin(t.Context(), audit.Line{Stage: audit.Begun}); err != nil {
			t.Error(err)
		}
	}
	begin()
	until(t, "the log says that syslog is off", func() bool { return strings.Contains(l.Failing(), "syslog is off") })
	second.fail(nil)
	begin()
	until(t, "the log says that all is well", func() bool { return l.Failing() == "" })
	first.fail(errors.New("full"))
	if err := l.Begin(t.Context(), audit.Line{}); err == nil {
		t.Error("a line is written that is not in the first destination")
	}
	first.fail(nil)
	until(t, "the log works again", func() bool { return l.Failing() == "" })
	stop()
	if !lost || strings.Count(first.text(), "begun") != 2 || strings.Count(first.text(), "lost") != 1 {
		t.Errorf("lost %v: %s", lost, first.text())
	}
}

func TestLineHasOneLineAndNoToken(t *testing.T) {
	s := &sink{}
	l, stop := run(t, audit.Config{Sinks: []audit.Sink{s}})
	at := time.Date(2026, 3, 1, 10, 30, 0, 120456789, time.FixedZone("", 3600))
	many := make([]string, 50)
	many[0] = "job/a\n\x1b[31m\u009b&<web>"
	l.Record(audit.Line{Time: at, Subject: "cert:\"x\"\n{", Objects: many, RequestID: strings.Repeat("é", 5000),
		Path: "/v1/tokens/osj1.server." + strings.Repeat("ab12", 20) + "." + strings.Repeat("cd34", 10)})
	stop()
	text := s.text()
	var line audit.Line
	if err := json.Unmarshal([]byte(text), &line); err != nil || strings.Count(text, "\n") != 1 {
		t.Fatalf("%v in %q", err, text)
	}
	if !strings.HasPrefix(text, `{"time":"2026-03-01T09:30:00.120Z","server":"s1",`) ||
		len(text) > 2000 || strings.Contains(text, "cd34") || !strings.Contains(text, "&<web>") ||
		strings.ContainsAny(text, "\x1b\u009b") || line.More != 30 || line.Path != "/v1/tokens/(secret)" {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

func TestCheckFile(t *testing.T) {
	if err := audit.CheckFile(filepath.Join(t.TempDir(), "missing", "audit.log")); err == nil {
		t.Error("a directory that does not exist is good")
	}
	dir := t.TempDir()
	if err := audit.CheckFile(filepath.Join(dir, "audit.log")); err != nil {
		t.Error(err)
	}
	if err := audit.CheckFile(dir); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("a directory: %v", err)
	}
	for mode, good := range map[os.FileMode]bool{0o777: false, 0o775: true, 0o777 | os.ModeSticky: true} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := audit.CheckFile(filepath.Join(dir, "audit.log")); (err == nil) != good {
			t.Errorf("a directory with %s: %v", mode, err)
		}
	}
}
