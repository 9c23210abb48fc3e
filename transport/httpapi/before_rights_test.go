package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport"
)

// oldLog was written by a program that had no rights; see TestGoldenLog in package sim.
const oldLog = "../../sim/testdata/log/format1/mixed.log.gz"

// upgraded returns a rig whose servers have applied oldLog, as a server does that starts on the data of an old one.
func upgraded(t *testing.T) *rig {
	t.Helper()
	f := must(os.Open(oldLog))(t)
	defer f.Close()
	in, old := bufio.NewReader(must(gzip.NewReader(f))(t)), fsm.NewMachine()
	for index := uint64(1); ; index++ {
		term, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			break
		}
		data := make([]byte, must(binary.ReadUvarint(in))(t))
		must(io.ReadFull(in, data))(t)
		if len(data) > 0 { // a leader writes an empty entry when its term begins
			must(old.Apply(index, term, data))(t)
		}
	}
	var saved bytes.Buffer
	must(0, fsm.WriteSnapshot(&saved, old.Snapshot()))(t)
	r := newRig(t)
	must(0, r.machine.Restore(&saved))(t)
	state := r.machine.Current()
	r.index, r.born = state.Index, time.Now().Add(-time.Duration(state.Now)*time.Millisecond)
	return r
}

// A cluster from before there were rights opens, and everybody may do what they could. What the first bindings would
// take from whom is shown before it is written, and is what is then taken.
func TestClusterFromBeforeRights(t *testing.T) {
	r := upgraded(t)
	state := r.machine.State()
	if state.RightsIndex != 0 || state.Roles.Len()+state.Bindings.Len()+state.AccessTokens.Len() != 0 {
		t.Fatal("the old log has rights")
	}
	var node, job string
	for _, n := range state.Nodes.All() {
		node = n.Name
	}
	for _, j := range state.Jobs.All() {
		job = string(j.Name)
	}
	if node == "" || job == "" {
		t.Fatalf("the old log leads to no node or no job: %q, %q", node, job)
	}
	people := map[string]*transport.Client{"alice": r.cli(), "bob": r.client(pki.RoleCLI, "bob")}
	ops := operationsOf(t, r)
	slices.SortFunc(ops, func(a, b [3]string) int { return strings.Compare(a[1]+a[0], b[1]+b[0]) })
	refusedTo := func(name string) (verbs []string) {
		for _, op := range ops {
			if op[0] == http.MethodPut && op[1] == "/v1/snapshot" || op[1] == "/v1/events" ||
				strings.HasSuffix(op[1], "/logs") || op[1] == "/v1/page/stream" {
				continue // streams
			}
			query := values("")
			if op[0] != http.MethodGet {
				query.Set("dry_run", "true")
			}
			path := pathParam.ReplaceAllString(op[1], node)
			if strings.HasPrefix(path, "/v1/jobs/") {
				path = strings.Replace(path, node, job, 1)
			}
			if forbidden(t, people[name], op[0], path, query, nil) {
				verbs = append(verbs, op[2])
			}
		}
		slices.Sort(verbs)
		return slices.Compact(verbs)
	}
	for name, c := range people {
		if got := refusedTo(name); got != nil {
			t.Errorf("%s, who could do everything, may not do %v", name, got)
		}
		post(t, c, "/v1/settings/pause", nil)
		post(t, c, "/v1/settings/resume", nil)
		if got := get(t, c, "/v1/jobs"); got["hidden"] != nil || len(got["items"].([]any)) == 0 {
			t.Errorf("%s sees the jobs %v", name, got)
		}
	}
	bind := func(path string, dry bool, role rights.RoleName, to string) (got api.BindingReply) {
		t.Helper()
		query := values("")
		if dry {
			query.Set("dry_run", "true")
		}
		before := fsm.Digest(r.machine.State())
		raw := must2(people["alice"].Do(t.Context(), http.MethodPost, path, query,
			map[string]any{"role": role, "to": to}))(t)
		must(0, json.Unmarshal(raw, &got))(t)
		if same := fsm.Digest(r.machine.State()) == before; same != dry {
			t.Errorf("%s %s %s, dry run %v: the state is the same: %v", path, role, to, dry, same)
		}
		return got
	}
	const grant, revoke = "/v1/bindings", "/v1/bindings/revoke"
	if got := bind(revoke, true, rights.Admin, "cert:*"); len(got.Changes) != 1 ||
		got.Changes[0].Subject != "cert:alice" || len(got.Changes[0].Loses) != len(rights.Verbs()) ||
		!strings.Contains(strings.Join(got.Notes, "\n"), "nobody may change roles") {
		t.Errorf("to take everybody's rights first: %+v", got)
	}
	for _, dry := range []bool{true, false} {
		if got := bind(grant, dry, rights.Admin, "cert:alice"); len(got.Changes) != 0 {
			t.Errorf("the first binding changes what somebody may do: %+v", got.Changes)
		}
	}
	bind(grant, false, rights.Viewer, "cert:bob")
	if got := refusedTo("bob"); got != nil {
		t.Errorf("bob may not do %v, and nobody has taken it from him", got)
	}
	shown := bind(revoke, true, rights.Admin, "cert:*")
	post(t, people["bob"], "/v1/settings/pause", nil) // it was only shown
	taken := bind(revoke, false, rights.Admin, "cert:*")
	if diff := cmp.Diff(shown.Changes, taken.Changes); diff != "" || len(shown.Changes) != 1 {
		t.Fatalf("what was taken is not what was shown (-shown +taken):\n%s", diff)
	}
	var lost []string
	for _, verb := range shown.Changes[0].Loses {
		lost = append(lost, string(verb))
	}
	if got := refusedTo("bob"); len(got) < 30 || !slices.Contains(got, "node.drain") {
		t.Errorf("bob may not do %v", got)
	} else {
		for _, verb := range got {
			if !slices.Contains(lost, verb) {
				t.Errorf("bob may not do %s, and the dry run did not say so: %v", verb, lost)
			}
		}
	}
	if got := refusedTo("alice"); got != nil {
		t.Errorf("alice may not do %v", got)
	}
}
