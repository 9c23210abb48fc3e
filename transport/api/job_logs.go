package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
)

// Bounds of one reader of a job's logs.
const (
	maxJobLogs = 100      // instances read at once; further ones wait for a place
	maxLogLine = 64 << 10 // bytes; a longer line is cut into pieces
)

func deadline(d time.Duration) time.Time { return time.Now().Add(d) }

// jobLogs reads the logs of every instance of a job into one answer, a line at a time: "group[slot] id | text".
func (s *Server) jobLogs(w http.ResponseWriter, r *http.Request) {
	release, err := s.streams.take(callerFrom(r.Context()).Identity)
	if err != nil {
		writeError(w, err)
		return
	}
	defer release()
	if err := checkLogQuery(r, "group"); err != nil {
		writeError(w, err)
		return
	}
	state, _ := s.cfg.Store.Watch()
	j, refusal := state.FindJob(r.PathValue("name"))
	if refusal != nil {
		writeError(w, refusal)
		return
	}
	query := r.URL.Query()
	group := fsm.NewGroupID(j.Name, query.Get("group"))
	if _, ok := state.Groups.Get(group); !ok && query.Get("group") != "" {
		writeError(w, fsm.Refuse(fsm.CodeNotFound, "job %s has no group %q", j.Name, clip(query.Get("group"))))
		return
	}
	ctx, cancel := streamContext(r.Context())
	defer cancel()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	m := &logMerge{
		s: s, job: j.Name, group: query.Get("group"), query: query, follow: query.Get("follow") == "true" || query.Get("follow") == "1",
		out: &boundedWriter{ResponseWriter: w, flush: http.NewResponseController(w)}, slots: make(chan struct{}, maxJobLogs), cancel: cancel,
	}
	m.run(ctx)
	if m.follow && r.Context().Err() == nil {
		panic(http.ErrAbortHandler) // it ended for reasons of this server: the reader must not take it for the end
	}
}

// logMerge is one reader of a job's logs. Each log has a goroutine; run returns when all have ended.
type logMerge struct {
	s      *Server
	job    fsm.JobName
	group  string
	query  url.Values
	follow bool
	slots  chan struct{}
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu  sync.Mutex
	out *boundedWriter
}

func (m *logMerge) run(ctx context.Context) {
	defer m.wg.Wait()
	known := map[fsm.InstanceID]bool{}
	m.flush()
	for first := true; ctx.Err() == nil; first = false {
		changed, cancel := m.s.cfg.Store.WatchTopic("instances")
		state, _ := m.s.cfg.Store.Watch()
		for _, i := range m.present(&state) {
			if !known[i.ID] {
				known[i.ID] = true
				m.wg.Go(func() { m.read(ctx, i, first) })
			}
		}
		if !m.follow {
			cancel()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
		cancel()
	}
}

// present are the instances whose logs may be read now: those that have started, and of the ended ones those that are
// kept.
func (m *logMerge) present(state *fsm.State) []*fsm.Instance {
	var all []*fsm.Instance
	for id := range state.GroupsOf(m.job) {
		if _, name := id.Split(); m.group != "" && name != m.group {
			continue
		}
		for i := range state.InstancesOf(id) {
			if i.Status.Observed != fsm.ObservedPending && !(m.follow && i.Terminal()) {
				all = append(all, i)
			}
		}
	}
	return all
}

// read passes on one instance's lines. One that began after the reader did is read from its beginning.
func (m *logMerge) read(ctx context.Context, i *fsm.Instance, first bool) {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return
	}
	query := url.Values{"stream": m.query["stream"], "follow": m.query["follow"]}
	if first && m.query.Has("tail") {
		query.Set("tail", m.query.Get("tail"))
	}
	_, group := i.Group.Split()
	prefix := fmt.Sprintf("%s[%d] %.8s | ", group, i.Slot, i.ID)
	state, _ := m.s.cfg.Store.Watch()
	resp, err := m.s.agentLog(ctx, &state, i, query)
	if err != nil {
		var refusal *fsm.Error
		if ctx.Err() == nil && errors.As(err, &refusal) {
			m.line(prefix, []byte("("+refusal.Message+")"))
		}
		return
	}
	defer resp.Body.Close()
	if err := m.lines(prefix, resp.Body); err != nil && ctx.Err() == nil {
		m.line(prefix, []byte("(the log stream broke off)"))
	}
}

// lines cuts what comes into lines. A line that is not complete yet is held back until it is, or until the end.
func (m *logMerge) lines(prefix string, from io.Reader) error {
	in := bufio.NewReaderSize(from, maxLogLine)
	for {
		text, err := in.ReadSlice('\n')
		if len(text) > 0 {
			m.line(prefix, bytes.TrimSuffix(text, []byte("\n")))
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

// line writes one line; a reader that has gone ends everything.
func (m *logMerge) line(prefix string, text []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := append(append([]byte(prefix), text...), '\n')
	if _, err := m.out.Write(out); err != nil || m.out.flush.Flush() != nil {
		m.cancel()
	}
}

func (m *logMerge) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.out.flush.Flush() != nil {
		m.cancel()
	}
}
