package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// verifyView is the output of server verify.
type verifyView struct {
	Verdict string
	Index   uint64
	Items   []struct {
		Name, Verdict string
		Index         uint64
	}
}

// TestCompare starts a server on a snapshot that is well-formed but has a wrong state.
//
// proves S5 on real processes: the server finds out when it starts, ends with a report, and does not come back with
// that state. The others continue, and the command line reports the difference.
func TestCompare(t *testing.T) {
	long(t)
	c := startCluster(t, options{servers: 3, agents: 1})
	c.run(t, job{name: "web", count: 2})
	c.waitVerified(t)
	good := c.path("good.snap")
	c.must(t, "server", "snapshot", "save", good)
	c.must(t, "server", "snapshot", "restore", good, "--yes") // so that each server has a snapshot
	c.must(t, "settings", "resume", "restore")
	c.waitVerified(t)

	wrong := without(c.servers, c.leader(t))[0]
	if code := wrong.terminate(t); code != 0 {
		t.Fatalf("%s ended with %d", wrong.Name, code)
	}
	spoilSnapshot(t, wrong.data())
	wrong.start(t)
	if code := wrong.exitCode(t); code != 7 {
		t.Errorf("%s ended with %d, want 7", wrong.Name, code)
	}
	wrong.waitSays(t, "a majority has another state, this server stops", "state_differs", `tables=["nodes"]`)
	wrong.reports(t)

	r := c.cli(t, "server", "verify")
	r.want(t, 7, "state_differs", wrong.Name)
	if !strings.Contains(r.out, "DIFFERS") {
		t.Errorf("it does not stand out: %v", r)
	}
	if text := c.must(t, "status"); !strings.Contains(text, "server "+wrong.Name) ||
		!strings.Contains(text, "it had another state than this server") {
		t.Errorf("the status does not tell:\n%s", text)
	}
	for range 2 { // a supervisor would restart the server
		wrong.start(t)
		if code := wrong.exitCode(t); code != 7 {
			t.Errorf("%s started again and ended with %d, want 7", wrong.Name, code)
		}
	}
	wrong.waitSays(t, "was contradicted by a majority of the servers")
	c.run(t, job{name: "after", count: 2})

	old := c.memberID(t, wrong)
	wrong.emptyBut(t, "state-differs")
	wrong.start(t)
	waitFor(t, "vote of the new "+wrong.Name, 2*patience, func() error {
		all := list[memberView](t, c, "/v1/members")
		for _, m := range all {
			if m.Name == wrong.Name && m.ID != old && m.Voter {
				return nil
			}
		}
		return fmt.Errorf("%+v", all)
	})
	for _, m := range list[memberView](t, c, "/v1/members") {
		if m.ID == old {
			c.must(t, "server", "remove", old)
		}
	}
	c.waitVoters(t, 3)
	c.waitVerified(t)
}

// waitVerified waits until server verify finds that the states of all servers are equal.
func (c *cluster) waitVerified(t *testing.T) {
	t.Helper()
	waitFor(t, "equal states", patience, func() error {
		r := c.cli(t, "server", "verify", "--json")
		var v verifyView
		if err := json.Unmarshal([]byte(r.out), &v); err != nil || r.code != 0 {
			return fmt.Errorf("%w: %v", err, r)
		}
		if v.Verdict != "equal" || len(v.Items) != c.options.servers {
			return fmt.Errorf("exit code 0 with %+v", v)
		}
		return nil
	})
}

// spoilSnapshot adds a snapshot with the index of the latest one, but with another state and correct checksums. The
// server starts from this snapshot, because raft takes the newest one.
func spoilSnapshot(t *testing.T, dir string) {
	t.Helper()
	store, err := raft.NewFileSnapshotStoreWithLogger(dir, 3, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	all, err := store.List()
	if err != nil || len(all) == 0 {
		t.Fatalf("snapshots: %v, %v", all, err)
	}
	meta, in, err := store.Open(all[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	before, err := fsm.ReadSnapshot(in)
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close() // an error means nothing after reading
	id, _, _ := before.Nodes.Min()
	after, results := before.Apply(before.Index+1, before.LogTerm, fsm.Entry{
		Format: before.Format, At: before.Now, Wall: before.Wall, Actor: model.ActorLeader,
		Groups: [][]fsm.Command{{&fsm.NodeLabel{ID: id, Labels: map[string]string{"wrong": "yes"}}}},
	})
	if results[0].Refusal != nil {
		t.Fatal(results[0].Refusal)
	}
	after.Index = before.Index
	_, trans := raft.NewInmemTransport("")
	sink, err := store.Create(meta.Version, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex, trans)
	if err != nil {
		t.Fatal(err)
	}
	if err := fsm.WriteSnapshot(sink, after); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
}

// reports asserts that a server with a wrong state has stored a report and this state.
func (m *member) reports(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.data(), "state-differs", "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Name, Digest, Majority string
		Index                  uint64
		Agreeing               []string
		Tables                 []struct{ Name string }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if report.Name != m.Name || report.Index == 0 || report.Digest == report.Majority || len(report.Agreeing) != 2 ||
		len(report.Tables) != 1 || report.Tables[0].Name != "nodes" {
		t.Errorf("it reports\n%s", text)
	}
	var kept struct {
		Index  uint64
		Digest string
	}
	m.c.mustJSON(t, &kept, "server", "snapshot", "inspect", filepath.Join(m.data(), "state-differs", "state.snap"))
	if kept.Index != report.Index || kept.Digest != report.Digest {
		t.Errorf("it kept the state %+v and reports\n%s", kept, text)
	}
}

// emptyBut removes everything from a member's data directory except the entry with the given name.
func (m *member) emptyBut(t *testing.T, name string) {
	t.Helper()
	entries, err := os.ReadDir(m.data())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == name {
			continue
		}
		if err := os.RemoveAll(filepath.Join(m.data(), e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}
