package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

const (
	// maxLogReaders bounds how many log streams one agent serves at once.
	maxLogReaders = 64
	// tailWindow is how far back from the end lines are looked for.
	tailWindow = 4 << 20
	// logStall is how long a reader may take nothing.
	logStall = 30 * time.Second
)

// HeaderLogOffset is, for one stream, the place of the answer's first byte in it.
const HeaderLogOffset = "Outspan-Log-Offset"

// logServer answers GET /v1/agent/logs/{instance}.
type logServer struct {
	agent *Agent
	slots chan struct{}
}

func newLogServer(a *Agent) *logServer {
	return &logServer{agent: a, slots: make(chan struct{}, maxLogReaders)}
}

// logQuery is what a caller may ask: ?stream=stdout|stderr|both (default both) &follow=true, and where to begin: offset=N,
// in bytes (negative: from the end; one stream only), or tail=N, in lines. Default: everything that is kept.
type logQuery struct {
	streams []driver.Stream
	follow  bool
	offset  int64
	tail    int // lines; -1 = use offset
}

func parseLogQuery(q url.Values) (logQuery, error) {
	bad := func(name string) error {
		return fsm.Refuse(fsm.CodeInvalid, "the query's %s can't be used", name).WithHint("use stream=stdout|stderr|both, follow=true|false, and offset=N or tail=N")
	}
	out := logQuery{tail: -1}
	switch s := q.Get("stream"); s {
	case "", "both":
		out.streams = []driver.Stream{driver.Stdout, driver.Stderr}
	default:
		out.streams = []driver.Stream{driver.Stream(s)}
		if !out.streams[0].Valid() {
			return out, bad("stream")
		}
	}
	var err error
	if v := q.Get("follow"); v != "" {
		if out.follow, err = strconv.ParseBool(v); err != nil {
			return out, bad("follow")
		}
	}
	if v := q.Get("tail"); v != "" {
		if out.tail, err = strconv.Atoi(v); err != nil || out.tail < 0 {
			return out, bad("tail")
		}
	}
	if v := q.Get("offset"); v != "" {
		if out.offset, err = strconv.ParseInt(v, 10, 64); err != nil || out.tail >= 0 || len(out.streams) > 1 {
			return out, bad("offset")
		}
	}
	return out, nil
}

// serve streams the logs of an instance, also of one that has ended, until all is sent; with follow until it has ended.
// Two streams are mixed line by line as they come. Codes: not_found, invalid, busy.
func (s *logServer) serve(w http.ResponseWriter, r *http.Request) {
	query, err := parseLogQuery(r.URL.Query())
	if err != nil {
		writeProblem(w, err)
		return
	}
	id := fsm.InstanceID(r.PathValue("instance"))
	task, ok := s.agent.crew.task(id)
	if !ok {
		writeProblem(w, fsm.Refuse(fsm.CodeNotFound, "there are no logs of that instance on node %s", s.agent.cfg.Name).
			WithHint("logs are kept until some time after an instance has gone"))
		return
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		writeProblem(w, fsm.Refuse(fsm.CodeBusy, "node %s serves %d logs already", s.agent.cfg.Name, maxLogReaders).WithHint("try again later"))
		return
	}
	ctx, stop := until(r.Context(), transport.Stopping(r.Context()))
	defer stop()
	logs, err := openLogs(ctx, task, query)
	if err != nil {
		writeProblem(w, err)
		return
	}
	if len(logs) == 1 {
		w.Header().Set(HeaderLogOffset, strconv.FormatInt(logs[0].Offset(), 10))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	out := &lineWriter{w: w, control: http.NewResponseController(w)}
	out.flush() // the header, so that a follower knows that it is connected
	var wg sync.WaitGroup
	for i, l := range logs {
		wg.Go(func() {
			t := task
			for l != nil && out.copy(l, len(logs) > 1) && query.follow {
				l, t = s.nextRun(ctx, id, t, query.streams[i], l)
			}
			if l != nil {
				l.Close()
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		panic(http.ErrAbortHandler) // so that the reader does not take it for the end
	}
}

// nextRun waits until the program is started again and goes on in its log; nil when it won't be, or ctx ended.
func (s *logServer) nextRun(ctx context.Context, id fsm.InstanceID, old Task, stream driver.Stream, l Log) (Log, Task) {
	defer l.Close()
	for sleep(ctx, 200*time.Millisecond, nil) {
		m := s.agent.crew.member(id)
		if m == nil {
			return nil, nil
		}
		if t := m.current(); t != old {
			next, err := t.OpenLog(ctx, stream, l.Offset(), true)
			if err != nil {
				return nil, nil
			}
			return next, t
		}
		if status, _ := s.agent.shop.reports.status(id); status.Observed == fsm.ObservedFailed || status.Observed == fsm.ObservedStopped {
			return nil, nil
		}
	}
	return nil, nil
}

// openLogs opens every stream at its place.
func openLogs(ctx context.Context, task Task, q logQuery) ([]Log, error) {
	var logs []Log
	for _, stream := range q.streams {
		offset := q.offset
		var err error
		if q.tail >= 0 {
			offset, err = tailOffset(ctx, task, stream, q.tail)
		}
		var l Log
		if err == nil {
			l, err = task.OpenLog(ctx, stream, offset, q.follow)
		}
		if err != nil {
			for _, open := range logs {
				open.Close()
			}
			return nil, err
		}
		logs = append(logs, l)
	}
	return logs, nil
}

// tailOffset finds where the last n lines of a stream begin, within tailWindow.
func tailOffset(ctx context.Context, task Task, s driver.Stream, n int) (int64, error) {
	l, err := task.OpenLog(ctx, s, -tailWindow, false)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	at := l.Offset()
	text, err := io.ReadAll(io.LimitReader(l, 2*tailWindow))
	if err != nil {
		return 0, fsm.Refuse(fsm.CodeInternal, "read the log: %v", err)
	}
	begin := len(text)
	for ; n > 0 && begin > 0; n-- {
		begin = bytes.LastIndexByte(text[:begin-1], '\n') + 1
	}
	return at + int64(begin), nil
}

// lineWriter lets several streams share an answer. Safe for many goroutines.
type lineWriter struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
}

// copy sends a stream and reports whether that reached its end. whole sends whole lines only, so that streams don't mix
// within one; a line above 64 KiB is cut.
func (o *lineWriter) copy(l Log, whole bool) bool {
	buf := make([]byte, 64<<10)
	held := 0
	for {
		n, err := l.Read(buf[held:])
		held += n
		cut := held
		if whole && err == nil && held < len(buf) {
			cut = bytes.LastIndexByte(buf[:held], '\n') + 1
		}
		if cut > 0 && o.write(buf[:cut]) != nil {
			return false
		}
		held = copy(buf, buf[cut:held])
		if err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

func (o *lineWriter) write(b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.control.SetWriteDeadline(time.Now().Add(logStall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := o.w.Write(b); err != nil {
		return err
	}
	return o.flushLocked()
}

func (o *lineWriter) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.flushLocked() // the next write tells
}

func (o *lineWriter) flushLocked() error {
	if err := o.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
