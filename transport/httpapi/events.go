package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Limits of an event stream. A stream ends after streamLife, and its reader can resume it without a gap.
const (
	streamLife    = time.Hour
	streamPing    = 15 * time.Second // how long a stream stays silent before it sends a sign of life
	writeBound    = 20 * time.Second // how long a reader has to receive one write
	eventsABurst  = 500              // events read between two writes
	eventsCatchUp = 3 * time.Second  // wait for an event that this server has not received yet
)

func showEvent(e *fsm.Event) api.Event {
	v := api.Event{
		ID: e.Key.String(), Type: e.Type, Subject: e.Subject, Time: wallTime(e.Wall), Index: e.Key.Index(), Cause: e.Cause,
		Actor: e.Actor, RequestID: e.Request, Data: map[string]string{},
	}
	for k, value := range e.Data {
		v.Data[k] = value
	}
	if e.Before != "" || e.After != "" {
		v.Data["before"], v.Data["after"] = e.Before, e.After
	}
	return v
}

func (s *Server) eventOperations() []operation {
	rt := getRoute("events", "/v1/events", "events",
		"Stream events: text/event-stream, or application/x-ndjson if Accept says so. Resume with Last-Event-ID or after; "+
			"410 with the oldest if that is no longer kept, and with the newest if it has not been reached")
	rt.allow, rt.stream = forCLI|forServer, true
	return []operation{plain(rt, document{answer: "text/event-stream", params: params(
		queryParam("after", "an event's id: begin behind it; 0: with the oldest; default: with what happens from now on"),
		queryParam("tail", "begin with this many of the newest events"),
		queryParam("since",
			"without after: begin with what happened since then: a time (RFC 3339), or a duration such as 30m"),
		queryParam("follow", "false: end with the newest event; default true"),
		queryParam("type", "only these types, joined by commas: node.registered, or node. for all that begin so"),
		queryParam("subject",
			"only these subjects, joined by commas: node/NAME, KIND/ID or a unique prefix of it, "+
				"or node/ for all that begin so"),
		&huma.Param{Name: api.HeaderLastEvent, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "as after"},
	)}, http.HandlerFunc(s.streamEvents))}
}

// eventStream is one reader of events.
type eventStream struct {
	s        *Server
	may      func(*fsm.State) error // returns an error once the reader has lost the right
	sse      bool
	after    fsm.EventKey
	follow   bool
	types    []string
	subjects []string
}

