package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
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

// onMachine is a line of README.md for a machine, and for others as well: "s2$ COMMAND # the same on s3".
var onMachine = regexp.MustCompile(`(?m)^([sn]\d)\$ (.*?)(?: +# the same on (.*))?$`)

// A cluster of three servers and four workers grows out of one machine by the lines of README.md, within a minute. It
// runs a job, and drains a node. Nobody copies a file or writes a configuration. The lines are those that outspan token
// create prints. Each machine is a loopback address with directories of its own, and the test starts its process in
// place of systemd.
func TestReadme(t *testing.T) {
	c := newMembers(t, options{servers: 3, agents: 4, managed: true})
	lines := onMachine.FindAllStringSubmatch(document(t, "README.md"), -1)
	if len(lines) < 6 {
		t.Fatalf("README.md has %d lines for machines", len(lines))
	}
	known := strings.NewReplacer("sudo outspan", c.bin, "outspan ", c.bin+" ", "10.0.0.1", c.servers[0].address)
	typed, began := 0, time.Now()
	for _, line := range lines {
		machines := append([]string{line[1]}, strings.Fields(strings.ReplaceAll(line[3], ",", " "))...)
		command := c.withToken(t, line[2], len(machines))
		for _, name := range machines {
			typed++
			c.typeOn(t, c.member(name), known.Replace(command))
		}
		if line[1] == c.agents[0].Name && strings.Contains(command, " join ") {
			c.waitEligible(t, c.agents...)
			c.waitVotersWithin(t, 3, patience)
			took := time.Since(began)
			t.Logf("%d machines are a cluster %s after the first command", len(c.members()), took.Round(time.Second))
			if took > time.Minute {
				t.Errorf("it took %s until all machines worked, want at most a minute", took)
			}
		}
	}
	if want := len(c.members()) + 3; typed != want {
		t.Errorf("README.md has %d commands on %d machines, want %d", typed, len(c.members()), want)
	}
	c.waitEligible(t, c.agents[1:]...)
	if n1 := c.agents[0]; len(c.empty(n1)) > 0 {
		t.Errorf("%s is drained, and the kernel shows processes %v", n1.Name, c.empty(n1))
	}
	c.waitReady(t, "web", 3)
	c.must(t, "server", "health", "--wait", "--timeout", "60s")

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
}

var (
	placeholder = regexp.MustCompile(`osj1\.(server|agent)\.\.\.`)
	tokenText   = regexp.MustCompile(`(?m)^osj1\.\S+$`)
	joinLine    = regexp.MustCompile(`(?m)^ +(sudo outspan join .* -) .*$`)
)

// withToken replaces a placeholder for a token by a new token with some uses. It checks that outspan token create shows
// the same command for it.
func (c *cluster) withToken(t *testing.T, command string, uses int) string {
	t.Helper()
	found := placeholder.FindStringSubmatch(command)
	if found == nil {
		return command
	}
	var shown string
	waitFor(t, "a token for the role "+found[1], patience, func() error { // until the first server answers
		r := c.cli(t, "token", "create", "--role", found[1], "--uses", strconv.Itoa(uses))
		if shown = r.out; r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	token, line := tokenText.FindString(shown), joinLine.FindStringSubmatch(shown)
	if token == "" || line == nil {
		t.Fatalf("there is no token, or no line, in\n%s", shown)
	}
	if !strings.Contains(strings.ReplaceAll(command, "--no-agent ", ""), line[1]+" ") {
		t.Errorf("README.md has %q, and outspan token create shows %q", command, line[1])
	}
	return strings.ReplaceAll(command, found[0], token)
}

// typeOn runs a command on a member's machine. After outspan up and outspan join it starts the member.
func (c *cluster) typeOn(t *testing.T, m *member, command string) {
	t.Helper()
	sets := strings.Contains(command, c.bin+" up") || strings.Contains(command, c.bin+" join")
	if sets {
		command += " --no-start --json " + strings.Join(m.machine(), " ")
	}
	cmd := exec.Command("sh", "-c", fmt.Sprintf("(%s) 2>%s", command, c.path(m.Name+".err")))
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.environment()...)
	out, err := output(cmd, 2*time.Minute)
	var r setupReply
	if err == nil && sets {
		err = json.Unmarshal([]byte(out), &r)
	}
	if err != nil {
		text, _ := os.ReadFile(c.path(m.Name + ".err"))
		t.Fatalf("on %s: %v\n%s%s", m.Name, err, out, text)
	}
	if sets {
		m.begin(t, r)
	}
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
