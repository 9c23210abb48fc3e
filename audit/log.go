package audit

import (
	"context"
	"errors"
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
	Server   string // name of this server
	Required bool   // see Log.Begin
	// Sinks are the destinations. Each gets every line through a queue of its own, so that none delays another. The first
	// one decides whether a line is written: only its failures are lost lines, and only they make Begin fail.
	Sinks  []Sink
	Logger hclog.Logger // default: nothing is logged
	Wrote  func(lines int)
	Lost   func(lines int) // gets the number of lines that could not be written; must not block
	Wait   time.Duration   // how long Begin waits; default waitLimit
}

// Log is the audit log of a server. Its methods are safe for concurrent use.
type Log struct {
	cfg     Config
	outlets []*outlet // one for each sink
	quiet   quiet
}

// New returns a log. It needs at least one sink. Run must be called.
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
	l := &Log{cfg: cfg}
	for i, sink := range cfg.Sinks {
		l.outlets = append(l.outlets, newOutlet(&l.cfg, sink, i == 0))
	}
	return l
}

// Required reports whether a call that can't be recorded must be refused.
func (l *Log) Required() bool { return l.cfg.Required }

// Failing returns why lines can't be written at present, or "". It also says if only a sink other than the first fails:
// then nothing is refused.
func (l *Log) Failing() string {
	for i, o := range l.outlets {
		switch why := o.whyFailing(); {
		case why != "" && i == 0:
			return why
		case why != "":
			return "one of its destinations, beside the first: " + why
		}
	}
	return ""
}

// Reopen makes the log open its file again, after a program such as logrotate has moved it away. It does not block.
func (l *Log) Reopen() {
	for _, o := range l.outlets {
		select {
		case o.reopen <- struct{}{}:
		default: // it is requested already
		}
	}
}

// Record writes a line. It does not block: if the queue of a sink is full, the line is lost there and counted.
func (l *Log) Record(line Line) { l.toAll(line, nil) }

// toAll puts a line into all queues, except that of the outlet not.
func (l *Log) toAll(line Line, not *outlet) {
	text := l.cfg.encode(line)
	for _, o := range l.outlets {
		if o != not {
			o.record(text)
		}
	}
}

// Refuse is Record for a refusal. Of the refusals of one subject with one code, only the first in each minute have
// lines of their own. The others are counted in one line.
func (l *Log) Refuse(line Line) {
	if l.quiet.take(line) {
		l.Record(line)
	}
}

// Handshake is Refuse for a handshake that failed, which proves nothing. Only the first of each address in each minute
// has a line of its own.
func (l *Log) Handshake(line Line) {
	if l.quiet.handshake(line) {
		l.Record(line)
	}
}

// Admit reports whether there is room this minute for a line about a caller that has proved no identity, or has no
// rights. If not, Admit counts the line, as Refuse does.
func (l *Log) Admit(line Line) bool { return l.quiet.admit(line) }

// Begin writes a line and returns once the first sink has it on disk. It blocks for at most Config.Wait. Lines of
// concurrent callers share one sync. Code: audit_unavailable. The line may still be written after an error.
func (l *Log) Begin(ctx context.Context, line Line) error {
	first := l.outlets[0]
	one := item{line: l.cfg.encode(line), done: make(chan error, 1)}
	l.toAll(line, first)
	timer := time.NewTimer(l.cfg.Wait)
	defer timer.Stop()
	late := errors.New("it takes too long")
	select {
	case first.queue <- one:
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

func (c *Config) encode(line Line) []byte {
	if line.Time.IsZero() {
		line.Time = time.Now()
	}
	line.Server = c.Server
	return line.encode()
}

// Run writes lines until ctx ends, and then those that are left. It returns after lastLimit at the latest. Code:
// timeout if a sink still blocks then.
func (l *Log) Run(ctx context.Context) error {
	var writing sync.WaitGroup
	stop := make(chan struct{})
	for _, o := range l.outlets {
		writing.Go(func() { o.serve(stop) })
	}
	l.count(ctx)
	close(stop)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		writing.Wait()
	}()
	timer := time.NewTimer(lastLimit)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return model.Refuse(model.CodeTimeout, "the last lines of the audit log were not written within %s", lastLimit)
	}
}

// count records how many refusals had no line of their own, each minute and when ctx ends.
func (l *Log) count(ctx context.Context) {
	minute := time.NewTicker(quietPeriod)
	defer minute.Stop()
	for over := false; !over; {
		select {
		case <-minute.C:
		case <-ctx.Done():
			over = true
		}
		for _, line := range l.quiet.next() {
			l.Record(line)
		}
	}
}
