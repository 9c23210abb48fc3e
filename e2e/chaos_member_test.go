package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

func memberFaults() []fault {
	return []fault{
		{name: "transfer-leader", kind: ofServers, begin: transferLeader},
		{name: "rolling-restart", kind: ofServers, alone: true, begin: func(s *strike) { s.rolling(s.x.c.servers, func(*member) {}) }},
		{name: "rolling-upgrade", kind: ofServers, alone: true, begin: rollingUpgrade},
		{name: "wiped-server", kind: ofServers, alone: true, begin: func(s *strike) { s.replace(s.follower(), false) }},
		{name: "replaced-server", kind: ofServers, alone: true, begin: func(s *strike) { s.replace(s.anyServer(), true) }},
		{name: "replaced-machine", kind: ofAgents, begin: func(s *strike) { s.renew(s.x.c.agents[2+s.x.random.IntN(len(s.x.c.agents)-2)]) }},
		{name: "snapshot-restore", kind: ofServers, alone: true, rewrites: true, begin: restoreSnapshot},
	}
}

// otherProgram is a second build: OUTSPAN_CHAOS_OLD names one of an earlier release, otherwise it is the same source that calls itself
// differently.
func otherProgram(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("OUTSPAN_CHAOS_OLD"); path != "" {
		return path
	}
	dir := "/tmp/" + runName()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "outspan")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-X main.version=other", "-o", path, "github.com/outspan/outspan/cmd/outspan")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := relatives.output(cmd, 5*time.Minute); err != nil {
		t.Fatalf("build the other program: %v\n%s", err, out)
	}
	return path
}

// transferLeader hands leadership around, once a second.
func transferLeader(s *strike) {
	s.hit(s.x.c.servers...)
	for range 3 {
		to := without(s.x.c.servers, s.x.c.leader(s.x.t))[s.x.random.IntN(chaosServers-1)]
		a, err := s.x.c.servers[0].ask(http.MethodPost, "/v1/members/transfer-leader", fmt.Sprintf(`{"to":%q}`, to.name), 15*time.Second)
		s.say("to %s: %d %v", to.name, a.status, err)
		time.Sleep(time.Second)
	}
}

// rolling ends members one after the other, each when the one before is back, as a person does who is careful.
func (s *strike) rolling(members []*member, between func(*member)) {
	x := s.x
	s.hit(members...)
	for _, m := range members {
		s.ends(m)
		m.signal(syscall.SIGTERM)
		if code := m.exitCode(x.t); code != 0 {
			x.book.violate("L1: %s ended with code %d when it was asked to end:\n%s", m.name, code, m.lastLines(15))
		}
		between(m)
		m.start(x.t)
		x.waitServers()
		x.waitNodesOnline()
	}
}

// rollingUpgrade takes every member to the other program, or back: the agents first or the servers first.
func rollingUpgrade(s *strike) {
	x := s.x
	groups := [][]*member{x.c.servers, x.c.agents}
	if x.random.IntN(2) == 0 {
		slices.Reverse(groups)
	}
	to := x.other
	if x.c.servers[0].bin == x.other {
		to = ""
	}
	for _, members := range groups {
		s.rolling(members, func(m *member) { m.bin = to })
	}
	s.say("%s first", groups[0][0].role)
}

// waitServers waits until every server votes and has caught up.
func (x *chaos) waitServers() {
	x.t.Helper()
	x.c.waitVotersWithin(x.t, chaosServers, chaosPatience)
}

func (x *chaos) waitNodesOnline() {
	x.t.Helper()
	waitFor(x.t, "all nodes online", chaosPatience, func() error { return x.nodesOnline() })
}

// nodesOnline says which node of a running agent isn't online.
func (x *chaos) nodesOnline() error {
	var l struct{ Items []nodeView }
	if err := x.get("/v1/nodes", &l); err != nil {
		return err
	}
	online := 0
	for _, n := range l.Items {
		online += one(n.Health == "online")
	}
	if online != len(x.c.agents) {
		return fmt.Errorf("%d of %d: %+v", online, len(x.c.agents), l.Items)
	}
	return nil
}

// get reads a path of the first server that answers soon.
func (x *chaos) get(path string, into any) error {
	failed := errNever
	for _, s := range x.c.servers {
		if !s.running() {
			continue
		}
		a, err := s.ask(http.MethodGet, path, "", 4*time.Second)
		switch {
		case err != nil:
			failed = err
		case a.status != http.StatusOK:
			failed = fmt.Errorf("%s: %d %s", s.name, a.status, a.body)
		default:
			return json.Unmarshal(a.body, into)
		}
	}
	return failed
}

