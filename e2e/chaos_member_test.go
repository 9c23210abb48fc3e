package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func memberFaults() []fault {
	return []fault{
		{name: "transfer-leader", kind: ofServers, begin: transferLeader},
		{name: "rolling-restart", kind: ofServers, alone: true, begin: func(s *strike) {
			s.rolling(s.x.c.servers, func(*member) {})
		}},
		{name: "rolling-upgrade", kind: ofServers, alone: true, begin: rollingUpgrade},
		{name: "wiped-server", kind: ofServers, alone: true, begin: func(s *strike) { s.replace(s.follower(), false) }},
		{name: "replaced-server", kind: ofServers, alone: true, begin: func(s *strike) { s.replace(s.anyServer(), true) }},
		{name: "replaced-machine", kind: ofAgents, begin: func(s *strike) {
			s.renew(s.x.c.agents[2+s.x.random.IntN(len(s.x.c.agents)-2)])
		}},
		{name: "removed-server", kind: ofServers, alone: true, begin: removeCutOff},
		{name: "cloned-agent", kind: ofAgents, alone: true, begin: cloneAgent},
		{name: "snapshot-restore", kind: ofServers, alone: true, rewrites: true, begin: func(s *strike) {
			s.restoreSnapshot(func() {})
		}},
		{name: "old-snapshot", kind: ofServers, alone: true, rewrites: true, begin: func(s *strike) {
			s.restoreSnapshot(s.moveMuch)
		}},
	}
}

// otherProgram returns the path of another build of the program. OUTSPAN_CHAOS_OLD can name a build of an earlier
// release. Without it, otherProgram builds the same source with another version.
func otherProgram(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("OUTSPAN_CHAOS_OLD"); path != "" {
		return path
	}
	return shortProgram(t, "other")
}

// transferLeader moves leadership three times, once a second.
func transferLeader(s *strike) {
	s.hit(s.x.c.servers...)
	for range 3 {
		to := without(s.x.c.servers, s.x.c.leader(s.x.t))[s.x.random.IntN(chaosServers-1)]
		a, err := s.x.c.servers[0].ask(http.MethodPost, "/v1/members/transfer-leader",
			fmt.Sprintf(`{"to":%q}`, to.Name), 15*time.Second)
		s.say("to %s: %d %v", to.Name, a.status, err)
		time.Sleep(time.Second)
	}
}

// rolling restarts members one after the other, as a careful operator does. After each restart it waits until all
// servers have caught up and all nodes are online. While a member is down, rolling calls between(member).
func (s *strike) rolling(members []*member, between func(*member)) {
	x := s.x
	s.hit(members...)
	for _, m := range members {
		s.ends(m)
		_ = m.Signal(syscall.SIGTERM)
		if code := m.exitCode(x.t); code != 0 {
			x.book.violate("L1: %s ended with code %d when it was asked to end:\n%s", m.Name, code, m.LastLines(15))
		}
		between(m)
		m.start(x.t)
		x.waitServers()
		x.waitNodesOnline()
	}
}

// rollingUpgrade restarts every member with the other program, or with the usual one if the members already run the
// other program. Chance decides whether the servers or the agents are restarted first.
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

// waitServers waits until every server has a vote and has caught up.
func (x *chaos) waitServers() {
	x.t.Helper()
	x.c.waitVotersWithin(x.t, chaosServers, chaosPatience)
}

func (x *chaos) waitNodesOnline() {
	x.t.Helper()
	waitFor(x.t, "all nodes online", chaosPatience, func() error { return x.nodesOnline() })
}

// nodesOnline returns an error unless as many nodes are online as there are agents.
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

// get reads a path of the API from the first running server that answers 200 within 4 s.
func (x *chaos) get(path string, into any) error {
	failed := errNever
	for _, s := range x.c.servers {
		if !s.Running() {
			continue
		}
		a, err := s.ask(http.MethodGet, path, "", 4*time.Second)
		switch {
		case err != nil:
			failed = err
		case a.status != http.StatusOK:
			failed = fmt.Errorf("%s: %d %s", s.Name, a.status, a.body)
		default:
			return json.Unmarshal(a.body, into)
		}
	}
	return failed
}

