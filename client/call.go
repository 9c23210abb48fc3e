package client

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
)

// Response is the answer of a server to one call.
type Response[T any] struct {
	Value T
	// Raw is the JSON of the answer, as the server sent it.
	Raw []byte
	// Index is the log index of the state that the answer shows. Pass it as ReadOptions.Index to wait for a change.
	Index uint64
	// Stale is how long ago the answering server last heard from the leader. It is 0 unless the read had the consistency
	// Stale.
	Stale time.Duration
}

// List is a whole list, read from all its pages.
type List[T any] struct {
	Items []T
	// Raw is the JSON of the whole list. If there were several pages, Raw joins them.
	Raw []byte
	// Index is the log index of the state that the last page shows.
	Index uint64
	// Hidden is how many items the caller may not read.
	Hidden int
}

// calls is embedded in the types that have the operations, such as Budgets. Its caller sends their requests.
type calls struct{ caller *reach.Caller }

// route returns the path of an operation: /v1, followed by the escaped parts.
func route(parts ...string) string {
	var path strings.Builder
	path.WriteString("/v1")
	for _, part := range parts {
		path.WriteString("/" + url.PathEscape(part))
	}
	return path.String()
}

func read[T any](ctx context.Context, c calls, path string, query url.Values) (Response[T], error) {
	return send[T](ctx, c, reach.Request{Method: http.MethodGet, Path: path, Query: query})
}

// write makes a call with any method. Unless body is nil, write sends it as JSON.
func write[T any](ctx context.Context, c calls, method, path string, query url.Values, body any) (Response[T], error) {
	r := reach.Request{Method: method, Path: path, Query: query}
	if body != nil {
		var err error
		if r.Body, err = json.Marshal(body); err != nil {
			return Response[T]{}, model.Refuse(model.CodeInternal, "can't encode the request: %v", err)
		}
	}
	return send[T](ctx, c, r)
}

func send[T any](ctx context.Context, c calls, r reach.Request) (Response[T], error) {
	answer, err := c.caller.Send(ctx, r)
	got := Response[T]{Raw: answer.Body, Index: answer.Index, Stale: answer.Stale}
	if err != nil {
		return got, err
	}
	return got, decode(answer.Body, &got.Value, r.Method, r.Path)
}

func decode(raw []byte, into any, method, path string) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return model.Refuse(model.CodeInternal, "the answer to %s %s is not what this version of outspan expects: %v",
			method, path, err).
			WithHint("compare versions with: outspan version; outspan server members")
	}
	return nil
}

type page[T any] struct {
	Items []T    `json:"items"`
	Index uint64 `json:"index"`
	Next  string `json:"next,omitempty"`

	Hidden int `json:"hidden,omitempty"`
}

// pages yields a list page by page. If a read fails, pages yields the error and stops.
func pages[T any](ctx context.Context, c calls, path string, query url.Values) iter.Seq2[Response[page[T]], error] {
	return func(yield func(Response[page[T]], error) bool) {
		query := maps.Clone(query) // the sequence may be read more than once
		for {
			one, err := read[page[T]](ctx, c, path, query)
			if !yield(one, err) || err != nil || one.Value.Next == "" {
				return
			}
			query.Set("next", one.Value.Next)
			query.Del("index") // only the first page waits for a change
			query.Del("wait")
		}
	}
}

// list reads all pages of a list.
func list[T any](ctx context.Context, c calls, path string, query url.Values) (List[T], error) {
	whole := List[T]{Items: []T{}}
	var raw [][]byte
	for one, err := range pages[T](ctx, c, path, query) {
		if err != nil {
			return List[T]{}, err
		}
		whole.Hidden += one.Value.Hidden
		whole.Items, whole.Index, raw = append(whole.Items, one.Value.Items...), one.Value.Index, append(raw, one.Raw)
	}
	var err error
	whole.Raw, err = joined(raw)
	return whole, err
}

// each yields the items of a list and reads each page when it is needed. If a read fails, each yields the error and
// stops.
func each[T any](ctx context.Context, c calls, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for one, err := range pages[T](ctx, c, path, query) {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range one.Value.Items {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// joined returns the JSON of a list as one page.
func joined(pages [][]byte) ([]byte, error) {
	if len(pages) == 1 {
		return pages[0], nil
	}
	whole := page[json.RawMessage]{Items: []json.RawMessage{}}
	for _, raw := range pages {
		var one page[json.RawMessage]
		if err := json.Unmarshal(raw, &one); err != nil {
			return nil, err
		}
		whole.Items, whole.Index = append(whole.Items, one.Items...), one.Index
		whole.Hidden += one.Hidden
	}
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false) // as the servers do
	err := to.Encode(whole)
	return b.Bytes(), err
}
