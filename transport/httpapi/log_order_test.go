package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/reach"
)

// timedAgent has three lines of each instance. By their times, the lines of the instances alternate.
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

// An agent of an older version sends no times. Its lines are shown nevertheless.
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

// longAgent has a line of inst-a that is longer than 64 KiB, and a line of inst-b. It cuts the long line as agents do:
// into pieces of 64 KiB, each with the time before it.
type longAgent struct{ time string }

func (a longAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Outspan-Log-Times", "true")
	if strings.HasSuffix(r.URL.Path, "/inst-b") {
		io.WriteString(w, "2026-01-01T00:00:05.000000Z short\n")
		return
	}
	for _, c := range []string{"x", "y"} {
		io.WriteString(w, a.time+" "+strings.Repeat(c, 64<<10))
	}
	io.WriteString(w, a.time+" the end\n")
}

// Each piece of a long line keeps its whole text and its time, so that it stays in order.
func TestJobLogsOfLongLines(t *testing.T) {
	for _, at := range []string{"2026-01-01T00:00:01.000000Z", "-"} {
		r := newRig(t)
		r.world()
		r.runAgentOf("01N1", "n1", longAgent{at})
		r.runAgentOf("01N2", "n2", longAgent{at})
		request := reach.Request{Path: "/v1/jobs/web/logs", Query: values("timestamps=true")}
		resp := must(r.cli().Open(t.Context(), request))(t)
		text := string(must(io.ReadAll(resp.Body))(t))
		resp.Body.Close()
		short := func(text string) string {
			for _, c := range []string{"x", "y"} {
				text = strings.ReplaceAll(text, strings.Repeat(c, 64<<10), "64 KiB of "+c)
				text = regexp.MustCompile(c+"{10,}").ReplaceAllStringFunc(text, func(run string) string {
					return fmt.Sprintf("%d of %s", len(run), c)
				})
			}
			return text
		}
		prefix := "http[0] inst-a | " + at + " "
		want := prefix + "64 KiB of x\n" + prefix + "64 KiB of y\n" + prefix + "the end\n" +
			"http[1] inst-b | 2026-01-01T00:00:05.000000Z short\n"
		if got := short(text); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
}
