package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// fingerprint describes what a refused request must not change: nodes, jobs, instances, drains, settings, budgets,
// services and events.
func (c *cluster) fingerprint(t testing.TB) string {
	t.Helper()
	parts := []any{c.nodesForComparison(t)}
	for _, path := range []string{"/v1/jobs", "/v1/instances?all=true", "/v1/drains", "/v1/settings",
		"/v1/budgets", "/v1/services"} {
		var all struct{ Items json.RawMessage }
		c.mustGet(t, path, &all)
		parts = append(parts, string(all.Items))
	}
	events := c.events(t)
	parts = append(parts, len(events))
	if len(events) > 0 {
		parts = append(parts, events[len(events)-1].ID)
	}
	return fmt.Sprintf("%v", parts)
}

// nodesForComparison returns the nodes without LastSeen, which changes with each heartbeat.
func (c *cluster) nodesForComparison(t testing.TB) []nodeView {
	t.Helper()
	nodes := c.nodes(t)
	for i := range nodes {
		nodes[i].LastSeen = nil
	}
	return nodes
}

// unchanged calls deed, and asserts that the fingerprint of the cluster is the same before and after the call.
func (c *cluster) unchanged(t *testing.T, deed func()) {
	t.Helper()
	before := c.fingerprint(t)
	deed()
	if after := c.fingerprint(t); before != after {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
}

// wrong describes a command that must be refused.
type wrong struct {
	name string
	code int
	say  []string // words that must be on stderr
	args []string
}

func (c *cluster) refuseAll(t *testing.T, all []wrong) {
	t.Helper()
	c.unchanged(t, func() {
		for _, w := range all {
			t.Run(w.name, func(t *testing.T) { c.refused(t, w.code, w.say, w.args...) })
		}
	})
}

// Each mistake in a job file is refused with an exit code and a clear message, and changes nothing.
func testBadJobs(t *testing.T, c *cluster) {
	port := c.freePort(t)
	c.run(t, job{name: "holder", count: 4, more: fmt.Sprintf("    port \"fixed\" { static = %d }", port)})
	good := job{name: "web", count: 2}.hcl(c.bin)
	edit := func(old, replacement string) string {
		t.Helper()
		text := strings.Replace(good, old, replacement, 1)
		if text == good {
			t.Fatalf("there is no %q in the job", old)
		}
		return text
	}
	for i, w := range []struct {
		name string
		text string
		code int
		say  []string
	}{
		{"typo in a key", edit("count =", "conut ="), 2, []string{"conut", `Did you mean "count"`, ":3,"}},
		{"typo in a block", edit("resources {", "resuorces {"), 2, []string{"resuorces", `Did you mean "resources"`, ":8,"}},
		{"wrong unit", edit(`"32MiB"`, `"32 megs"`), 2, []string{"memory", ":9,"}},
		{"wrong unit of time", edit(`"250ms"`, `"250 moments"`), 2, []string{"interval"}},
		{"number instead of a size", edit(`"32MiB"`, `128`), 2, []string{"memory"}},
		{"text instead of a number", edit("count = 2", `count = "3"`), 2, []string{"count"}},
		{"unknown class", edit("  group", "  class = \"gold\"\n  group"), 2, []string{"gold", "production"}},
		{"count -1", edit("count = 2", "count = -1"), 2, []string{"count is -1"}},
		{"missing command", edit(fmt.Sprintf("command = %q", c.bin), ""), 2, []string{"command"}},
		{"static port taken", edit(`port "http" {}`, fmt.Sprintf(`port "http" { static = %d }`, port)), 21,
			[]string{"no_capacity_ports"}},
		{"memory above any node", edit(`"32MiB"`, `"900GiB"`), 21, []string{"no_capacity_memory"}},
		{"port named twice", edit(`port "http" {}`, "port \"http\" {}\n    port \"http\" {}"), 2, []string{"http"}},
		{"role without facts", edit("count = 2", "count = 2\n    role = \"quorum\""), 2,
			[]string{"!self.leader", "role_check"}},
		{"copies without facts",
			edit("count = 2", "count = 2\n    volume \"d\" {\n      kind = \"replicated\"\n      path = \"/d\"\n    }"), 2,
			[]string{"volume d", "role_check"}},
		{"no end of a block", good[:len(good)-3], 2, []string{"job-wrong"}},
		{"deep nesting", "job \"x\" {\n  group = " + strings.Repeat("[", 64<<10), 2, nil},
		{"too large", good + "\n# " + strings.Repeat("x", 300<<10), 2, []string{"262144"}},
		{"not text", "\x00\x01\x02\xff", 2, nil},
		{"empty", "", 2, nil},
	} {
		path := c.writeText(t, fmt.Sprintf("wrong-%d.hcl", i), w.text)
		c.refuseAll(t, []wrong{{w.name, w.code, append(w.say, ""), []string{"job", "run", path}}})
	}
	c.refuseAll(t, []wrong{{"missing file", 2, []string{"absent.hcl"}, []string{"job", "run", c.path("absent.hcl")}}})
}

// Commands with unknown names or wrong options are refused with an exit code and a clear message, and change nothing.
func testBadNames(t *testing.T, c *cluster) {
	c.run(t, job{name: "web", count: 1})
	c.refuseAll(t, []wrong{
		{"unknown node", 4, []string{"nosuch", "node ls"}, []string{"node", "status", "nosuch"}},
		{"unknown node to drain", 4, []string{"nosuch"}, []string{"node", "drain", "nosuch"}},
		{"unknown job", 4, []string{"nosuch", "job ls"}, []string{"job", "status", "nosuch"}},
		{"unknown instance", 4, []string{"nosuch", "instance ls"}, []string{"instance", "status", "nosuch"}},
		{"unknown drain", 4, []string{"nosuch", "drain ls"}, []string{"drain", "cancel", "nosuch"}},
		{"unknown group", 4, []string{"nosuch"}, []string{"job", "scale", "web", "nosuch", "3"}},
		{"ambiguous prefix", 4, []string{"ambiguous"}, []string{"node", "status", "01"}},
		{"negative count", 2, nil, []string{"job", "scale", "web", "--", "-3"}},
		{"deadline without a unit", 2, []string{"deadline"}, []string{"node", "drain", "n1", "--deadline", "5"}},
		{"unknown flag", 2, []string{"--nosuch"}, []string{"node", "drain", "n1", "--nosuch"}},
		{"unknown verb", 2, []string{"drian"}, []string{"node", "drian", "n1"}},
		{"unknown noun", 2, []string{"nodes"}, []string{"nodes", "ls"}},
		{"unknown setting", 2, []string{"offline_aftr", "offline_after"}, []string{"settings", "set", "offline_aftr=5s"}},
		{"setting without a unit", 2, []string{"offline_after"}, []string{"settings", "set", "offline_after=5"}},
		{"uncordon of a node that is gone", 4, nil, []string{"node", "uncordon", "n9"}},
		{"nothing to do", 2, nil, []string{"node", "drain"}},
		{"plaintext address", 2, []string{"plaintext"}, []string{"node", "ls", "--address", "http://127.0.0.1:7640"}},
	})
}

// These requests are refused and change nothing: requests whose body is too large or not the expected JSON, and
// requests with an unknown path or a wrong method.
func testBadBodies(t *testing.T, c *cluster) {
	c.unchanged(t, func() {
		for _, w := range []struct {
			name, path, body string
			status           int
			code             string
		}{
			{"2 MiB", "/v1/jobs", `{"name":"` + strings.Repeat("x", 2<<20) + `"}`, 413, "too_large"},
			{"no JSON", "/v1/jobs", `{`, 400, "invalid"},
			{"unknown field", "/v1/nodes/n1/cordon", `{"raeson":"x"}`, 400, "invalid"},
			{"wrong type", "/v1/drains", `{"nodes":"n1"}`, 400, "invalid"},
			{"unknown path", "/v1/nosuch", `{}`, 404, "no_such_operation"},
			{"unknown method", "/healthz", `{}`, 405, "no_such_operation"},
		} {
			t.Run(w.name, func(t *testing.T) {
				a := c.postTLS(t, w.path, w.body)
				var problem struct{ Code, Message string }
				err := json.Unmarshal(a.body, &problem)
				if err != nil || a.status != w.status || problem.Code != w.code || problem.Message == "" {
					t.Errorf("got %d %s (%v), want %d %s", a.status, a.body, err, w.status, w.code)
				}
				if got := a.header.Get("Content-Type"); got != "application/problem+json" {
					t.Errorf("content type %q", got)
				}
			})
		}
	})
}

// Certificates with a wrong role, of another cluster's CA, or with another node's name are refused. The right
// certificate of a node is refused on another machine. Nothing is changed.
func testStrangers(t *testing.T, c *cluster) {
	certificate := func(name string) []string {
		return []string{"OUTSPAN_CLIENT_CERT=" + c.path("tls", name+".pem"),
			"OUTSPAN_CLIENT_KEY=" + c.path("tls", name+"-key.pem")}
	}
	c.must(t, "tls", "ca", "create", "--dir", c.path("tls2"))
	c.must(t, "tls", "cert", "create", "--dir", c.path("tls2"), "--cli", "me")
	before := c.leader(t)
	c.unchanged(t, func() {
		c.cliWith(t, certificate("agent-n1"), "node", "ls").want(t, 3, "agent")
		c.cliWith(t, certificate("agent-n1"), "node", "drain", "n2").want(t, 3, "agent")
		foreign := []string{"OUTSPAN_CLIENT_CERT=" + c.path("tls2", "cli-me.pem"),
			"OUTSPAN_CLIENT_KEY=" + c.path("tls2", "cli-me-key.pem")}
		c.cliWith(t, foreign, "node", "ls").want(t, 2, "not good under CA file")
		c.cliWith(t, append(foreign, "OUTSPAN_CACERT="+c.path("tls2", "ca.pem")), "node", "ls").
			want(t, 3, "signed by another CA")
		c.cliWith(t, []string{"OUTSPAN_CLIENT_CERT=", "OUTSPAN_CLIENT_KEY="}, "node", "ls").want(t, 2, "OUTSPAN_CLIENT_CERT")
	})
	address := func(n int) string {
		return strings.Join(strings.Split(c.agents[0].address, ".")[:3], ".") + fmt.Sprint(".", n)
	}
	for i, stranger := range []struct {
		role, name, cert string
		ends             bool // the process exits by itself
		say              []string
	}{
		{"server", "s9", "agent-n1", true, []string{"error:", "server", "agent"}},
		{"agent", "n9", "cli-me", true, []string{"error:", "agent", "cli"}},
		{"agent", "n1", "agent-n2", true, []string{"error:", "n1", "n2"}},
		// The right certificate of n1, but on another machine than the registered n1.
		{"agent", "n1", "agent-n1", false, []string{"name_taken", "outspan node forget"}},
	} {
		t.Run(stranger.name+" with "+stranger.cert, func(t *testing.T) {
			m := c.newMember(stranger.role, stranger.name, address(200+i))
			settings := m.settings()
			settings["data_dir"] = fmt.Sprintf("%q", c.path(fmt.Sprintf("stranger%d", i)))
			settings["listen"] = fmt.Sprintf("address = %q\n  socket = %q", m.address, c.path(fmt.Sprintf("stranger%d.sock", i)))
			settings["tls"] = strings.ReplaceAll(settings["tls"], m.cert, stranger.cert)
			m.Name = fmt.Sprintf("stranger%d", i) // the name of the member's files
			m.configure(t, settings)
			c.unchanged(t, func() {
				m.start(t)
				defer m.Kill()
				if stranger.ends && m.exitCode(t) == 0 {
					t.Error("it ended with code 0")
				}
				m.waitSays(t, stranger.say...)
			})
		})
	}
	if now := c.leader(t); now != before {
		t.Errorf("the leader was %s and is %s", before.Name, now.Name)
	}
}

// waitSays waits until the member's log contains each of the words.
func (m *member) waitSays(t testing.TB, words ...string) {
	t.Helper()
	for _, word := range words {
		waitFor(t, fmt.Sprintf("%q in the log of %s", word, m.Name), patience, func() error {
			if text := m.LastLines(200); !strings.Contains(text, word) {
				return errors.New(text)
			}
			return nil
		})
	}
}
