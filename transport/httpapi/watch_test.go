package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// poll is the result of a blocking read.
type poll struct {
	index uint64
	body  map[string]any
	err   error
}

func startPoll(t testing.TB, c *transport.Client, path string, index uint64, wait string) <-chan poll {
	done := make(chan poll, 1)
	ctx := t.Context()
	go func() {
		raw, at, err := c.Do(ctx, http.MethodGet, path, values(fmt.Sprintf("index=%d&wait=%s", index, wait)), nil)
		p := poll{index: at, err: err}
		if err == nil {
			p.err = json.Unmarshal(raw, &p.body)
		}
		done <- p
	}()
	return done
}

func finished(t testing.TB, done <-chan poll) poll {
	t.Helper()
	select {
	case p := <-done:
		if p.err != nil {
			t.Fatal(p.err)
		}
		return p
	case <-time.After(15 * time.Second):
		t.Fatal("the blocking read did not return")
	}
	return poll{}
}

// When a server stops, it answers blocking reads at once. A read with an index that the server has not reached gets
// not_caught_up instead of an older state.
func TestBlockingReadAtStop(t *testing.T) {
	r := newRig(t)
	r.world()
	now := r.machine.State().Index
	known, ahead := startPoll(t, r.cli(), "/v1/nodes/n1", now, "30s"),
		startPoll(t, r.cli(), "/v1/nodes/n1", now+1000, "30s")
	time.Sleep(500 * time.Millisecond) // both wait
	r.servers[r.lead].stop()
	if p := finished(t, known); p.index != now {
		t.Errorf("the read of index %d is answered at %d", now, p.index)
	}
	p := <-ahead
	wantCode(t, p.err, model.CodeNotCaughtUp)
}

