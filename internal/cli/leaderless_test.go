package cli

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/model"
)

// Without a leader, the commands status, server members, why and logs print within seconds what one server knows, and
// that there is no leader. Their exit code is 0.
func TestStatusWithoutLeader(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("consistency") != "stale" && r.URL.Path != "/v1/jobs/web/logs" {
			p := api.NewProblem(model.Refuse(model.CodeNoLeader, "the servers have no leader at present"))
			w.Header().Set("Content-Type", api.ContentTypeProblem)
			w.WriteHeader(p.Status)
			fmt.Fprintf(w, `{"code":%q,"message":%q,"status":%d}`, p.Code, p.Message, p.Status)
			return
		}
		fmt.Fprint(w,
			`{"subject":"job/web","state":"outspan","cluster":"outspan","leader":"","items":[{"name":"s2","state":"failed"}],"index":7}`)
	})
	for command, want := range map[string]string{"status": "Leader       none", "server members": "s2",
		"why web": "outspan", "logs web": "outspan"} {
		begin := time.Now()
		out, errs, code := runHere(t, address, strings.Fields(command)...)
		if code != 0 || !strings.Contains(out, want) || !strings.Contains(errs, "there is no leader") {
			t.Errorf("outspan %s: exit code %d\n%s%s", command, code, out, errs)
		}
		if took := time.Since(begin); took > leaderless+5*time.Second {
			t.Errorf("outspan %s took %s", command, took)
		}
	}
}

// Without a leader, a write prints once what it waits for, and keeps trying. With -o json, it does not print this line.
func TestWriteWithoutLeader(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", api.ContentTypeProblem)
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"code":"no_leader","message":"the servers have no leader at present"}`)
	})
	for _, asked := range []string{"", " -o json"} {
		var out, errs bytes.Buffer
		a := newApp(daemon.Program{Version: "dev"})
		a.Out, a.Err, a.Terminal = &out, &errs, false
		a.Env = func(name string) string { return map[string]string{"OUTSPAN_ADDR": address}[name] }
		a.conn.retryFor = 3 * time.Second
		code := a.run(t.Context(), strings.Fields("node cordon n1"+asked))
		told := strings.Count(errs.String(), "no answer yet: the servers have no leader at present (no_leader); trying for ")
		if want := 1 - len(asked)/8; code != int(term.ExitTransient) || told != want {
			t.Errorf("%q: exit code %d, told %d times\n%s", asked, code, told, &errs)
		}
	}
}

// If an answer is not one that the API gives, the command fails with the code internal, and does not panic.
func TestStrangeAnswers(t *testing.T) {
	for _, body := range []string{"", "<html>", `{"items":1}`, `[]`, `{"items":[{"state":7}]}`} {
		address := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
		if out, errs, code := runHere(t, address, "node", "ls"); code != 7 || !strings.Contains(errs, "(internal)") {
			t.Errorf("%q: exit code %d\n%s%s", body, code, out, errs)
		}
	}
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) })
	if _, errs, code := runHere(t, address, "node", "ls"); code != 7 || !strings.Contains(errs, "418") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// serve answers HTTP requests on a unix socket, and returns the socket's address.
func serve(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: answer}}
	s.Start()
	t.Cleanup(s.Close)
	return "unix://" + path
}

// runHere runs a command line in this process, with OUTSPAN_ADDR set to the address.
func runHere(t *testing.T, address string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp(daemon.Program{Version: "dev"})
	a.Out, a.Err, a.Terminal = &out, &errs, false
	a.Env = func(name string) string {
		if name == "OUTSPAN_ADDR" {
			return address
		}
		return ""
	}
	code = a.run(t.Context(), args)
	return out.String(), errs.String(), code
}
