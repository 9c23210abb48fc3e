package audit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
)

// Bounds of the queue and of waiting.
const (
	maxQueue  = 4096            // lines
	maxBatch  = 256 << 10       // bytes that are written at once
	waitLimit = 3 * time.Second // for a line that must be written
	lastLimit = 5 * time.Second // for the lines that are left when Run ends
	lookEvery = time.Second     // how often Run tries to write the number of lost lines
)

// Sink is a place to which lines are written. Only one goroutine uses it.
type Sink interface {
	// Write writes whole lines, or returns an error.
	Write(lines []byte) error
	// Sync returns once the lines written before survive a power failure, if the sink can tell.
	Sync() error
	// Reopen opens the file at its path again.
	Reopen() error
	Close() error
}

// Config configures a Log. The zero value of a field means its default.
type Config struct {
	Server   string       // name of this server
	Required bool         // see Log.Begin
	Sinks    []Sink       // each gets every line; a line counts as written once the first sink has it; see OpenFile
	Logger   hclog.Logger // default: nothing is logged
	Wrote    func(lines int)
	Lost     func(lines int) // gets the number of lines that could not be written; must not block
	Wait     time.Duration   // how long Begin waits; default waitLimit
}

// Log is the audit log of a server. Its methods are safe for concurrent use.
type Log struct {
	cfg    Config
	queue  chan item
	reopen chan struct{}
	quiet  quiet

	mu      sync.Mutex
	failing string // why the last line could not be written; "" if it could
	aside   string // why a sink other than the first did not get the last line; "" if all got it
	untold  int    // lines that were lost since the last line was written
	size    int    // of the longest lost line, in bytes
}

// item is an encoded line. done gets the result of the write; it is nil if nobody waits.
type item struct {
	line []byte
	done chan error
}

// New returns a log. Run must be called.
func New(cfg Config) *Log {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Lost == nil {
		cfg.Lost = func(int) {}
	}
	if cfg.Wrote == nil {
		cfg.Wrote = func(int) {}
	}
	if cfg.Wait <= 0 {
		cfg.Wait = waitLimit
	}
	return &Log{cfg: cfg, queue: make(chan item, maxQueue), reopen: make(chan struct{}, 1)}
}

// Required reports whether a call that can't be recorded must be refused.
func (l *Log) Required() bool { return l.cfg.Required }

// Failing returns why lines can't be written at present, or "". A failure of a sink other than the first is reported
// too, although no line is lost and no call refused because of it.
func (l *Log) Failing() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing == "" && l.aside != "" {
		return "one of its destinations, beside the first: " + l.aside
	}
	return l.failing
}

// Reopen makes the log open its file again, after a program such as logrotate has moved it away. It does not block.
func (l *Log) Reopen() {
	select {
	case l.reopen <- struct{}{}:
	default: // it is requested already
	}
}

// Record writes a line. It does not block: if the queue is full, the line is lost and counted.
func (l *Log) Record(line Line) {
	select {
	case l.queue <- item{line: l.encode(line)}:
	default:
		l.lose(1, 0, "lines come faster than they can be written")
	}
}

// Refuse is Record for a refusal. Of the refusals of one subject with one code, only the first in each minute have
// lines of their own. The others are counted in one line.
func (l *Log) Refuse(line Line) {
	if l.quiet.take(line) {
		l.Record(line)
	}
}

// Admit reports whether there is room this minute for a line about a caller that has proved no identity. If not, Admit
// counts the line, as Refuse does.
func (l *Log) Admit(line Line) bool { return l.quiet.admit(line) }

// Begin writes a line and returns once it is on disk. It blocks for at most Config.Wait. Lines of concurrent callers
// share one sync. Code: audit_unavailable. The line may still be written after an error.
func (l *Log) Begin(ctx context.Context, line Line) error {
	one := item{line: l.encode(line), done: make(chan error, 1)}
	timer := time.NewTimer(l.cfg.Wait)
	defer timer.Stop()
	late := errors.New("it takes too long")
	select {
	case l.queue <- one:
	case <-timer.C:
		return l.unavailable(late)
	case <-ctx.Done():
		return l.unavailable(ctx.Err())
	}
	select {
	case err := <-one.done:
		if err != nil {
			return l.unavailable(err)
		}
		return nil
	case <-timer.C:
		return l.unavailable(late)
	case <-ctx.Done():
		return l.unavailable(ctx.Err())
	}
}

func (l *Log) unavailable(err error) error {
	l.cfg.Logger.Warn("a call is refused, because the audit log can't be written", "error", err)
	return model.Refuse(model.CodeAuditUnavailable, "server %s can't write its audit log, which audit.required asks for",
		l.cfg.Server).WithHint("make room where audit.file is, or look at the log of that server; other servers may do it")
}

func (l *Log) encode(line Line) []byte {
	if line.Time.IsZero() {
		line.Time = time.Now()
	}
	line.Server = l.cfg.Server
	return line.encode()
}