// A blocking read returns when the object that it reads changes, and ignores changes of other objects.
func TestBlockingRead(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.cli()
	_, index, err := c.Do(t.Context(), http.MethodGet, "/v1/nodes/n1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A read that arrives after the changes of n2 is answered at once, because the server does not know which objects
	// changed since the index. On a busy machine some of these reads may arrive so late, but not all.
	var p poll
	for attempt := 1; ; attempt++ {
		done := startPoll(t, c, "/v1/nodes/n1", index, "30s")
		select {
		case p = <-done:
		case <-time.After(50 * time.Millisecond): // the read waits
		}
		for range 20 { // none of these is about n1
			r.apply(&fsm.NodeLabel{ID: "01N2", Labels: map[string]string{"a": fmt.Sprint(r.entries())}})
		}
		want := r.apply(&fsm.NodeIntent{ID: "01N1", Intent: model.IntentCordoned})
		if p.body == nil {
			p = finished(t, done)
		}
		if p.index == want && p.body["state"] == "cordoned" {
			break
		}
		if attempt == 10 {
			t.Fatalf("got state %v at %d, want cordoned at %d: it returned although only n2 changed",
				p.body["state"], p.index, want)
		}
		index, p = r.apply(&fsm.NodeIntent{ID: "01N1", Intent: model.IntentActive}), poll{}
	}

	// The next poll continues from the index of the last answer, and misses no change from before the poll arrives.
	r.apply(&fsm.NodeIntent{ID: "01N1", Intent: model.IntentActive})
	if p := finished(t, startPoll(t, c, "/v1/nodes/n1", p.index, "30s")); p.body["state"] != "active" {
		t.Errorf("a change between two polls was missed: state %v", p.body["state"])
	}
}

func TestBlockingReadTimesOut(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.cli()
	index := r.machine.State().Index
	begin := time.Now()
	p := finished(t, startPoll(t, c, "/v1/nodes/n1", index, "300ms"))
	if p.index != index || time.Since(begin) < 250*time.Millisecond {
		t.Errorf("returned at index %d after %s, want %d after the wait", p.index, time.Since(begin), index)
	}
}

func TestBlockingList(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.cli()
	done := startPoll(t, c, "/v1/instances", r.machine.State().Index, "30s")
	r.place("inst-c", 2, "01N2", model.ObservedPending)
	if items := finished(t, done).body["items"].([]any); len(items) != 3 {
		t.Errorf("got %d instances, want 3", len(items))
	}
}

// Pages are in order, without a gap and without repetition, even if an object changes between two pages.
func TestPaging(t *testing.T) {
	r := newRig(t)
	for i := range 7 {
		r.node(model.NodeID(fmt.Sprintf("id%02d", i)), fmt.Sprintf("n%d", i))
	}
	c := r.cli()
	var names []string
	for next := ""; ; {
		raw := must2(c.Do(t.Context(), http.MethodGet, "/v1/nodes", values("limit=3&next="+next), nil))(t)
		page := decode(t, raw)
		for _, item := range page["items"].([]any) {
			names = append(names, item.(map[string]any)["name"].(string))
		}
		if len(names) == 3 {
			r.apply(&fsm.NodeLabel{ID: "id06", Labels: map[string]string{"x": "y"}})
		}
		if page["next"] == nil {
			break
		}
		next = page["next"].(string)
	}
	if got, want := strings.Join(names, " "), "n0 n1 n2 n3 n4 n5 n6"; got != want {
		t.Errorf("pages have %s, want %s", got, want)
	}
}

func TestFilter(t *testing.T) {
	r := newRig(t)
	r.world()
	r.apply(&fsm.NodeIntent{ID: "01N2", Intent: model.IntentCordoned})
	tests := []struct{ path, filter, want string }{
		{"/v1/nodes", "state=active", "n1"},
		{"/v1/nodes", "state!=active", "n2"},
		{"/v1/nodes", "labels.rack=r-n2", "n2"},
		{"/v1/nodes", "labels.rack~r-", "n1 n2"},
		{"/v1/nodes", "eligible=true, name~n", "n1"},
		{"/v1/nodes", "capacity.cpu=4000,instances=2", "n1"},
		{"/v1/nodes", "labels.zone=", "n1 n2"},
		{"/v1/nodes", "name=n3", ""},
	}
	for _, tt := range tests {
		raw := must2(r.cli().Do(t.Context(), http.MethodGet, tt.path, map[string][]string{"filter": {tt.filter}}, nil))(t)
		var names []string
		for _, item := range decode(t, raw)["items"].([]any) {
			names = append(names, item.(map[string]any)["name"].(string))
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("filter %q: got %q, want %q", tt.filter, got, tt.want)
		}
	}
}

// A list that is limited to some fields has the same items as the whole list.
func TestFields(t *testing.T) {
	r := newRig(t)
	r.world()
	whole := decode(t, must2(r.cli().Do(t.Context(), http.MethodGet, "/v1/instances", nil, nil))(t))
	some := decode(t,
		must2(r.cli().
			Do(t.Context(), http.MethodGet, "/v1/instances", values("fields=id,+eviction,ports,id&filter=node=n1"), nil))(t))
	var want []any
	for _, item := range whole["items"].([]any) {
		if i := item.(map[string]any); i["node"] == "n1" {
			want = append(want, map[string]any{"id": i["id"], "eviction": i["eviction"], "ports": i["ports"]})
		}
	}
	if diff := cmp.Diff(any(want), some["items"]); diff != "" || len(want) == 0 || some["index"] == nil {
		t.Errorf("got %v: %s", some, diff)
	}
	page := decode(t, must2(r.cli().Do(t.Context(), http.MethodGet, "/v1/instances", values("fields=id&limit=1"), nil))(t))
	if page["next"] == nil {
		t.Errorf("a page with fields does not say how to go on: %v", page)
	}
	_, _, err := r.cli().Do(t.Context(), http.MethodGet, "/v1/nodes", values("fields=name,sttae"), nil)
	wantCode(t, err, model.CodeInvalid)
	if text := fmt.Sprint(err); !strings.Contains(text,
		`fields: there is no field "sttae" (invalid): did you mean "state"?`) {
		t.Error(text)
	}
}

// readEvents reads n events, or all if n is negative, with accept as the Accept header. It returns the events' ids.
func readEvents(t testing.TB, c *transport.Client, accept, query, last string, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	header := http.Header{"Accept": {accept}}
	if last != "" {
		header.Set(api.HeaderLastEvent, last)
	}
	resp, err := c.Open(ctx, reach.Request{Path: "/v1/events", Query: values(query), Header: header})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var ids []string
	lines := bufio.NewScanner(resp.Body)
	for (n < 0 || len(ids) < n) && lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok && (accept == "text/event-stream" || text == "") {
			continue
		}
		var e struct{ ID, Type string }
		if err := json.Unmarshal([]byte(text), &e); err != nil || e.Type == "" {
			t.Fatalf("no event: %q: %v", text, err)
		}
		ids = append(ids, e.ID)
	}
	if n >= 0 && len(ids) < n {
		t.Fatalf("the stream ended after %d of %d events: %v", len(ids), n, lines.Err())
	}
	return ids
}

func (r *rig) eventIDs() []string {
	var ids []string
	s := r.machine.State()
	for key := range s.Events.All() {
		ids = append(ids, key.String())
	}
	return ids
}

// A resumed stream continues after the last event, without a gap and without repetition, both as SSE and as NDJSON.
func TestEventsResume(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.cli()
	all := r.eventIDs()
	for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
		first := readEvents(t, c, accept, "after=0", "", 3)
		rest := readEvents(t, c, accept, "follow=false", first[2], -1)
		if diff := cmp.Diff(all, append(first, rest...)); diff != "" {
			t.Errorf("%s: events in two parts (-all +read):\n%s", accept, diff)
		}
	}
	if got := readEvents(t, c, "application/x-ndjson", "tail=2&follow=false", "",
		-1); cmp.Diff(all[len(all)-2:], got) != "" {
		t.Errorf("tail=2: %v", got)
	}
	if got := readEvents(t, c, "application/x-ndjson", "after=0&follow=false&type=node.&subject=node/01N2",
		"", -1); len(got) != 1 {
		t.Errorf("filtered: %v, want the registration of n2", got)
	}
}

