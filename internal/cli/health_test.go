package cli

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/outspan/outspan/internal/cli/term"
)

const (
	wholeServer = `{"name":"s1","state":"alive","leader":true,"voter":true,"answers":true}`
	readyAnswer = `{"status":"ok","name":%q,"leader":false,"index":7}`
)

// serveHealth starts an HTTP server that answers like a ready server, and returns its address. For each request for the
// list of members, the HTTP server calls members, which returns the items of the list.
func serveHealth(t *testing.T, name string, members func() string) string {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			fmt.Fprintf(w, readyAnswer, name)
			return
		}
		fmt.Fprintf(w, `{"items":[%s],"index":7}`, members())
	})
}

// server health --wait waits for all servers of the cluster, not only for the one that it asks.
func TestHealthWaitsForAllServers(t *testing.T) {
	for _, c := range []struct{ other, want string }{
		{`{"name":"s2","state":"failed","voter":true}`, "server s2 is failed"},
		{`{"name":"s2","state":"alive","voter":false,"answers":true}`, "server s2 has no vote yet"},
		{`{"name":"s2","state":"alive","voter":true,"answers":false}`, "server s2 does not answer the leader"},
		{`{"name":"s2","state":"alive","voter":true,"answers":true,"index_lag":900}`, "server s2 is 900 entries behind"},
	} {
		lacking := serveHealth(t, "s1", func() string { return wholeServer + "," + c.other })
		_, errs, code := runHere(t, lacking, "server", "health", "--wait", "--timeout", "1s")
		if code != int(term.ExitWaitTimeout) || !strings.Contains(errs, c.want) ||
			!strings.Contains(errs, "don't stop another server now") {
			t.Errorf("want exit code %d and %q, got %d: %s", term.ExitWaitTimeout, c.want, code, errs)
		}
		var asked atomic.Int32
		heals := serveHealth(t, "s1", func() string {
			if asked.Add(1) < 3 {
				return wholeServer + "," + c.other
			}
			return wholeServer + `,{"name":"s2","state":"alive","voter":true,"answers":true,"index_lag":3}`
		})
		if _, errs, code := runHere(t, heals, "server", "health", "--wait", "--timeout", "20s"); code != 0 ||
			asked.Load() < 4 || strings.Count(errs, "waiting: "+c.want) != 1 {
			t.Errorf("%s, then whole: exit code %d after %d looks: %s", c.want, code, asked.Load(), errs)
		}
	}
}

// With several addresses, server health asks each server separately. A ready server does not hide a server that is not
// ready.
func TestHealthOfSeveralServers(t *testing.T) {
	whole := func() string { return wholeServer }
	first, second := serveHealth(t, "s1", whole), serveHealth(t, "s2", whole)
	out, errs, code := runHere(t, first+","+second, "server", "health")
	if code != 0 || !strings.Contains(out, first) || !strings.Contains(out, second) || !strings.Contains(out, "s2") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	down := "unix://" + t.TempDir() + "/gone"
	out, errs, code = runHere(t, down+","+second, "server", "health")
	for _, row := range []string{down + " +- +unreachable +- +-", second + " +s2 +ok +no +7"} {
		if !regexp.MustCompile(row).MatchString(out) {
			t.Errorf("no row %q\n%s", row, out)
		}
	}
	if code != int(term.ExitTransient) || !strings.Contains(errs, "the server at "+down+" is not ready") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	out, _, code = runHere(t, down+","+second, "server", "health", "--json")
	if code != int(term.ExitTransient) || !strings.Contains(out, `"status": "unreachable"`) ||
		!strings.Contains(out, `"name": "s2"`) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	out, errs, code = runHere(t, first+","+second, "server", "health", "--json")
	if code != 0 || !strings.Contains(out, `"servers"`) || !strings.Contains(out, `"status": "ok"`) {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}
