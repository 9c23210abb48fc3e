package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
)

// Events are the operations that read events.
type Events struct{ calls }

// EventOptions select events. With the zero value, List yields all events that are kept, and Follow only new ones.
type EventOptions struct {
	// After is the id of an event, and selects the events after that event. "0" selects all events that are kept. After
	// takes precedence over Since, and Since over Tail.
	After string
	// Since selects the events since a time: either a time in RFC 3339, or a duration before now, such as 30m.
	Since string
	// Tail selects this many of the newest events. Follow then also yields all later events.
	Tail *int
	// Types and Subjects select events of these types and about these subjects. An empty list selects all. A type that
	// ends in a dot, such as node., is a prefix. A subject that ends in a slash, such as job/, is a prefix too.
	Types, Subjects []string
}

func (o EventOptions) query(follow bool) url.Values {
	q := url.Values{"follow": {strconv.FormatBool(follow)}}
	switch {
	case o.After != "":
		q.Set("after", o.After)
	case o.Since != "":
		q.Set("since", o.Since)
	case o.Tail != nil:
		q.Set("tail", strconv.Itoa(*o.Tail))
	}
	if len(o.Types) > 0 {
		q.Set("type", strings.Join(o.Types, ","))
	}
	if len(o.Subjects) > 0 {
		q.Set("subject", strings.Join(o.Subjects, ","))
	}
	return q
}

// List yields the selected events that exist now, the oldest first. If a read fails, List yields the error and stops.
func (e Events) List(ctx context.Context, o EventOptions) iter.Seq2[Response[api.Event], error] {
	return func(yield func(Response[api.Event], error) bool) {
		if err := e.stream(ctx, o.query(false), yield); err != nil && !errors.Is(err, errEnough) {
			yield(Response[api.Event]{}, err)
		}
	}
}

// Follow yields the selected events as they happen. If the connection breaks, Follow reconnects and continues after the
// last event that it yielded. Events are missed only if the connection breaks before the first event and neither After
// nor Since is set. Follow stops when ctx ends, with the cause of ctx as its last error, or after an error that is not
// transient. Code: event_collected if the next events are no longer kept.
func (e Events) Follow(ctx context.Context, o EventOptions) iter.Seq2[Response[api.Event], error] {
	return func(yield func(Response[api.Event], error) bool) {
		for pause := firstPause; ; pause = min(2*pause, mostPause) {
			err := e.stream(ctx, o.query(true), func(got Response[api.Event], _ error) bool {
				o.After, pause = got.Value.ID, firstPause
				return yield(got, nil)
			})
			switch {
			case errors.Is(err, errEnough):
				return
			case ctx.Err() == nil && err != nil && !Transient(err) && !broken(err):
				yield(Response[api.Event]{}, err)
				return
			}
			if ctx.Err() != nil || !sleep(ctx, pause) {
				yield(Response[api.Event]{}, context.Cause(ctx))
				return
			}
		}
	}
}

// errEnough means that the caller stopped iterating.
var errEnough = errors.New("the reader has enough")

// broken reports whether err has no code. Errors of a connection that broke have none.
func broken(err error) bool {
	var known *model.Error
	return !errors.As(err, &known)
}

// stream makes one call and yields the events of the answer. It returns nil at the end of the answer, errEnough if
// yield returned false, and otherwise the error of the call or of the stream.
func (e Events) stream(ctx context.Context, query url.Values, yield func(Response[api.Event], error) bool) error {
	body, err := open(ctx, e.calls, route("events"), query, "application/x-ndjson")
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		line := slices.Clone(lines.Bytes())
		if len(line) == 0 {
			continue // the server sends an empty line to keep the connection alive
		}
		got := Response[api.Event]{Raw: line}
		if err := json.Unmarshal(line, &got.Value); err != nil {
			return model.Refuse(model.CodeInternal, "an event is not what this version of outspan expects: %v", err)
		}
		got.Index = got.Value.Index
		if !yield(got, nil) {
			return errEnough
		}
	}
	return lines.Err()
}

// open makes a call whose answer is a stream, and returns the stream. The caller closes the stream. accept is the
// wanted media type; "" means any.
func open(ctx context.Context, c calls, path string, query url.Values, accept string) (io.ReadCloser, error) {
	r := reach.Request{Path: path, Query: query, Header: http.Header{}}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	resp, err := c.caller.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
