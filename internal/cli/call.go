package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// answer is what the API said: as a value, and as the bytes that -o json prints.
type answer[T any] struct {
	value T
	raw   []byte
	index uint64
}

// get reads one object.
func get[T any](ctx context.Context, a *app, path string, query url.Values) (answer[T], error) {
	return call[T](ctx, a, http.MethodGet, path, query, nil)
}

// post writes. The request id in the query makes it safe to send again.
func post[T any](ctx context.Context, a *app, path string, query url.Values, body any) (answer[T], error) {
	return call[T](ctx, a, http.MethodPost, path, query, body)
}

func call[T any](ctx context.Context, a *app, method, path string, query url.Values, body any) (answer[T], error) {
	var got answer[T]
	client, err := a.conn.client(a.Env)
	if err != nil {
		return got, err
	}
	got.raw, got.index, err = client.Do(ctx, method, path, query, body)
	if err == nil {
		err = got.decode(method, path)
	}
	return got, err
}

// decode turns the answer's bytes into its value.
func (got *answer[T]) decode(method, path string) error {
	if err := json.Unmarshal(got.raw, &got.value); err != nil {
		return model.Refuse(model.CodeInternal, "the answer to %s %s is not what this version of outspan expects: %v", method, path, err).
			WithHint("compare versions with: outspan version; outspan server members")
	}
	return nil
}

// stream opens an answer that has no end, or is large. The caller closes it. accept may be "".
func (a *app) stream(ctx context.Context, path string, query url.Values, accept string) (io.ReadCloser, error) {
	client, err := a.conn.client(a.Env)
	if err != nil {
		return nil, err
	}
	request := transport.Request{Path: path, Query: query, Header: http.Header{}}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	resp, err := client.Open(ctx, request)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// upload sends a file.
func upload[T any](ctx context.Context, a *app, method, path string, body []byte) (answer[T], error) {
	var got answer[T]
	client, err := a.conn.client(a.Env)
	if err != nil {
		return got, err
	}
	reply, err := client.Send(ctx, transport.Request{Method: method, Path: path, Body: body, Content: "application/octet-stream", Limit: 10 * time.Minute, Once: true})
	if err != nil {
		return got, err
	}
	got.raw, got.index = reply.Body, reply.Index
	err = got.decode(method, path)
	return got, err
}

// listOf is every item of a list, all pages in one.
type listOf[T any] struct {
	items []T
	raw   []byte
	index uint64
}

// listPage is one answer to a list.
type listPage[T any] struct {
	Items []T    `json:"items"`
	Index uint64 `json:"index"`
	Next  string `json:"next,omitempty"`
}

// list reads a whole list. What is one page is decoded once, and its bytes are those of the server.
func list[T any](ctx context.Context, a *app, path string, query url.Values) (listOf[T], error) {
	query = copyOf(query)
	whole := listOf[T]{items: []T{}}
	var pages [][]byte
	for {
		one, err := get[listPage[T]](ctx, a, path, query)
		if err != nil {
			return listOf[T]{}, err
		}
		whole.items, whole.index, pages = append(whole.items, one.value.Items...), one.value.Index, append(pages, one.raw)
		if one.value.Next == "" {
			break
		}
		query.Set("next", one.value.Next)
	}
	var err error
	whole.raw, err = wholeList(pages)
	return whole, err
}

// table reads a list for showList: for a table only what it shows, for programs all.
func table[T any](ctx context.Context, a *app, path string, query url.Values, columns []term.Column[T]) (listOf[T], error) {
	if !a.Output.Machine() {
		query.Set("fields", term.FieldsOf(columns, a.Output.Effective() == term.AsWide))
	}
	return list[T](ctx, a, path, query)
}

// wholeList is the JSON of a list whose pages are given.
func wholeList(pages [][]byte) ([]byte, error) {
	if len(pages) == 1 {
		return pages[0], nil
	}
	whole := listPage[json.RawMessage]{Items: []json.RawMessage{}}
	for _, raw := range pages {
		var one listPage[json.RawMessage]
		if err := json.Unmarshal(raw, &one); err != nil {
			return nil, err
		}
		whole.Items, whole.Index = append(whole.Items, one.Items...), one.Index
	}
	return term.Marshal(whole)
}

// leaderless is how long a read that any server can answer waits for a leader.
const leaderless = 2 * time.Second

// noteWaiting says that a call has no answer yet and goes on: an election takes a second or two, a lost majority lasts.
func (a *app) noteWaiting(why error, atMost time.Duration) {
	var known *model.Error
	if errors.As(why, &known) {
		a.Note("no answer yet: %s (%s); trying for %s more, Ctrl-C ends it", known.Message, known.Code, term.Span(atMost))
	}
}

// orStale makes a read of the leader, and when there is none asks what one server knows: the picture that is needed
// most then. A consistency that was asked for is kept.
func orStale(a *app, query url.Values, read func(url.Values) error) error {
	if query.Has("consistency") {
		return read(query)
	}
	a.conn.retryFor, a.conn.waiting = leaderless, nil
	err := read(query)
	if !isCode(err, model.CodeNoLeader) {
		return err
	}
	query = copyOf(query)
	query.Set("consistency", "stale")
	if read(query) != nil {
		return err
	}
	a.Note("there is no leader: this is what one server knows")
	return nil
}

// sorted puts the items into the order that people read them in; JSON stays in that of the server, which is stable over
// pages.
func (l listOf[T]) sorted(compare func(x, y T) int) listOf[T] {
	slices.SortStableFunc(l.items, compare)
	return l
}

// names gives the -o name form of a list.
func (l listOf[T]) names(of func(T) string) []string {
	names := make([]string, len(l.items))
	for i, item := range l.items {
		names[i] = of(item)
	}
	return names
}

// showList prints a list in the format that was asked for.
func showList[T any](a *app, l listOf[T], name func(T) string, columns []term.Column[T]) error {
	return a.Show(term.Result{JSON: l.raw, Names: l.names(name), Text: func(p *term.Page) { term.Rows(p, l.items, columns) }})
}

func copyOf(query url.Values) url.Values {
	out := url.Values{}
	for k, v := range query {
		out[k] = v
	}
	return out
}

// watch reads an object again each time it changes, until each says that it is done. It outlives changes of the leader:
// what is transient is tried again until ctx ends.
func watch[T any](ctx context.Context, a *app, path string, each func(answer[T]) (done bool, err error)) error {
	return watchEvery(ctx, a, path, 10*time.Second, each)
}

// watchEvery is watch that also looks when nothing changed for so long: for what depends on time, or on other objects.
func watchEvery[T any](ctx context.Context, a *app, path string, most time.Duration, each func(answer[T]) (done bool, err error)) error {
	query := url.Values{}
	var trouble error
	for pause := 200 * time.Millisecond; ; {
		got, err := get[T](ctx, a, path, query)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && exitOf(err) != term.ExitTransient:
			return err
		case err != nil:
			if trouble == nil {
				a.Note("lost the servers (%s), trying again", describe(err).Message)
			}
			trouble = err
			if !wait(ctx, pause) {
				return context.Cause(ctx)
			}
			pause = min(2*pause, 2*time.Second)
			continue
		}
		trouble, pause = nil, 200*time.Millisecond
		if done, err := each(got); done || err != nil {
			return err
		}
		query.Set("index", fmt.Sprint(got.index))
		query.Set("wait", most.String())
	}
}

