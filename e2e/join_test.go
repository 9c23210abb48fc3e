package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// setupReply is what outspan up and outspan join answer.
type setupReply struct {
	Name    string   `json:"name"`
	Server  bool     `json:"server"`
	Started bool     `json:"started"`
	Next    []string `json:"next"`
}

// A cluster of three servers and four workers grows out of one machine by the lines that outspan up and outspan token
// create print: nobody copies a file or writes a configuration. It runs a job, and drains a node.
func TestJoinLines(t *testing.T) {
	c := newMembers(t, options{servers: 3, agents: 4, managed: true})
	s1 := c.servers[0]
	var first setupReply
	c.mustJSON(t, &first, append([]string{"up", "--no-agent", "--no-start"}, s1.machine()...)...)
	s1.begin(t, first)
	c.joinAll(t, "server", c.servers[1:])
	c.must(t, "server", "health", "--wait", "--timeout", "60s")
	c.joinAll(t, "agent", c.agents)
	c.waitEligible(t, c.agents...)

	var tokens struct {
		Items []struct{ Role, State string }
	}
	c.mustJSON(t, &tokens, "token", "ls")
	for _, one := range tokens.Items {
		if one.State != "used" {
			t.Errorf("a token of the role %s is %s after all machines have joined", one.Role, one.State)
		}
	}
	if len(tokens.Items) != 2 {
		t.Errorf("there are %d tokens, want 2", len(tokens.Items))
	}
	c.run(t, job{name: "web", count: 8, more: "    spread { attribute = \"node.name\" }"})
	for _, m := range c.agents {
		if len(c.instancesOf("web", m)) == 0 {
			t.Errorf("%s runs nothing", m.Name)
		}
	}
	n1 := c.agents[0]
	c.must(t, "node", "drain", n1.Name)
	if left := c.empty(n1); len(left) > 0 {
		t.Errorf("%s is drained, and the kernel shows processes %v", n1.Name, left)
	}
	c.waitReady(t, "web", 8)
}

// machine returns the flags that put a member at its address and into its directories.
func (m *member) machine() []string {
	return []string{"--name", m.Name, "--advertise", m.address, "--config", m.c.path(m.Name + ".d"), "--data", m.data()}
}

// begin starts a member with the command that outspan up or outspan join has answered. Before that it adds the keys
// that keep clusters on one machine apart.
func (m *member) begin(t *testing.T, r setupReply) {
	t.Helper()
	text := fmt.Sprintf("listen {\n  socket = %q\n}\ngossip {\n  profile = \"fast\"\n}\n", m.socket())
	if r.Server {
		text += fmt.Sprintf("settings {\n  offline_after = %q\n}\n", offlineAfter) +
			"limits {\n  requests_per_second = 1000\n}\n"
	} else {
		text += fmt.Sprintf("agent {\n  cgroup_root = %q\n  capacity {\n    memory = %q\n  }\n}\n", m.c.name,
			m.c.options.memory)
	}
	if err := os.WriteFile(m.c.path(m.Name+".d", "site.hcl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(r.Next[0])
	if r.Started || words[0] != "outspan" {
		t.Fatalf("the next step of %s is %q", m.Name, r.Next[0])
	}
	m.Command = append([]string{m.c.bin}, words[1:]...)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
}

var (
	tokenText = regexp.MustCompile(`(?m)^osj1\.\S+$`)
	joinLine  = regexp.MustCompile(`(?m)^ +sudo outspan (join .*)$`)
)

// joinAll makes one token for all members, and types the line on each machine that comes with the token.
func (c *cluster) joinAll(t *testing.T, role string, members []*member) {
	t.Helper()
	var shown string
	waitFor(t, "a token for the role "+role, patience, func() error { // a new cluster makes none in its first moments
		r := c.cli(t, "token", "create", "--role", role, "--uses", strconv.Itoa(len(members)))
		if shown = r.out; r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	token, line := tokenText.FindString(shown), joinLine.FindStringSubmatch(shown)
	if token == "" || line == nil {
		t.Fatalf("there is no token, or no line, in\n%s", shown)
	}
	for _, m := range members {
		args := strings.Join(slices.Concat([]string{line[1]}, m.machine(), []string{"--no-start", "--json"}), " ")
		if role == "server" {
			args += " --no-agent"
		}
		cmd := exec.Command("sh", "-c", fmt.Sprintf("echo %s | %s %s 2>%s", token, c.bin, args, c.path(m.Name+".err")))
		out, err := output(cmd, time.Minute)
		var r setupReply
		if err == nil {
			err = json.Unmarshal([]byte(out), &r)
		}
		if err != nil {
			text, _ := os.ReadFile(c.path(m.Name + ".err"))
			t.Fatalf("%s does not join: %v\n%s%s", m.Name, err, out, text)
		}
		m.begin(t, r)
	}
}
