package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/model"
)

// unixServer answers the API at a unix socket until the test ends, and returns the path of the socket.
func unixServer(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "outspan-setup-") //nolint:usetesting // t.TempDir is too long for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "api.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: answer}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		<-ended
		os.RemoveAll(dir)
	})
	return path
}

func problem(w http.ResponseWriter, refusal *model.Error) {
	p := api.NewProblem(refusal)
	w.Header().Set("Content-Type", api.ContentTypeProblem)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// Right after its first start, a cluster has no CA yet and makes no tokens. The lines of up have a token of each role.
func TestJoinSteps(t *testing.T) {
	var bodies []string
	asked := 0
	socket := unixServer(t, func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			problem(w, model.Refuse(model.CodeBusy, "not yet"))
			return
		}
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		bodies = append(bodies, r.URL.Path+" "+body.String())
		fmt.Fprintf(w, `{"index":8,"text":"osj1.text%d"}`, len(bodies))
	})
	a := newApp(daemon.Program{})
	want := []string{"echo osj1.text1 | sudo outspan join --server --token-file - 10.0.0.1",
		"echo osj1.text2 | sudo outspan join --token-file - 10.0.0.1"}
	if d := cmp.Diff(want, a.joinSteps(t.Context(), socket, "10.0.0.1")); d != "" {
		t.Error(d)
	}
	want = []string{`/v1/tokens {"role":"server","ttl":"1h","uses":2}`, `/v1/tokens {"role":"agent","ttl":"24h","uses":20}`}
	if d := cmp.Diff(want, bodies); d != "" {
		t.Error(d)
	}
}

// Without a token, up shows how to make one.
func TestJoinStepsWithoutTokens(t *testing.T) {
	socket := unixServer(t, func(w http.ResponseWriter, _ *http.Request) {
		problem(w, model.Refuse(model.CodeConflict, "too many tokens"))
	})
	want := []string{"outspan token create --role server", "outspan token create --role agent"}
	for _, at := range []string{"", socket} {
		var notes bytes.Buffer
		a := newApp(daemon.Program{})
		a.Err = &notes
		if d := cmp.Diff(want, a.joinSteps(t.Context(), at, "10.0.0.1")); d != "" {
			t.Error(d)
		}
		if told := strings.Contains(notes.String(), "no join token was made: too many tokens"); told != (at != "") {
			t.Errorf("with the socket %q it says %q", at, notes.String())
		}
	}
}