// lose counts lines that are not written, the longest of which has the given size.
func (l *Log) lose(lines, size int, reason string) {
	l.mu.Lock()
	first := l.failing == ""
	l.failing = reason
	l.untold += lines
	l.size = max(l.size, size)
	l.mu.Unlock()
	l.cfg.Lost(lines)
	if first {
		l.cfg.Logger.Error("the audit log can't be written", "error", reason)
	}
}

// Run writes lines until ctx ends, and then those that are left. It returns after lastLimit at the latest. Code:
// timeout if a sink still blocks then.
func (l *Log) Run(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.serve(ctx)
	}()
	<-ctx.Done()
	timer := time.NewTimer(lastLimit)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return model.Refuse(model.CodeTimeout, "the last lines of the audit log were not written within %s", lastLimit)
	}
}

func (l *Log) serve(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	minute := time.NewTicker(quietPeriod)
	defer minute.Stop()
	for {
		select {
		case one := <-l.queue:
			l.write(one)
		case <-l.reopen:
			l.reopenAll()
		case <-look.C:
			l.tellLost(true)
		case <-minute.C:
			l.tellCounted()
		case <-ctx.Done():
			l.tellCounted()
			for len(l.queue) > 0 {
				l.write(<-l.queue)
			}
			l.tellLost(false)
			for _, sink := range l.cfg.Sinks {
				_ = sink.Close() // its lines are written
			}
			return
		}
	}
}

// write writes a line and those that wait after it.
func (l *Log) write(first item) {
	batch, size := []item{first}, len(first.line)
	for size < maxBatch && len(l.queue) > 0 {
		one := <-l.queue
		batch, size = append(batch, one), size+len(one.line)
	}
	lines, told := l.lostLine(false)
	waits, longest := l.Failing() != "", 0 // a line after lost ones is synced
	for _, one := range batch {
		lines = append(lines, one.line...)
		waits, longest = waits || one.done != nil, max(longest, len(one.line))
	}
	err := l.put(lines, told, waits)
	if err != nil {
		l.lose(len(batch), longest, err.Error())
	} else {
		l.cfg.Wrote(len(batch))
	}
	for _, one := range batch {
		if one.done != nil {
			one.done <- err
		}
	}
}

// put writes lines to all sinks, and returns the error of the first. The lines say how many lines were lost; told is
// that number.
func (l *Log) put(lines []byte, told int, sync bool) error {
	var failed, aside error
	for i, sink := range l.cfg.Sinks {
		err := sink.Write(lines)
		if err == nil && sync {
			err = sink.Sync()
		}
		if i == 0 {
			failed = err
		} else {
			aside = errors.Join(aside, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setAside(aside)
	if failed != nil {
		return failed
	}
	l.untold -= told
	if l.untold == 0 && l.failing != "" {
		l.failing, l.size = "", 0
		l.cfg.Logger.Info("the audit log is written again")
	}
	return nil
}

// setAside notes why sinks other than the first have not got a line. l.mu is held.
func (l *Log) setAside(err error) {
	before := l.aside
	if l.aside = ""; err != nil {
		l.aside = err.Error()
	}
	if before == "" && err != nil {
		l.cfg.Logger.Error("the audit log can't be written to one of its destinations", "error", err)
	}
}

// lostLine returns a line with the number of lost lines, or nothing. If long is set, blanks make it as long as the
// longest lost line. Then it can be written only if there is room for that line too.
func (l *Log) lostLine(long bool) (line []byte, lost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.untold == 0 {
		return nil, 0
	}
	line = l.encode(Line{Stage: Lost, Count: l.untold})
	if n := l.size - len(line); long && n > 0 {
		line = append(append(line[:len(line)-1], bytes.Repeat([]byte(" "), n)...), '\n')
	}
	return line, l.untold
}

// tellLost writes how many lines were lost, and syncs that line. So the log recovers by itself even if no call is
// recorded. See lostLine for long.
func (l *Log) tellLost(long bool) {
	if line, lost := l.lostLine(long); lost > 0 {
		if err := l.put(line, lost, true); err != nil {
			l.lose(0, 0, err.Error())
		}
	}
}

func (l *Log) tellCounted() {
	for _, line := range l.quiet.next() {
		l.write(item{line: l.encode(line)})
	}
}

func (l *Log) reopenAll() {
	for _, sink := range l.cfg.Sinks {
		if err := sink.Reopen(); err != nil {
			l.lose(0, 0, err.Error())
		}
	}
}

// plain is a Sink that writes to a stream.
type plain struct{ w io.WriteCloser }

func (p plain) Write(lines []byte) error {
	_, err := p.w.Write(lines)
	return err
}

func (p plain) Sync() error   { return nil }
func (p plain) Reopen() error { return nil }
func (p plain) Close() error  { return p.w.Close() }