func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) {
	life, release, err := s.streams.take(r.Context(), callerFrom(r.Context()).Subject)
	if err != nil {
		writeError(w, err)
		return
	}
	defer release()
	stream, err := s.newEventStream(r)
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if stream.sse {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	ctx, cancel := context.WithTimeout(life, streamLife)
	defer cancel()
	if err := stream.run(ctx, w); err != nil {
		s.log.Debug("event stream ended", "caller", callerFrom(ctx).Subject, "error", err)
	}
}

func (s *Server) newEventStream(r *http.Request) (*eventStream, error) {
	if err := checkQuery(r, "after", "tail", "since", "follow", "type", "subject"); err != nil {
		return nil, err
	}
	q, c := r.URL.Query(), callerFrom(r.Context())
	e := &eventStream{
		s: s, may: func(state *fsm.State) error { return s.judge.mayDo(state, c, verbs["events"]) },
		sse: !strings.Contains(r.Header.Get("Accept"), "application/x-ndjson"), follow: q.Get("follow") != "false",
		types: words(q.Get("type")), subjects: words(q.Get("subject")),
	}
	last := r.Header.Get(api.HeaderLastEvent)
	if last == "" {
		last = q.Get("after")
	}
	state, _ := s.cfg.Store.Watch()
	err := checkTypes(e.types)
	if err == nil {
		e.subjects, err = findSubjects(&state, e.subjects, e.follow)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case last != "":
		key, err := parseEventID(last)
		if err != nil {
			return nil, err
		}
		e.after = key
		if err := s.reach(r.Context(), key); err != nil {
			return nil, err
		}
		state, _ = s.cfg.Store.Watch()
		return e, checkKept(state, key)
	case q.Get("since") != "":
		e.after, err = s.since(state, q.Get("since"))
		return e, err
	case q.Get("tail") != "":
		n, err := strconv.Atoi(q.Get("tail"))
		if err != nil || n < 0 {
			return nil, model.Refuse(model.CodeInvalid, "tail is not a number of events")
		}
		e.after = e.positionOfLast(state, n)
	case e.follow:
		e.after = newest(state)
	}
	return e, nil
}

func words(list string) []string {
	var all []string
	for w := range strings.SplitSeq(list, ",") {
		if w = strings.TrimSpace(w); w != "" {
			all = append(all, w)
		}
	}
	return all
}

// newest returns the position after all events of a state.
func newest(state fsm.State) fsm.EventKey {
	return fsm.NewEventKey(state.Index+1, 0) - 1
}

// positionOfLast returns a position after which the newest n matching events follow.
func (e *eventStream) positionOfLast(state fsm.State, n int) fsm.EventKey {
	var last []fsm.EventKey
	for key := range state.Events.Find(0, e.wants) {
		if last = append(last, key); len(last) > n {
			last = last[1:]
		}
	}
	if len(last) == 0 {
		return newest(state)
	}
	if oldest, _, _ := state.Events.Min(); last[0] == oldest {
		return 0 // checkKept would refuse the position before the oldest event
	}
	return last[0] - 1
}

func parseEventID(id string) (fsm.EventKey, error) {
	index, n, dotted := strings.Cut(id, ".")
	i, err := strconv.ParseUint(index, 10, 44)
	k := uint64(0)
	if err == nil && dotted {
		k, err = strconv.ParseUint(n, 10, 20)
	}
	if err != nil {
		return 0, model.Refuse(model.CodeInvalid, "the id of the last event is not index.n").
			WithHint("give the id of an event, such as 1042.0, or 0 for the oldest that is kept")
	}
	return fsm.NewEventKey(i, int(k)), nil
}

// checkKept returns an error if the event at the given position is no longer kept, because later events may be missing
// too. Position 0 means before all kept events. Code: event_collected.
func checkKept(state fsm.State, after fsm.EventKey) error {
	oldest, _, ok := state.Events.Min()
	if after == 0 || !ok || after >= oldest {
		return nil
	}
	p := api.NewProblem(model.Refuse(model.CodeEventCollected, "the events behind %s are no longer kept; the oldest is %s",
		after, oldest).
		WithHint("read the present state, then go on behind its Outspan-Index, or begin with after=0"))
	p.Oldest = oldest.String()
	return p
}

// reach waits until this server's state has reached a position, at most eventsCatchUp. If it does not, the position
// most likely belongs to another cluster or to a state before a restore. A reader that resumed from such a position
// would miss all events until the log is as long again. Code: event_collected.
func (s *Server) reach(ctx context.Context, after fsm.EventKey) error {
	ctx, cancel := context.WithTimeout(ctx, eventsCatchUp)
	defer cancel()
	for {
		state, changed := s.cfg.Store.Watch()
		if after <= newest(state) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			last, _, _ := state.Events.Max()
			p := api.NewProblem(model.Refuse(model.CodeEventCollected, "there is no event %s; the newest is %s", after, last).
				WithHint("read the present state, then go on behind its Outspan-Index, or begin with after=0"))
			p.Newest = last.String()
			return p
		}
	}
}

func (e *eventStream) wants(typ model.EventType, subject string) bool {
	return matches(string(typ), e.types) && matches(subject, e.subjects)
}

// matches reports whether text is one of the words, or begins with a word that ends in '.' or '/'. If there are no
// words, it returns true.
func matches(text string, words []string) bool {
	for _, w := range words {
		if text == w || strings.HasSuffix(w, ".") && strings.HasPrefix(text, w) || strings.HasSuffix(w, "/") &&
			strings.HasPrefix(text, w) {
			return true
		}
	}
	return len(words) == 0
}

