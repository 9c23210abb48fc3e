package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The audit logs of three servers have one line for each entry that a person wrote, by whatever server, and no secret.
func TestAuditLogIsComplete(t *testing.T) {
	long(t)
	t.Parallel()
	c := newCluster(t, options{servers: 3, agents: 1})
	const mark = "very-secret-value"
	for i, m := range c.servers {
		settings := m.settings()
		settings["audit"] = fmt.Sprintf("file = %q\n  required = %v", c.path(m.Name+".audit"), i > 0)
		m.configure(t, settings)
	}
	for _, m := range c.members() {
		m.start(t)
	}
	c.waitEligible(t, c.agents...)
	job := filepath.Join(c.dir, "job.hcl")
	const text = `job "web" {
  group "g" {
    count = 1
    exec {
      command = "/bin/sleep"
      args    = ["1000"]
    }
    env = { PASSWORD = "` + mark + "\" }\n  }\n}\n"
	if err := os.WriteFile(job, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.servers {
		byTLS, bySocket := []string{"OUTSPAN_ADDR=https://" + m.api()}, []string{"OUTSPAN_ADDR=unix://" + m.socket()}
		for _, one := range []struct {
			env  []string
			args []string
		}{
			{byTLS, []string{"job", "run", job, "--detach"}},
			{byTLS, []string{"job", "scale", "web", "g", "2"}},
			{bySocket, []string{"node", "cordon", "n1"}},
			{bySocket, []string{"node", "uncordon", "n1"}},
			{byTLS, []string{"node", "cordon", "n1", "--dry-run"}},
			{byTLS, []string{"job", "status", "web"}},
			{byTLS, []string{"node", "cordon", "missing"}},
			{byTLS, []string{"node", "label", "n1", "a=" + m.Name}},
		} {
			if r := c.cliWith(t, one.env, one.args...); r.code != 0 && !strings.Contains(r.String(), "missing") {
				t.Errorf("%v", r)
			}
		}
	}
	for _, m := range c.members() {
		m.terminate(t)
	}
	var log struct {
		Items []struct {
			Index uint64
			Actor string
		}
	}
	c.mustJSON(t, &log, "debug", "log", c.servers[0].data())
	wrote := map[uint64]string{}
	for _, one := range log.Items {
		if strings.HasPrefix(one.Actor, "cert:") || strings.HasPrefix(one.Actor, "uid:") {
			wrote[one.Index] = one.Actor
		}
	}
	if len(wrote) < 12 {
		t.Fatalf("people wrote %d entries", len(wrote))
	}
	type line struct {
		Server, Stage, Subject, Operation, Outcome, Code, Call string
		Index                                                  uint64
		Replayed                                               bool
	}
	files, open, outcomes := 0, map[string]bool{}, map[string]int{}
	for _, m := range c.servers {
		raw, err := os.ReadFile(c.path(m.Name + ".audit"))
		if err != nil {
			t.Fatal(err)
		}
		files++
		if strings.Contains(string(raw), mark) {
			t.Errorf("a secret is in the audit log of %s", m.Name)
		}
		for text := range strings.Lines(string(raw)) {
			var l line
			if err := json.Unmarshal([]byte(text), &l); err != nil || l.Server != m.Name {
				t.Fatalf("%v in %s", err, text)
			}
			if l.Stage == "begun" {
				open[l.Call] = true
				continue
			}
			delete(open, l.Call)
			outcomes[l.Operation+" "+l.Outcome]++
			if l.Index == 0 || l.Replayed {
				continue
			}
			if wrote[l.Index] != l.Subject {
				t.Errorf("entry %d is of %q, or has two lines: %s", l.Index, wrote[l.Index], text)
			}
			delete(wrote, l.Index)
		}
	}
	if len(wrote) > 0 || len(open) > 0 {
		t.Errorf("entries without a line: %v; calls without an outcome: %v", wrote, open)
	}
	if outcomes["get-job done"] == 0 || outcomes["cordon-node done"] < 2*files {
		t.Errorf("outcomes: %v", outcomes)
	}
}