// replace kills a server, and lets it join with an empty disk, as a new server. It also removes the old server from the
// cluster. If planned is true, the removal comes before the kill. Otherwise it comes after the new server is in the
// list of members. In both cases the old server is revoked before the new one joins, because they have the same name.
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
	m.Kill()
	x.joinAnew(m)
	if !planned {
		waitFor(x.t, m.Name+" as a new server", chaosPatience, func() error {
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

// removeCutOff removes a server from the cluster while the server runs but reaches no other member. When the network is
// repaired, the removed server must log that it was removed and exit, and the leader must stay the same. Then the
// server joins again with an empty disk, as a new server.
func removeCutOff(s *strike) {
	x, m := s.x, s.follower()
	old := x.memberIDs(m)
	s.isolate(m)
	s.ends(m)
	for _, id := range old {
		waitFor(x.t, "the removal of "+id, chaosPatience, func() error {
			a, err := x.c.leader(x.t).ask(http.MethodDelete, "/v1/members/"+id, "", 10*time.Second)
			if err == nil && a.status != http.StatusOK && a.status != http.StatusNotFound {
				err = fmt.Errorf("%d %s", a.status, a.body)
			}
			return err
		})
	}
	time.Sleep(time.Duration(2000+x.random.IntN(8000)) * time.Millisecond)
	leader := x.c.leader(x.t)
	for _, heal := range slices.Backward(s.mends) {
		heal()
	}
	s.mends = nil
	if code := m.exitCode(x.t); code == 0 || !strings.Contains(m.LastLines(5), "was removed from the cluster") {
		x.book.violate("L1: %s was removed while it was away and ended with code %d:\n%s", m.Name, code, m.LastLines(15))
	}
	if now := x.c.leader(x.t); now != leader {
		x.book.violate("L1: %s was removed, and its return took the lead from %s: %s leads", m.Name, leader.Name, now.Name)
	}
	x.joinAnew(m)
	x.book.count("servers removed while they were away", 1)
	x.waitServers()
}

// cloneAgent starts an agent on a copy of another agent's data directory, at another address. The servers must refuse
// the clone, and the node must keep the address and the epoch of the first agent.
func cloneAgent(s *strike) {
	x := s.x
	first := x.c.agents[x.random.IntN(len(x.c.agents))]
	if x.clone == nil {
		x.clone = x.c.newMember("agent", "clone", "10.83.7.201")
		if err := os.Mkdir(x.clone.config(), 0o755); err != nil {
			x.t.Fatal(err)
		}
		x.c.network.join(x.t, x.clone.Name, x.clone.address)
	}
	clone := x.clone
	clone.bin = first.bin
	x.awaitRenewal(first)
	if out, err := output(exec.Command("cp", "-a", first.data(), clone.data()), time.Minute); err != nil {
		x.t.Fatalf("copy the data directory: %v: %s", err, out)
	}
	settings := x.settings(clone)
	settings["name"], settings["data_dir"] = strconv.Quote(first.Name), strconv.Quote(clone.data())
	settings["tls"] = "managed = true"
	settings["listen"] += fmt.Sprintf("\n  address = %q", clone.address)
	settings["agent"] = strings.Replace(settings["agent"], x.c.name, x.c.name+"-clone", 1) +
		fmt.Sprintf("\n  servers = [%q]", x.c.leader(x.t).api())
	clone.configure(x.t, settings)
	var before nodeView
	waitFor(x.t, "the node of "+first.Name, chaosPatience, func() error { return x.get("/v1/nodes/"+first.Name, &before) })
	clone.start(x.t)
	clone.waitSays(x.t, "node "+first.Name+" is in use by the agent at "+first.address)
	x.book.count("agents cloned", 1)
	s.say("of %s", first.Name)
	s.later(func() {
		if code := clone.terminate(x.t); code != 0 {
			x.book.violate("S9: the clone of %s ended with code %d:\n%s", first.Name, code, clone.LastLines(15))
		}
		if err := errors.Join(os.RemoveAll(clone.data()), os.Remove(clone.Log)); err != nil {
			x.t.Error(err)
		}
		var now nodeView
		waitFor(x.t, "the node of "+first.Name, chaosPatience, func() error { return x.get("/v1/nodes/"+first.Name, &now) })
		if now.Address != before.Address || now.Epoch != before.Epoch {
			x.book.violate("S9: a clone took node %s over: %+v, it was %+v", first.Name, now, before)
		}
	})
}

// memberIDs returns the ids of all servers with the member's name.
func (x *chaos) memberIDs(m *member) (ids []string) {
	x.t.Helper()
	var l struct{ Items []memberView }
	waitFor(x.t, "the list of servers", chaosPatience, func() error { return x.get("/v1/members", &l) })
	for _, one := range l.Items {
		if one.Name == m.Name {
			ids = append(ids, one.ID)
		}
	}
	return ids
}

// wipe empties a member's data directory, and in a managed cluster removes its configuration. It does not remove the
// data directory, because that is a mount point.
func (m *member) wipe(t testing.TB) {
	t.Helper()
	if m.c.options.managed {
		if err := os.RemoveAll(m.config()); err != nil {
			t.Fatal(err)
		}
	}
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

// renew replaces an agent's machine. The machine dies, a person confirms its death, deletes its node and revokes its
// agent, and an empty machine with the same name joins.
func (s *strike) renew(m *member) {
	x := s.x
	s.hit(m)
	s.ends(m)
	m.die(x.t)
	waitFor(x.t, m.Name+" forgotten", chaosPatience, func() error {
		if a := x.person(http.MethodPost, "/v1/nodes/"+m.Name+"/confirm-dead", `{"force":true}`); !a.done {
			return fmt.Errorf("confirm-dead: %s", a.body)
		}
		if a := x.person(http.MethodDelete, "/v1/nodes/"+m.Name, ""); !a.done {
			return fmt.Errorf("forget: %s", a.body)
		}
		return nil
	})
	x.joinAnew(m)
	delete(x.used, m)
	x.book.count("machines replaced", 1)
	waitFor(x.t, m.Name+" as a new node", chaosPatience, func() error {
		var n nodeView
		if err := x.get("/v1/nodes/"+m.Name, &n); err != nil || n.Health != "online" {
			return fmt.Errorf("%+v (%w)", n, err)
		}
		return nil
	})
}

// person sends one write on behalf of an operator, and repeats it until its outcome is known.
func (x *chaos) person(method, path, body string) fate {
	return x.work.order(rand.New(rand.NewPCG(x.random.Uint64(), 7)), method, path, body)
}