// run writes events as they happen. It returns nil when ctx ends or the server stops. If e.follow is false, it returns
// nil after the newest event. It returns an error if the reader has gone or is too slow. The rights of the reader are
// judged by the state that the events are of, so none is written of a state that has taken the right away.
func (e *eventStream) run(ctx context.Context, w http.ResponseWriter) error {
	flush := http.NewResponseController(w)
	if err := flush.Flush(); err != nil { // so that a reader sees that the stream is open before the first event
		return fmt.Errorf("flush a stream: %w", err)
	}
	var buf bytes.Buffer
	e.greet(&buf)
	for {
		woken, cancel := e.s.cfg.Store.WatchTopic("events")
		state, _ := e.s.cfg.Store.Watch()
		if err := e.may(&state); err != nil {
			cancel()
			return err
		}
		more, err := e.collect(state, &buf)
		if err == nil {
			err = send(w, flush, &buf)
		}
		if err != nil || more {
			cancel()
			if err != nil {
				return err
			}
			continue
		}
		if !e.follow {
			cancel()
			return nil
		}
		ended := e.wait(ctx, woken, &buf)
		cancel()
		if ended {
			return nil
		}
	}
}

// greet sends a reader of SSE its position before the first event, so that the reader can resume from there.
func (e *eventStream) greet(buf *bytes.Buffer) {
	if e.sse && e.follow {
		fmt.Fprintf(buf, ": outspan\nid: %s\n\n", e.after)
	}
}

// collect writes the next events into buf. If more is true, further events can be read at once. It returns an error if
// the reader is so slow that events that it has not read are no longer kept.
func (e *eventStream) collect(state fsm.State, buf *bytes.Buffer) (more bool, err error) {
	if err := checkKept(state, e.after); err != nil && e.after != 0 {
		return false, err
	}
	n := 0
	for key, event := range state.Events.From(e.after + 1) {
		if n++; n > eventsABurst {
			return true, nil
		}
		e.after = key
		if e.wants(event.Type, event.Subject) {
			e.write(buf, event)
		}
	}
	return false, nil
}

func (e *eventStream) write(buf *bytes.Buffer, event *fsm.Event) {
	text, err := json.Marshal(showEvent(event))
	if err != nil {
		return // strings and times always marshal
	}
	if e.sse {
		fmt.Fprintf(buf, "id: %s\nevent: %s\ndata: %s\n\n", event.Key, event.Type, text)
		return
	}
	buf.Write(text)
	buf.WriteByte('\n')
}

// wait blocks until there may be new events, at most streamPing. When streamPing has passed, it adds a sign of life to
// buf. It returns true if ctx has ended or the server stops.
func (e *eventStream) wait(ctx context.Context, woken <-chan struct{}, buf *bytes.Buffer) (ended bool) {
	ping := time.NewTimer(streamPing)
	defer ping.Stop()
	select {
	case <-woken:
		return false
	case <-ping.C:
		if e.sse {
			buf.WriteString(": alive\n\n")
		} else {
			buf.WriteByte('\n')
		}
		return false
	case <-ctx.Done():
	case <-transport.Stopping(ctx):
	}
	return true
}

// send writes buf and empties it. It returns an error if the reader has not received all of it within writeBound.
func send(w http.ResponseWriter, flush *http.ResponseController, buf *bytes.Buffer) error {
	if buf.Len() == 0 {
		return nil
	}
	defer buf.Reset()
	if err := flush.SetWriteDeadline(time.Now().Add(writeBound)); err != nil {
		return fmt.Errorf("bound the write of a stream: %w", err)
	}
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write to a stream: %w", err)
	}
	if err := flush.Flush(); err != nil {
		return fmt.Errorf("flush a stream: %w", err)
	}
	return nil
}