// A reader that follows the events receives at once each event that happens after the stream was opened.
func TestEventsFollow(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.cli()
	resp :=
		must(c.Open(t.Context(), reach.Request{Path: "/v1/events", Header: http.Header{"Accept": {"text/event-stream"}}}))(t)
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	var id string
	for id == "" { // the first message has the position of the stream as its id
		line := must(in.ReadString('\n'))(t)
		if text, ok := strings.CutPrefix(line, "id: "); ok {
			id = strings.TrimSpace(text)
		}
	}
	r.apply(&fsm.NodeIntent{ID: "01N1", Intent: model.IntentCordoned})
	var data string
	for data == "" {
		line := must(in.ReadString('\n'))(t)
		data, _ = strings.CutPrefix(line, "data: ")
		if !strings.HasPrefix(line, "data: ") {
			data = ""
		}
	}
	var e struct {
		Type, Subject string
		Data          map[string]string
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil || e.Type != "node.state_changed" ||
		e.Data["before"] != "active" || e.Data["after"] != "cordoned" {
		t.Errorf("event %s: %v", data, err)
	}
	if got := readEvents(t, c, "application/x-ndjson", "follow=false&after="+id, "", -1); len(got) == 0 {
		t.Error("the greeting's id does not resume")
	}
}

// A stream opens at once, even if there is no event to send yet.
func TestEventsOpenAtOnce(t *testing.T) {
	r := newRig(t)
	r.world()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	resp, err := r.cli().
		Open(ctx, reach.Request{Path: "/v1/events", Header: http.Header{"Accept": {"application/x-ndjson"}}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// A reader that continues after an event that is no longer kept gets 410 and the oldest id, never a silent gap.
func TestEventsGone(t *testing.T) {
	r := newRig(t)
	r.world()
	settings := r.machine.State().Settings
	settings.EventLimit = 1000
	r.apply(&fsm.SettingsSet{Settings: settings})
	first := r.eventIDs()[0]
	for i := range 1100 {
		r.apply(&fsm.NodeIntent{ID: "01N1", Intent: []model.Intent{model.IntentCordoned, model.IntentActive}[i%2]})
	}
	oldest := r.eventIDs()[0]
	_, err := r.cli().
		Open(t.Context(), reach.Request{Path: "/v1/events", Header: http.Header{api.HeaderLastEvent: {first}}})
	wantCode(t, err, model.CodeEventCollected)
	var p *api.Problem
	if !errors.As(err, &p) || p.Status != http.StatusGone || p.Oldest != oldest {
		t.Errorf("got %+v, want 410 with the oldest %s", p, oldest)
	}
	if got := readEvents(t, r.cli(), "application/x-ndjson", "after=0", "", 1); got[0] != oldest {
		t.Errorf("after=0 begins at %s, want %s", got[0], oldest)
	}
}

// A reader that continues after an event that has not happened gets 410 and the newest id. If the server reaches the
// event's index within a moment, the stream opens.
func TestEventsAhead(t *testing.T) {
	r := newRig(t)
	r.world()
	ids := r.eventIDs()
	_, err := r.cli().Open(t.Context(), reach.Request{Path: "/v1/events", Query: values("after=99999999.0")})
	wantCode(t, err, model.CodeEventCollected)
	var p *api.Problem
	if !errors.As(err, &p) || p.Status != http.StatusGone || p.Newest != ids[len(ids)-1] {
		t.Errorf("got %+v, want 410 with the newest %s", p, ids[len(ids)-1])
	}
	next := fmt.Sprintf("%d.0", r.machine.State().Index+1)
	opened := make(chan error, 1)
	go func() {
		resp, err := r.cli().Open(t.Context(), reach.Request{Path: "/v1/events", Query: values("after=" + next)})
		if err == nil {
			resp.Body.Close()
		}
		opened <- err
	}()
	r.apply(&fsm.NodeIntent{ID: "01N1", Intent: model.IntentCordoned})
	if err := <-opened; err != nil {
		t.Errorf("an id that the server reaches: %v", err)
	}
}

// A saved snapshot can be read and restored. A stale snapshot can be saved without a leader.
func TestSnapshot(t *testing.T) {
	r := newRig(t)
	r.world()
	resp := must(r.cli().Open(t.Context(), reach.Request{Path: "/v1/snapshot"}))(t)
	saved := must(io.ReadAll(resp.Body))(t)
	resp.Body.Close()
	state, err := fsm.ReadSnapshot(strings.NewReader(string(saved)))
	if err != nil || state.Index != r.machine.State().Index {
		t.Errorf("saved at %d: %v", state.Index, err)
	}
	a, err := r.cli().
		Send(t.Context(),
			reach.Request{Method: http.MethodPut, Path: "/v1/snapshot", Body: saved, Content: "application/octet-stream"})
	if err != nil || a.Index == 0 {
		t.Errorf("restore: %v", err)
	}

	r.setLeader("")
	stale, err := r.cli("s1").Open(t.Context(), reach.Request{Path: "/v1/snapshot", Query: values("consistency=stale")})
	if err != nil {
		t.Fatalf("without a leader: %v", err)
	}
	defer stale.Body.Close()
	if _, err := fsm.ReadSnapshot(stale.Body); err != nil {
		t.Errorf("saved without a leader: %v", err)
	}
}
