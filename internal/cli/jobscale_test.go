package cli

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/model"
)

// surging lists instances of web/http in three slots. The replacement of a1 is a2. The replacement of b1 no longer
// exists. The eviction of c1 is requested, and c1 has no replacement yet.
const surging = `{"id":"a1","job":"web","group":"http","slot":0,"node":"n1","desired":"running","replaced_by":"a2"},
	{"id":"a2","job":"web","group":"http","slot":0,"node":"n2","desired":"running","replaces":"a1"},
	{"id":"b1","job":"web","group":"http","slot":1,"node":"n1","desired":"running","replaced_by":"gone"},
	{"id":"c1","job":"web","group":"http","slot":2,"node":"n1","desired":"running","eviction":{"requested":true}}`

// A dry run does not list an instance whose replacement exists, because that instance stops in any case. If all
// instances would stop, the dry run lists that instance too.
func TestStopsOfSurge(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"items":[%s],"index":7}`, surging)
	})
	for _, c := range []struct {
		keep int
		want []wouldStop
	}{
		{4, nil},
		{3, nil},
		{2, []wouldStop{{Group: "web/http", Stop: 1, Instances: []model.InstanceID{"a2", "b1", "c1"}}}},
		{0, []wouldStop{{Group: "web/http", Stop: 4, Instances: []model.InstanceID{"a1", "a2", "b1", "c1"}}}},
	} {
		a := newApp(daemon.Program{Version: "dev"})
		a.conn.address = address
		got, err := a.stopsOf(t.Context(), "web", "", c.keep)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			got[i].nodes = nil
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("of %d that stay: %v, want %v", c.keep, got, c.want)
		}
	}
}

// The output of a dry run says what a write would do. The output of the write says what it did.
func TestDryRunsSayWould(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"index":7,"node":{"name":"n1"},"items":[]}`)
	})
	for _, c := range []struct{ command, dry, done string }{
		{"node cordon n1", "node n1 would be cordoned (dry", "node n1 is cordoned (index 7)"},
		{"node uncordon n1", "node n1 would take new instances again (dry", "node n1 takes new instances again (index 7)"},
		{"node label n1 a=b", "node n1 would have new labels (dry", "node n1 has new labels (index 7)"},
		{"node forget n1", "node n1 would be forgotten (dry", "node n1 is forgotten (index 7)"},
		{"settings set offline_after=30s", "settings would be changed (dry", "settings are changed (index 7)"},
		{"settings pause", "actuation would be paused (dry", "actuation is paused (index 7)"},
	} {
		for flag, want := range map[string]string{"--dry-run": c.dry, "": c.done} {
			out, errs, code := runHere(t, address, strings.Fields(c.command+" "+flag)...)
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("%s %s: exit code %d, want %q\n%s%s", c.command, flag, code, want, out, errs)
			}
		}
	}
}

// A deployment that ends after its job was read has its last instances in the output, too.
func TestLastLineOfARollout(t *testing.T) {
	reads := 0
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v1/deployments/"):
			fmt.Fprint(w, `{"id":"d1","status":"succeeded","index":8}`)
		case r.URL.Path == "/v1/jobs/web":
			reads++
			fmt.Fprintf(w, `{"name":"web","groups":[{"name":"http","ready":%d,"count":2}],"index":7}`, min(reads, 2))
		default:
			fmt.Fprint(w, `{"items":[],"index":7}`)
		}
	})
	a := newApp(daemon.Program{Version: "dev"})
	a.conn.address = address
	var lines []string
	_, err := a.watchJob(t.Context(), "web", api.JobReply{DeploymentID: "d1"}, &waitFlags{},
		func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }, func(jobLook) {})
	if got := strings.Join(lines, "; "); err != nil || got != "job web: 1/2 ready; job web: 2/2 ready" {
		t.Errorf("%s (%v)", got, err)
	}
}