// replace gives a server an empty disk. It comes back as a new one; its old self is removed, before by a person who plans it, or when the
// new one is seen.
func (s *strike) replace(m *member, planned bool) {
	x := s.x
	if !slices.Contains(s.on, m) {
		s.hit(m)
	}
	s.ends(m)
	old := x.memberIDs(m)
	remove := func() {
		for _, id := range old {
			waitFor(x.t, "the removal of "+id, chaosPatience, func() error {
				a, err := x.c.leader(x.t).ask(http.MethodDelete, "/v1/members/"+id, "", 10*time.Second)
				if err == nil && a.status != http.StatusOK && a.status != http.StatusNotFound {
					err = fmt.Errorf("%d %s", a.status, a.body)
				}
				return err
			})
		}
	}
	if planned {
		remove()
	}
	m.kill()
	m.wipe(x.t)
	m.start(x.t)
	if !planned {
		waitFor(x.t, m.name+" as a new server", chaosPatience, func() error {
			for _, id := range x.memberIDs(m) {
				if !slices.Contains(old, id) {
					return nil
				}
			}
			return errNever
		})
		remove()
	}
	s.x.book.count("servers replaced", 1)
	x.waitServers()
}

// memberIDs are the ids of the servers that bear a name.
func (x *chaos) memberIDs(m *member) (ids []string) {
	x.t.Helper()
	var l struct{ Items []memberView }
	waitFor(x.t, "the list of servers", chaosPatience, func() error { return x.get("/v1/members", &l) })
	for _, one := range l.Items {
		if one.Name == m.name {
			ids = append(ids, one.ID)
		}
	}
	return ids
}

// wipe empties a member's data directory, which is a file system of its own.
func (m *member) wipe(t testing.TB) {
	t.Helper()
	entries, err := os.ReadDir(m.data())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(m.data(), e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// renew replaces a machine for good: it dies, a person confirms that and has its node forgotten, and another one of that name comes, empty.
func (s *strike) renew(m *member) {
	x := s.x
	s.hit(m)
	s.ends(m)
	m.die(x.t)
	waitFor(x.t, m.name+" forgotten", chaosPatience, func() error {
		if a := x.person(http.MethodPost, "/v1/nodes/"+m.name+"/confirm-dead", `{"force":true}`); !a.done {
			return fmt.Errorf("confirm-dead: %s", a.body)
		}
		if a := x.person(http.MethodDelete, "/v1/nodes/"+m.name, ""); !a.done {
			return fmt.Errorf("forget: %s", a.body)
		}
		return nil
	})
	m.wipe(x.t)
	m.start(x.t)
	delete(x.used, m)
	x.book.count("machines replaced", 1)
	waitFor(x.t, m.name+" as a new node", chaosPatience, func() error {
		var n nodeView
		if err := x.get("/v1/nodes/"+m.name, &n); err != nil || n.Health != "online" {
			return fmt.Errorf("%+v (%w)", n, err)
		}
		return nil
	})
}

// person sends one write to whoever answers.
func (x *chaos) person(method, path, body string) fate {
	return x.work.order(rand.New(rand.NewPCG(x.random.Uint64(), 7)), method, path, body)
}

// restoreSnapshot takes the state back to what it was a moment ago. Nothing else is written meanwhile; what is written behind the snapshot,
// and only that, is gone afterwards, and no instance is touched before a person confirms. What moved meanwhile is not where the restored state has it:
// then users may notice.
func restoreSnapshot(s *strike) {
	x := s.x
	s.hit(x.c.servers...)
	x.work.gate.Lock()
	defer x.work.gate.Unlock()
	must := func(err error) {
		if err != nil {
			x.book.violate("S5: the history around a restore: %v", err)
		}
	}
	if x.random.IntN(3) > 0 { // otherwise in the middle of what goes on
		_ = within(10*time.Second, func() error { return x.story.calm(probedGroup) })
	}
	file := x.c.path("chaos.snap")
	kept, err := x.story.remember(x.c.leader(x.t))
	must(err)
	x.c.must(x.t, "server", "snapshot", "save", file, "--force")
	x.person(http.MethodPost, "/v1/nodes/n1/label", `{"labels":{"one":"lost"}}`)
	moved, err := x.story.movedSince(kept, probedGroup, x.c.leader(x.t))
	must(err)
	if moved > 0 {
		s.say("%d instances of web were on the move", moved)
		s.hit(x.c.agents...)
	}
	x.c.must(x.t, "server", "snapshot", "restore", file, "--yes")
	x.work.checkMarks()
	x.c.must(x.t, "settings", "resume", "restore")
	must(x.story.rewind(kept, x.c.leader(x.t)))
	x.book.count("snapshots restored", 1)
}
