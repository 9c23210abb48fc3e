package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// front serves the agent's API to callers of one kind. If kind is empty, callers are unknown.
func front(t *testing.T, b *bench, kind model.SubjectKind) *httptest.Server {
	h := b.agent.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "outspan_up 1\n")
	}))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if kind != "" {
			ctx = transport.WithSubject(ctx, model.Subject{Kind: kind, Name: "x"})
		}
		h.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(srv.Close)
	return srv
}

func fetch(t *testing.T, url string) (int, string, http.Header) {
	t.Helper()
	resp, err := http.Get(url)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(text), resp.Header
}

func TestLogs(t *testing.T) {
	b := newBench(t, allowRoot)
	srv := front(t, b, model.SubjectServer)
	const turns = "for i in 1 2 3 4 5; do echo out $i; sleep 0.1; echo err $i >&2; sleep 0.1; done"
	id := b.run("web", sh(turns+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	base := srv.URL + "/v1/agent/logs/" + string(id)
	eventually(t, "the output", func() bool {
		_, text, _ := fetch(t, base+"?stream=both")
		return strings.Count(text, "\n") == 10
	})

	tests := []struct{ query, want, offset string }{
		{"stream=stdout", "out 1\nout 2\nout 3\nout 4\nout 5\n", "0"},
		{"stream=stderr&tail=2", "err 4\nerr 5\n", "18"},
		{"stream=stdout&tail=0", "", "30"},
		{"stream=stdout&tail=100", "out 1\nout 2\nout 3\nout 4\nout 5\n", "0"},
		{"stream=stdout&offset=24", "out 5\n", "24"},
		{"stream=stdout&offset=-6", "out 5\n", "24"},
	}
	for _, tt := range tests {
		code, text, header := fetch(t, base+"?"+tt.query)
		if code != 200 || text != tt.want || header.Get(HeaderLogOffset) != tt.offset {
			t.Errorf("%s: %d %q at %q", tt.query, code, text, header.Get(HeaderLogOffset))
		}
	}
	_, both, _ := fetch(t, base+"?tail=1")
	if both != "out 5\nerr 5\n" {
		t.Errorf("both: %q", both)
	}
	wantTimes(t, base)
	for _, query := range []string{
		"stream=all", "tail=x", "tail=-1", "offset=1", "stream=stdout&offset=1&tail=1", "follow=maybe", "timestamps=perhaps",
		"since=yesterday",
	} {
		code, text, _ := fetch(t, base+"?"+query)
		var p api.Problem
		if json.Unmarshal([]byte(text), &p) != nil || code != http.StatusBadRequest &&
			code != http.StatusUnprocessableEntity || p.Code != model.CodeInvalid {
			t.Errorf("%s: %d %s", query, code, text)
		}
	}
	if code, _, _ := fetch(t, srv.URL+"/v1/agent/logs/unknown"); code != http.StatusNotFound {
		t.Errorf("unknown instance: %d", code)
	}
	// Logs outlive the instance.
	b.stop(id, nil)
	b.await(id, model.ObservedStopped)
	eventually(t, "the instance to be forgotten", func() bool { return len(b.agent.supervisors.list()) == 0 })
	b.stopAgent()
	b.start()
	srv = front(t, b, model.SubjectServer)
	eventually(t, "the logs after its end", func() bool {
		code, text, _ := fetch(t, srv.URL+"/v1/agent/logs/"+string(id)+"?stream=stdout&tail=1")
		return code == 200 && text == "out 5\n"
	})
}

// wantTimes checks logs with timestamps. The lines of both streams must be in the order in which they were written, and
// the query parameter since must select lines by time.
func wantTimes(t *testing.T, base string) {
	t.Helper()
	code, text, header := fetch(t, base+"?timestamps=true")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if code != 200 || len(lines) != 10 || header.Get(HeaderLogTimes) != "true" {
		t.Fatalf("%d %v %q", code, header, text)
	}
	stamps := make([]string, 10)
	for i, line := range lines {
		stamp, rest, _ := strings.Cut(line, " ")
		want := fmt.Sprint([]string{"out ", "err "}[i%2], 1+i/2)
		at, err := time.Parse(lineTime, stamp)
		if err != nil || rest != want || time.Since(at) > patience || i > 0 && stamp <= stamps[i-1] {
			t.Errorf("line %d is %q, want %q: %v", i, line, want, err)
		}
		stamps[i] = stamp
	}
	sixth := "since=" + stamps[6]
	for query, want := range map[string]int{sixth: 4, "since=10m": 10, "since=0s": 0, "stream=stdout&" + sixth: 2} {
		if code, text, _ := fetch(t, base+"?"+query); code != 200 || strings.Count(text, "\n") != want {
			t.Errorf("%s: %d %q, want %d lines", query, code, text, want)
		}
	}
}

// A request that follows a log gets new lines, also after restarts of the program, until the instance has stopped.
func TestLogsFollow(t *testing.T) {
	b := newBench(t, allowRoot)
	srv := front(t, b, model.SubjectServer)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo start; echo $$ > "+pidFile+"; while :; do sleep 0.05; done"), nil)
	b.await(id, model.ObservedReady)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/v1/agent/logs/"+string(id)+"?follow=true", nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for n := range 3 {
		line, err := lines.ReadString('\n')
		if err != nil || line != "start\n" {
			t.Fatalf("run %d: %q %v", n, line, err)
		}
		if n < 2 {
			old := pidOf(t, pidFile)
			must(t, syscall.Kill(old, syscall.SIGKILL))
			eventually(t, "another run", func() bool { return pidOf(t, pidFile) != old })
		}
	}
	b.stop(id, nil)
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("rest %q %v", rest, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestAPIRoles(t *testing.T) {
	b := newBench(t, allowRoot)
	id := b.run("web", sh("exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	logs := "/v1/agent/logs/" + string(id)
	tests := []struct {
		kind model.SubjectKind
		path string
		want int
	}{
		{"", "/healthz", 200}, {"", "/metrics", 403}, {"", "/v1/agent/status", 403}, {"", logs, 403},
		{model.SubjectCert, "/v1/agent/status", 200}, {model.SubjectCert, logs, 403}, {model.SubjectCert, "/metrics", 200},
		{model.SubjectAgent, "/v1/agent/status", 403}, {model.SubjectAgent, logs, 403},
		{model.SubjectCert, "/v1/agent/stats?job=web", 403}, {model.SubjectAgent, "/v1/agent/stats?job=web", 403},
		{model.SubjectServer, "/v1/agent/stats?job=web", 200}, {model.SubjectServer, logs, 200},
		{model.SubjectServer, "/v1/agent/status", 200},
		{model.SubjectServer, "/v1/nodes", 404},
	}
	for _, tt := range tests {
		if code, text, _ := fetch(t, front(t, b, tt.kind).URL+tt.path); code != tt.want {
			t.Errorf("%q %s: %d %s", tt.kind, tt.path, code, text)
		}
	}
	_, text, _ := fetch(t, front(t, b, model.SubjectCert).URL+"/v1/agent/status")
	var st Status
	must(t, json.Unmarshal([]byte(text), &st))
	if st.Node != b.node() || st.Epoch != b.nodeRow().Agent.Epoch || len(st.Instances) != 1 ||
		st.Instances[0].Observed != model.ObservedReady || st.Instances[0].Group != "web/g" {
		t.Errorf("%+v", st)
	}
}
