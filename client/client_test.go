package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
)

func refuse(w http.ResponseWriter, code model.Code) {
	p := api.NewProblem(model.Refuse(code, "refused on purpose").WithHint("do nothing"))
	w.Header().Set("Content-Type", api.ContentTypeProblem)
	w.WriteHeader(p.Status)
	fmt.Fprintf(w, `{"code":%q,"message":%q,"hint":%q}`, p.Code, p.Message, p.Hint)
}

func wantCode(t *testing.T, err error, code model.Code) {
	t.Helper()
	var known *model.Error
	if !errors.As(err, &known) || known.Code != code {
		t.Errorf("error %v, want the code %s", err, code)
	}
}

// The client must not depend on the libraries of servers, because most programs that use it need nothing else of
// outspan.
func TestClientNeedsLittle(t *testing.T) {
	text, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{
		"github.com/outspan/outspan/api", "github.com/outspan/outspan/client", "github.com/outspan/outspan/model",
		"github.com/outspan/outspan/internal/reach", "github.com/outspan/outspan/internal/canon",
		"github.com/outspan/outspan/rights", // needs only model
		// pki needs only the standard library and model.
		"github.com/outspan/outspan/pki",
		"github.com/fxamacker/cbor/v2", "github.com/x448/float16", "github.com/outspan/outspan/internal/plant", // for model
		"github.com/oklog/ulid/v2",                   // for request ids
		"github.com/outspan/outspan/internal/duplex", // needs only the standard library
		"github.com/outspan/outspan/api/frame",       // needs only what api needs
	}
	found := 0
	for path := range strings.Lines(string(text)) {
		path = strings.TrimSpace(path)
		if !strings.Contains(strings.SplitN(path, "/", 2)[0], ".") || strings.HasPrefix(path, "crypto/") {
			continue
		}
		found++
		ok := false
		for _, one := range allowed {
			ok = ok || path == one
		}
		if !ok {
			t.Errorf("the client needs %s", path)
		}
	}
	if found < 4 {
		t.Errorf("only %d packages were looked at", found)
	}
}

// If a list has one page, Raw contains the server's own bytes. Several pages are joined into one list.
func TestListIsWhole(t *testing.T) {
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		w.Header().Set(api.HeaderIndex, "9")
		switch {
		case r.URL.Path == "/v1/jobs":
			io.WriteString(w, `{"items": [ {"name":"web"} ], "index":9}`)
		case r.FormValue("next") == "":
			io.WriteString(w, `{"items":[{"name":"n1","labels":{"a":"<b>"}}],"index":8,"next":"n1"}`)
		default:
			io.WriteString(w, `{"items":[{"name":"n2"}],"index":9}`)
		}
	})
	jobs, err := c.Jobs.List(t.Context(), client.ListOptions{})
	if err != nil || string(jobs.Raw) != `{"items": [ {"name":"web"} ], "index":9}` || jobs.Items[0].Name != "web" {
		t.Errorf("jobs %+v: %v", jobs, err)
	}
	asked = nil
	nodes, err := c.Nodes.List(t.Context(), client.ListOptions{ReadOptions: client.ReadOptions{Index: 7}})
	if err != nil || len(nodes.Items) != 2 || nodes.Index != 9 {
		t.Fatalf("nodes %+v: %v", nodes, err)
	}
	if got, want := string(nodes.Raw), `{"items":[{"name":"n1","labels":{"a":"<b>"}},{"name":"n2"}],"index":9}`+
		"\n"; got != want {
		t.Errorf("the pages together are %s, want %s", got, want)
	}
	if want := "[index=7&wait=1m0s next=n1]"; fmt.Sprint(asked) != want {
		t.Errorf("asked %v, want %s: only the first page waits", asked, want)
	}
}

// If a page can't be read, the sequence ends with the error.
func TestAllEndsWithTheError(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("next") != "" {
			refuse(w, model.CodeForbidden)
			return
		}
		io.WriteString(w, `{"items":[{"name":"n1"}],"index":8,"next":"n1"}`)
	})
	var names []string
	var last error
	for node, err := range c.Nodes.All(t.Context(), client.ListOptions{}) {
		names, last = append(names, node.Name), err
	}
	wantCode(t, last, model.CodeForbidden)
	if len(names) != 2 || names[0] != "n1" {
		t.Errorf("yielded %q, want n1 and the error", names)
	}
}

func TestAnswersAndErrors(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/nodes/stale":
			w.Header().Set(api.HeaderIndex, "5")
			w.Header().Set(api.HeaderStale, "1500")
			io.WriteString(w, `{"name":"n1"}`)
		case "/v1/nodes/strange":
			io.WriteString(w, `[]`)
		default:
			refuse(w, model.CodeNotFound)
		}
	})
	got, err := c.Nodes.Get(t.Context(), "stale", client.ReadOptions{Consistency: client.Stale})
	if err != nil || got.Index != 5 || got.Stale != 1500*time.Millisecond || string(got.Raw) != `{"name":"n1"}` ||
		got.Value.Name != "n1" {
		t.Errorf("got %+v: %v", got, err)
	}
	_, err = c.Nodes.Get(t.Context(), "strange", client.ReadOptions{})
	wantCode(t, err, model.CodeInternal)
	_, err = c.Nodes.Get(t.Context(), "none", client.ReadOptions{})
	wantCode(t, err, model.CodeNotFound)
	if client.Transient(err) || !client.Transient(model.Refuse(model.CodeNoLeader, "none")) ||
		!client.Transient(context.DeadlineExceeded) {
		t.Error("not_found is final; no_leader and a deadline are transient")
	}
}

