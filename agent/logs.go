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
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	// maxLogReaders is how many requests for logs one agent serves at once.
	maxLogReaders = 64
	// tailWindow is how many bytes at the end of a log are searched for the last lines.
	tailWindow = 4 << 20
	// logStall is how long one write to a client may take before the answer is cut off.
	logStall = 30 * time.Second
)

// HeaderLogOffset is the header with the offset in the log at which the answer begins. An answer with two streams lacks
// it.
const HeaderLogOffset = "Outspan-Log-Offset"

// HeaderLogTimes is set to "true" if each line of the answer begins with its time and a blank. "-" stands for an
// unknown time.
const HeaderLogTimes = "Outspan-Log-Times"

// logServer answers GET /v1/agent/logs/{instance}.
type logServer struct {
	agent *Agent
	slots chan struct{}
}

func newLogServer(a *Agent) *logServer {
	return &logServer{agent: a, slots: make(chan struct{}, maxLogReaders)}
}

// logQuery is a caller's query. Its parameters are:
//   - stream=stdout|stderr|both, default both;
//   - follow=true: continue until the instance has ended;
//   - offset=N: begin at this byte, counted from the end if N is negative; only for one stream, and without tail;
//   - tail=N: begin with the last N lines; without offset and tail, the answer begins with the oldest line kept;
//   - timestamps=true: put before each line the time at which it was written, and a blank;
//   - since=TIME|DURATION: skip lines written before this time, or longer ago than this duration.
type logQuery struct {
	streams []driver.Stream
	follow  bool
	offset  int64
	tail    int // lines; -1 means that offset is used
	times   bool
	since   time.Time // skip older lines; zero skips no line
}

func parseLogQuery(q url.Values) (logQuery, error) {
	bad := func(name string) error {
		return model.Refuse(model.CodeInvalid, "the query's %s can't be used", name).
			WithHint("use stream=stdout|stderr|both, " +
				"follow=true|false, timestamps=true|false, since=TIME|DURATION, and offset=N or tail=N")
	}
	out := logQuery{tail: -1}
	var ok bool
	if out.streams, ok = logStreams(q.Get("stream")); !ok {
		return out, bad("stream")
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
	if v := q.Get("timestamps"); v != "" {
		if out.times, err = strconv.ParseBool(v); err != nil {
			return out, bad("timestamps")
		}
	}
	if v := q.Get("since"); v != "" {
		if out.since, ok = parseSince(v, time.Now()); !ok {
			return out, bad("since")
		}
	}
	if v := q.Get("offset"); v != "" {
		if out.offset, err = strconv.ParseInt(v, 10, 64); err != nil || out.tail >= 0 || len(out.streams) > 1 {
			return out, bad("offset")
		}
	}
	return out, nil
}

// serve sends the logs of an instance, which may have ended. With follow it continues until the instance has ended. The
// lines of two streams are merged in the order in which they were written. Codes: not_found, invalid, busy.
func (s *logServer) serve(w http.ResponseWriter, r *http.Request) {
	query, err := parseLogQuery(r.URL.Query())
	if err != nil {
		writeProblem(w, err)
		return
	}
	id := model.InstanceID(r.PathValue("instance"))
	task, ok := s.agent.supervisors.task(id)
	if !ok {
		writeProblem(w, model.Refuse(model.CodeNotFound, "there are no logs of that instance on node %s", s.agent.cfg.Name).
			WithHint("logs are kept until some time after an instance has gone"))
		return
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		writeProblem(w, model.Refuse(model.CodeBusy, "node %s serves %d logs already", s.agent.cfg.Name, maxLogReaders).
			WithHint("try again later"))
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
	if query.times {
		w.Header().Set(HeaderLogTimes, "true")
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	out := &lineWriter{w: w, control: http.NewResponseController(w)}
	out.flush() // sends the header, so that a client that follows knows that it is connected
	if query.plain() {
		s.copyAll(ctx, out, id, task, query, logs[0])
	} else {
		newLineMerge(logs, query, out, s.endOf(id, task)).run(ctx)
		for _, l := range logs {
			l.Close()
		}
	}
	if ctx.Err() != nil {
		panic(http.ErrAbortHandler) // so that the client does not take a cut-off answer for a complete one
	}
}

// plain reports whether the answer consists of the unchanged bytes of one stream.
func (q logQuery) plain() bool { return len(q.streams) == 1 && !q.times && q.since.IsZero() }

// copyAll sends one stream unchanged. If q.follow is set, it continues with the log of each later run of the program.
func (s *logServer) copyAll(ctx context.Context, out *lineWriter, id model.InstanceID, t Task, q logQuery, l Log) {
	for l != nil && out.copy(l) && q.follow {
		l, t = s.nextRun(ctx, id, t, q.streams[0], l)
	}
	if l != nil {
		l.Close()
	}
}

// nextRun closes l and waits until the program has been started again. It then opens the new run's log at the offset
// that l reached. It returns nil if the program won't start again, its log can't be opened, or ctx ends.
func (s *logServer) nextRun(ctx context.Context, id model.InstanceID, old Task,
	stream driver.Stream, l Log) (Log, Task) {
	defer l.Close()
	for sleep(ctx, 200*time.Millisecond, nil) {
		m := s.agent.supervisors.member(id)
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
		if status, _ := s.agent.shared.reports.status(id); status.Observed == model.ObservedFailed ||
			status.Observed == model.ObservedStopped {
			return nil, nil
		}
	}
	return nil, nil
}

// openLogs opens the log of every stream at the position where the answer begins.
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
			l, err = task.OpenLog(ctx, stream, offset, q.follow && q.plain())
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

// tailOffset returns where the last n lines of a stream begin. It searches only the last tailWindow bytes.
func tailOffset(ctx context.Context, task Task, s driver.Stream, n int) (int64, error) {
	l, err := task.OpenLog(ctx, s, -tailWindow, false)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	at := l.Offset()
	text, err := io.ReadAll(io.LimitReader(l, 2*tailWindow))
	if err != nil {
		return 0, model.Refuse(model.CodeInternal, "read the log: %v", err)
	}
	begin := len(text)
	for ; n > 0 && begin > 0; n-- {
		begin = bytes.LastIndexByte(text[:begin-1], '\n') + 1
	}
	return at + int64(begin), nil
}

// lineWriter writes an answer piece by piece and flushes each piece. Safe for concurrent use.
type lineWriter struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
}

// copy sends a log and reports whether it reached the log's end.
func (o *lineWriter) copy(l Log) bool {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.Read(buf)
		if n > 0 && o.write(buf[:n]) != nil {
			return false
		}
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
	_ = o.flushLocked() // the next write reports the error
}

func (o *lineWriter) flushLocked() error {
	if err := o.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
