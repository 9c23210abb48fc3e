package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/reach"
)

// timedAgent serves three log lines for each instance. In order of time, the lines of the instances alternate.
type timedAgent struct{ end chan struct{} }

func (a *timedAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if r.URL.Query().Get("timestamps") != "true" || r.URL.Query().Get("since") != "1h" {
		http.Error(w, "asked for "+r.URL.RawQuery, http.StatusTeapot)
		return
	}
	w.Header().Set("Outspan-Log-Times", "true")
	shift := map[string]int{"inst-a": 0, "inst-b": 1, "inst-c": 2}[name]
	for i := range 3 {
		fmt.Fprintf(w, "2026-01-01T00:00:0%d.000000Z line %d\n", 3*i+shift, 3*i+shift)
	}
	_ = http.NewResponseController(w).Flush()
	if r.URL.Query().Get("follow") == "true" {
		select {
		case <-a.end:
		case <-r.Context().Done():
		}
	}
}

// The lines of all instances are sent in the order in which they were written, whichever agent answers first.
func TestJobLogsInOrder(t *testing.T) {
	r := newRig(t)
	r.world()
	r.place("inst-c", 2, "01N2", "ready")
	a := &timedAgent{end: make(chan struct{})}
	r.runAgentOf("01N1", "n1", a)
	r.runAgentOf("01N2", "n2", a)
	read := func(query string, lines int) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		resp := must(r.cli().Open(ctx, reach.Request{Path: "/v1/jobs/web/logs", Query: values("since=1h&" + query)}))(t)
		defer resp.Body.Close()
		text := ""
		buf := make([]byte, 4096)
		for strings.Count(text, "\n") < lines {
			n, err := resp.Body.Read(buf)
			text += string(buf[:n])
			if err != nil && err != io.EOF {
				t.Fatalf("%v after %q", err, text)
			}
			if err == io.EOF {
				break
			}
		}
		return text
	}
	want := ""
	for i := range 9 {
		want += fmt.Sprintf("http[%d] inst-%c | line %d\n", i%3, 'a'+i%3, i)
	}
	for _, query := range []string{"", "follow=true"} {
		if got := read(query, 9); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", query, got, want)
		}
	}
	first := "http[0] inst-a | 2026-01-01T00:00:00.000000Z line 0\nhttp[1] "
	if got := read("timestamps=true", 9); !strings.HasPrefix(got, first) {
		t.Errorf("with times:\n%s", got)
	}
	close(a.end)
	for _, query := range []string{"since=yesterday", "since=-5s", "timestamps=perhaps"} {
		_, err := r.cli().Open(t.Context(), reach.Request{Path: "/v1/jobs/web/logs", Query: values(query)})
		wantCode(t, err, "invalid")
	}
}

// An agent of an older version sends no times. Its lines are shown with a dash instead of a time.
func TestJobLogsOfAnOlderAgent(t *testing.T) {
	r := newRig(t)
	r.world()
	r.runAgent("01N1", "n1", &logAgent{end: make(chan struct{})})
	request := reach.Request{Path: "/v1/jobs/web/logs", Query: values("timestamps=true")}
	resp := must(r.cli().Open(t.Context(), request))(t)
	defer resp.Body.Close()
	if text := string(must(io.ReadAll(resp.Body))(t)); !strings.Contains(text, "http[0] inst-a | - inst-a one\n") {
		t.Errorf("got %q", text)
	}
}