// A write gets a request id unless the caller gives one. The slashes in a volume's id are escaped.
func TestRequestIDs(t *testing.T) {
	var ids, paths []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		ids, paths = append(ids, r.FormValue("request_id")), append(paths, r.URL.EscapedPath())
		io.WriteString(w, `{}`)
	})
	for _, id := range []model.RequestID{"", "", "mine"} {
		if _, err := c.Volumes.Migrate(t.Context(), "db/pg/0/data", api.MigrateBody{To: "n2"},
			client.WriteOptions{RequestID: id}); err != nil {
			t.Fatal(err)
		}
	}
	if ids[0] == "" || ids[0] == ids[1] || ids[2] != "mine" {
		t.Errorf("request ids %q", ids)
	}
	if paths[0] != "/v1/volumes/db%2Fpg%2F0%2Fdata/migrate" {
		t.Errorf("path %s", paths[0])
	}
}

// A call is repeated while there is no leader or every server is overloaded. A repeated write keeps its request id.
func TestRetries(t *testing.T) {
	for _, code := range []model.Code{model.CodeNoLeader, model.CodeRateLimited, model.CodeBusy} {
		var mu sync.Mutex
		var ids []string
		c := serveFor(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, r.FormValue("request_id"))
			if len(ids) == 1 {
				refuse(w, code)
				return
			}
			io.WriteString(w, `{"index":7}`)
		})
		got, err := c.Drains.Pause(t.Context(), "d1", client.WriteOptions{})
		if err != nil || got.Value.Index != 7 || len(ids) != 2 || ids[0] == "" || ids[0] != ids[1] {
			t.Errorf("%s: got %+v after requests %q: %v", code, got.Value, ids, err)
		}
	}
}

// Watch continues after transient errors and calls Lost once for each outage. It asks for changes after the last index
// that it saw, and stops after a final error.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := model.Refuse(model.CodeNoLeader, "none")
		script := []struct {
			index uint64
			err   error
		}{{3, nil}, {0, lost}, {0, lost}, {4, nil}, {0, lost}, {5, nil}, {0, model.Refuse(model.CodeNotFound, "gone")}}
		var asked []client.ReadOptions
		read := func(_ context.Context, o client.ReadOptions) (client.Response[int], error) {
			asked = append(asked, o)
			next := script[len(asked)-1]
			return client.Response[int]{Value: int(next.index), Index: next.index}, next.err
		}
		losses, begin := 0, time.Now()
		var seen []int
		var last error
		for got, err := range client.Watch(t.Context(), read, client.WatchOptions{Every: 5 * time.Second, Lost: func(error) {
			losses++
		}}) {
			if last = err; err == nil {
				seen = append(seen, got.Value)
			}
		}
		wantCode(t, last, model.CodeNotFound)
		if fmt.Sprint(seen) != "[3 4 5]" || losses != 2 {
			t.Errorf("saw %v, lost %d times", seen, losses)
		}
		if took := time.Since(begin); took != 800*time.Millisecond { // pauses of 200 and 400 ms, then of 200 ms again
			t.Errorf("paused for %s", took)
		}
		if want := (client.ReadOptions{Index: 4, Wait: 5 * time.Second}); asked[0] != (client.ReadOptions{}) ||
			asked[4] != want {
			t.Errorf("asked %+v", asked)
		}
	})
}

func TestWatchEndsWithItsContext(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	read := func(context.Context, client.ReadOptions) (client.Response[int], error) {
		cancel(why)
		return client.Response[int]{}, model.Refuse(model.CodeNoLeader, "none")
	}
	var last error
	for _, err := range client.Watch(ctx, read, client.WatchOptions{}) {
		last = err
	}
	if !errors.Is(last, why) {
		t.Errorf("ended with %v, want the cause of the context", last)
	}
}

// After a transient error, Follow continues with the events after the last one that it yielded. If it has yielded no
// event yet, it repeats the same request. A final error ends the sequence.
func TestFollowResumes(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.RawQuery)
		switch len(asked) {
		case 1:
			refuse(w, model.CodeNoLeader)
		case 2:
			io.WriteString(w, "\n{\"id\":\"7.0\",\"index\":7}\n{\"id\":\"8.0\",\"index\":8}\n")
		default:
			refuse(w, model.CodeEventCollected)
		}
	})
	var seen []string
	var last error
	for e, err := range c.Events.Follow(t.Context(), client.EventOptions{Tail: new(10)}) {
		if last = err; err == nil {
			seen = append(seen, e.Value.ID+string(e.Raw[:6]))
		}
	}
	wantCode(t, last, model.CodeEventCollected)
	if got, want := fmt.Sprint(seen), `[7.0{"id": 8.0{"id":]`; got != want {
		t.Errorf("saw %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(asked), "[follow=true&tail=10 follow=true&tail=10 after=8.0&follow=true]"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

// Restore sends exactly as many bytes of the snapshot as its size argument says. It does not repeat the request, even
// if the outcome is unknown.
func TestRestoreIsSentOnce(t *testing.T) {
	var mu sync.Mutex
	var got []string
	c := serveFor(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		got = append(got, fmt.Sprint(string(body), r.ContentLength, r.Header.Get("Content-Type")))
		mu.Unlock()
		refuse(w, model.CodeUnknownOutcome)
	})
	_, err := c.Snapshots.Restore(t.Context(), strings.NewReader("the state and more"), 9)
	wantCode(t, err, model.CodeUnknownOutcome)
	if fmt.Sprint(got) != "[the state9application/octet-stream]" {
		t.Errorf("sent %q", got)
	}
}