// wait waits for d; false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// segment makes an id or name safe in a path.
func segment(s string) string { return url.PathEscape(s) }

// writeFlags are those of every write.
type writeFlags struct {
	requestID string
	dryRun    bool
}

// register adds --request-id, and --dry-run with what it does not do.
func (f *writeFlags) register(cmd *cobra.Command, dryRun string) {
	cmd.Flags().StringVar(&f.requestID, "request-id", "", "name of this write: the same id with the same request is carried out once (default: a new one)")
	if dryRun != "" {
		cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, dryRun)
	}
}

func (f *writeFlags) query() url.Values {
	q := url.Values{}
	if f.requestID != "" {
		q.Set("request_id", f.requestID)
	}
	if f.dryRun {
		q.Set("dry_run", "true")
	}
	return q
}

// would says what a write has done, such as "is cordoned" or "settings are changed"; of a dry run, what it would do.
func (f *writeFlags) would(done string) string {
	if !f.dryRun {
		return done
	}
	words := strings.Fields(done)
	for i, word := range words {
		if verb, ok := conditional[word]; ok {
			words[i] = "would " + verb
			return strings.Join(words, " ")
		}
	}
	return done
}

// conditional are the verbs of what writes say, with what follows "would".
var conditional = map[string]string{"is": "be", "are": "be", "takes": "take", "has": "have"}

// done is the end of a sentence about a write: "(index 7)", or that nothing was changed.
func (f *writeFlags) done(index uint64) string {
	if f.dryRun {
		return "(dry run: nothing was changed)"
	}
	return fmt.Sprintf("(index %d)", index)
}

// listFlags are those of every ls.
type listFlags struct {
	filters     []string
	consistency string
}

func (f *listFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.filters, "filter", nil, "only what matches a field of its JSON: field=value, field!=value or field~text; repeat it for more conditions")
	cmd.Flags().StringVar(&f.consistency, "consistency", "", "default, consistent or stale (any server, also without a leader)")
}

func (f *listFlags) query() url.Values {
	q := url.Values{}
	for _, one := range f.filters {
		addFilter(q, one)
	}
	if f.consistency != "" {
		q.Set("consistency", f.consistency)
	}
	return q
}

func addFilter(q url.Values, condition string) {
	if old := q.Get("filter"); old != "" {
		condition = old + "," + condition
	}
	q.Set("filter", condition)
}
