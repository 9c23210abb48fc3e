package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// Limits of one reader of a job's logs.
const (
	maxJobLogs = 100      // instances whose logs are read at once; others wait
	maxLogLine = 64 << 10 // bytes; a longer line is cut into pieces. Must be the same as maxLine of agents
)

func deadline(d time.Duration) time.Time { return time.Now().Add(d) }

// jobLogs merges the logs of a job's instances into one answer, line by line: "group[slot] id | text".
func (s *Server) jobLogs(w http.ResponseWriter, r *http.Request) {
	life, release, err := s.streams.take(r.Context(), callerFrom(r.Context()).Subject)
	if err != nil {
		writeError(w, err)
		return
	}
	defer release()
	if err := checkLogQuery(r, "group", "running"); err != nil {
		writeError(w, err)
		return
	}
	state, _ := s.cfg.Store.Watch()
	sees := s.judge.sight(&state, callerFrom(r.Context()), verbs["job-logs"])
	j, refusal := state.Finder(sees).FindJob(r.PathValue("name"))
	if refusal != nil {
		writeError(w, refusal)
		return
	}
	ctx, cancel := streamContext(life, streamLife)
	defer cancel()
	ctx, cancel, err = s.judge.whileReadable(ctx, "job-logs", j.Name, func(state *fsm.State) rights.Object {
		return jobObject(state, "job/"+string(j.Name), j.Name)
	})
	if err != nil {
		writeError(w, err)
		return
	}
	defer cancel()
	query := r.URL.Query()
	group := model.NewGroupID(j.Name, query.Get("group"))
	if _, ok := state.Groups.Get(group); !ok && query.Get("group") != "" {
		writeError(w, model.Refuse(model.CodeNotFound, "job %s has no group %q", j.Name, clip(query.Get("group"))))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	m := &logMerge{
		s: s, job: j.Name, group: query.Get("group"), query: query,
		follow: isTrue(query.Get("follow")), times: isTrue(query.Get("timestamps")), running: isTrue(query.Get("running")),
		out:   &boundedWriter{ResponseWriter: w, flush: http.NewResponseController(w)},
		slots: make(chan struct{}, maxJobLogs), cancel: cancel,
	}
	m.run(ctx)
	if m.follow || ctx.Err() != nil {
		panic(http.ErrAbortHandler) // something ended the stream; the reader must not mistake this for the end of the logs
	}
}

// isTrue parses a parameter that checkLogQuery has checked.
func isTrue(text string) bool {
	v, err := strconv.ParseBool(text)
	return err == nil && v
}

// logMerge merges the logs of a job's instances by time for one reader. Each log has its own goroutine; run waits for
// all of them.
type logMerge struct {
	s       *Server
	job     model.JobName
	group   string
	query   url.Values
	follow  bool
	times   bool // show times
	running bool // omit instances that have ended
	slots   chan struct{}
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	order   *logOrder
	out     *boundedWriter

	mu   sync.Mutex
	gone int // instances whose logs no longer exist
}

func (m *logMerge) run(ctx context.Context) {
	m.order = newLogOrder(m.follow, m.write)
	defer context.AfterFunc(ctx, m.order.stop)()
	defer m.wg.Wait()
	known := map[model.InstanceID]bool{}
	if m.out.flush.Flush() != nil {
		m.cancel()
	}
	if !m.follow {
		state, _ := m.s.cfg.Store.Watch()
		for some := range slices.Chunk(m.present(&state), maxJobLogs) { // all logs of a merge must be open together
			m.begin(ctx, some, true)
			m.wg.Wait()
		}
		m.tellGone()
		return
	}
	m.wg.Go(func() { m.order.run(ctx) })
	for first := true; ctx.Err() == nil; first = false {
		changed, cancel := m.s.cfg.Store.WatchTopic("instances")
		state, _ := m.s.cfg.Store.Watch()
		m.begin(ctx, slices.DeleteFunc(m.present(&state), func(i *fsm.Instance) bool { return known[i.ID] }), first)
		for _, i := range m.present(&state) {
			known[i.ID] = true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
		cancel()
	}
}

// tellGone writes a line with the number of instances whose logs no longer exist, if there are any.
func (m *logMerge) tellGone() {
	switch {
	case m.gone == 1:
		m.write([]byte("(1 instance has no logs any more)\n"))
	case m.gone > 1:
		m.write(fmt.Appendf(nil, "(%d instances have no logs any more)\n", m.gone))
	}
}

// begin starts to read the logs of some instances. It first registers all of them with the order, so that no line is
// written before lines of the others can arrive.
func (m *logMerge) begin(ctx context.Context, all []*fsm.Instance, first bool) {
	sources := make([]*logSource, len(all))
	for n, i := range all {
		sources[n] = m.order.open(fmt.Sprintf("%s/%d/%s", i.Group, i.Slot, i.ID))
	}
	for n, i := range all {
		m.wg.Go(func() {
			defer m.order.close(sources[n])
			m.read(ctx, i, first, sources[n])
		})
	}
}

// present returns the instances that have started. If m.follow or m.running is true, it omits those that have ended.
func (m *logMerge) present(state *fsm.State) []*fsm.Instance {
	var all []*fsm.Instance
	for id := range state.GroupsOf(m.job) {
		if _, name := id.Split(); m.group != "" && name != m.group {
			continue
		}
		for i := range state.InstancesOf(id) {
			if i.Status.Observed != model.ObservedPending && !((m.follow || m.running) && i.Terminal()) {
				all = append(all, i)
			}
		}
	}
	return all
}

// read passes on the lines of one instance. If first is false, the instance appeared after the stream began, so all its
// lines are sent and tail is ignored.
func (m *logMerge) read(ctx context.Context, i *fsm.Instance, first bool, source *logSource) {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return
	}
	query := url.Values{
		"stream": m.query["stream"], "follow": m.query["follow"], "since": m.query["since"], "timestamps": {"true"},
	}
	if first && m.query.Has("tail") {
		query.Set("tail", m.query.Get("tail"))
	}
	_, group := i.Group.Split()
	prefix := fmt.Sprintf("%s[%d] %.8s | ", group, i.Slot, i.ID)
	state, _ := m.s.cfg.Store.Watch()
	resp, err := m.s.agentLog(ctx, &state, i, query)
	if err != nil {
		var refusal *model.Error
		switch {
		case ctx.Err() != nil || !errors.As(err, &refusal):
		case refusal.Code == model.CodeNotFound && !m.follow:
			m.mu.Lock()
			m.gone++
			m.mu.Unlock()
		default:
			m.order.add(source, "", []byte(prefix+"("+refusal.Message+")\n"))
		}
		return
	}
	defer resp.Body.Close()
	timed := resp.Header.Get(headerLogTimes) != ""
	lines := jobLines{order: m.order, source: source, prefix: prefix, timed: timed, show: m.times}
	if err := lines.copy(resp.Body); err != nil && ctx.Err() == nil {
		m.order.add(source, "", []byte(prefix+"(the log stream broke off)\n"))
	}
}

// jobLines passes on the lines of one instance.
type jobLines struct {
	order  *logOrder
	source *logSource
	prefix string
	timed  bool // each line begins with its time and a blank
	show   bool // show the times
}

// copy passes on the input line by line. It cuts a line that is longer than maxLogLine bytes, without its time, into
// pieces. The agent cuts at the same length and puts the time before each piece, so copy never cuts a piece of the
// agent again. copy stops early if nobody reads any more.
func (l jobLines) copy(from io.Reader) error {
	in := bufio.NewReaderSize(from, maxLogLine) // ReadSlice returns at most as many bytes as fit into its buffer
	for {
		at, err := l.time(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := in.ReadSlice('\n')
		if len(text) > 0 && !l.line(at, bytes.TrimSuffix(text, []byte("\n"))) {
			return nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// time reads the time that the agent has put before a line.
func (l jobLines) time(in *bufio.Reader) (string, error) {
	if !l.timed {
		return noLogTime, nil
	}
	stamp, err := in.ReadSlice(' ')
	return string(bytes.TrimSuffix(stamp, []byte(" "))), err
}

// line passes on one line, which was written at the time at. It returns false if nobody reads any more.
func (l jobLines) line(at string, text []byte) bool {
	out := []byte(l.prefix)
	if l.show {
		out = append(append(out, at...), ' ')
	}
	return l.order.add(l.source, at, append(append(out, text...), '\n'))
}

// write sends one line. If the reader has gone, write cancels the stream and returns false.
func (m *logMerge) write(line []byte) bool {
	if _, err := m.out.Write(line); err != nil || m.out.flush.Flush() != nil {
		m.cancel()
		return false
	}
	return true
}
