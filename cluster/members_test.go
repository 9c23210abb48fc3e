package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// threeServers returns a healthy cluster of s1 (leading), s2 and s3 at a1:1, a2:1, a3:1.
func threeServers() Membership {
	m := Membership{Self: "s1", Index: 1, LastIndex: 1000, SettleFor: 10 * time.Second}
	for i := range 3 {
		address := fmt.Sprintf("a%d:1", i+1)
		m.Servers = append(m.Servers, ServerView{
			ID: model.ServerID(fmt.Sprintf("s%d", i+1)), Address: address, Configured: address, Voter: true,
			Alive: true, Answered: true, LastIndex: 1000, HealthyFor: time.Hour,
		})
	}
	return m
}

func (m *Membership) kill(i int) {
	m.Servers[i].Alive, m.Servers[i].Answered, m.Servers[i].HealthyFor = false, false, 0
}

func fresh(id, address string) ServerView {
	return ServerView{ID: model.ServerID(id), Address: address, Alive: true, Fresh: true}
}

func TestNextChange(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Membership)
		want string // kind and id
	}{
		{"a healthy cluster", func(*Membership) {}, ""},
		{"a new server", func(m *Membership) { m.Servers = append(m.Servers, fresh("s4", "a4:1")) }, "add s4"},
		{"a new server with the name of a living one", func(m *Membership) {
			s := fresh("s4", "a4:1")
			s.Name, m.Servers[2].Name = "three", "three"
			m.Servers = append(m.Servers, s)
		}, ""},
		{"a new server with the name of a dead one", func(m *Membership) {
			s := fresh("s4", "a4:1")
			s.Name, m.Servers[2].Name = "three", "three"
			m.kill(2)
			m.Servers = append(m.Servers, s)
		}, "add s4"},
		{"a server with state is not taken in by itself", func(m *Membership) {
			s := fresh("s4", "a4:1")
			s.Fresh = false
			m.Servers = append(m.Servers, s)
		}, ""},
		{"one of another cluster neither", func(m *Membership) {
			s := fresh("s4", "a4:1")
			s.Foreign = true
			m.Servers = append(m.Servers, s)
		}, ""},
		{"a dead new server", func(m *Membership) {
			s := fresh("s4", "a4:1")
			s.Alive = false
			m.Servers = append(m.Servers, s)
		}, ""},
		{"s3 was wiped: first the old one goes", func(m *Membership) {
			m.kill(2)
			m.Servers = append(m.Servers, fresh("s4", "a3:1"))
		}, "remove s3"},
		{"then the new one comes", func(m *Membership) { m.Servers[2] = fresh("s4", "a3:1") }, "add s4"},
		{"a stranger at the address of a living server changes nothing", func(m *Membership) {
			m.Servers = append(m.Servers, fresh("s4", "a3:1"))
		}, ""},
		{"s3 was wiped while s2 is dead: the vote stays, or quorum is lost", func(m *Membership) {
			m.kill(1)
			m.kill(2)
			m.Servers = append(m.Servers, fresh("s4", "a3:1"))
		}, ""},
		{"a non-voter that has kept up", func(m *Membership) { m.Servers[2].Voter = false }, "promote s3"},
		{"one that is 251 behind", func(m *Membership) { m.Servers[2].Voter, m.Servers[2].LastIndex = false, 749 }, ""},
		{"one that is 250 behind", func(m *Membership) {
			m.Servers[2].Voter, m.Servers[2].LastIndex = false, 750
		}, "promote s3"},
		{"one that has kept up for 9 s", func(m *Membership) {
			m.Servers[2].Voter, m.Servers[2].HealthyFor = false, 9*time.Second
		}, ""},
		{"one that doesn't answer", func(m *Membership) { m.Servers[2].Voter, m.Servers[2].Answered = false, false }, ""},
		{"a new address", func(m *Membership) { m.Servers[1].Address = "b2:1" }, "move s2"},
		{"an address that another member has", func(m *Membership) { m.Servers[1].Address = "a3:1" }, ""},
		{"moving comes before adding", func(m *Membership) {
			m.Servers = append([]ServerView{fresh("s0", "a0:1")}, m.Servers...)
			m.Servers[1].Address = "b1:1"
		}, "move s1"},
		{"adding comes before promoting", func(m *Membership) {
			m.Servers[1].Voter = false
			m.Servers = append(m.Servers, fresh("s4", "a4:1"))
		}, "add s4"},
	} {
		m := threeServers()
		c.edit(&m)
		got := ""
		if change, ok := m.NextChange(func(Change) bool { return false }); ok {
			got = fmt.Sprintf("%s %s", change.Kind, change.ID)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNextFormat(t *testing.T) {
	m := threeServers()
	if got := m.NextFormat(); got != 0 {
		t.Errorf("nobody said: %d", got)
	}
	for i, f := range []uint16{3, 2, 4} {
		m.Servers[i].Format = f
	}
	m.Servers = append(m.Servers, ServerView{ID: "s4", Alive: true, Fresh: true, Address: "a4:1", Format: 1})
	if got := m.NextFormat(); got != 2 {
		t.Errorf("format %d, want 2: the oldest member decides, a stranger doesn't", got)
	}
	m.Format = 2
	if c, ok := m.NextChange(func(Change) bool { return false }); ok {
		t.Errorf("%s %s: it can't read the cluster's format", c.Kind, c.ID)
	}
}

func TestCheckRemoveKeepsQuorum(t *testing.T) {
	for _, c := range []struct {
		name  string
		dead  []int
		id    model.ServerID
		want  model.Code
		force model.Code
	}{
		{"one of three", nil, "s3", "", ""},
		{"the leader itself", nil, "s1", "", ""},
		{"a dead one of three", []int{2}, "s3", "", ""},
		{"a living one when another is dead", []int{2}, "s2", model.CodeConflict, ""},
		{"a dead one when two are dead", []int{1, 2}, "s3", model.CodeConflict, ""},
		{"an unknown one", nil, "s9", model.CodeNotFound, model.CodeNotFound},
	} {
		m := threeServers()
		for _, i := range c.dead {
			m.kill(i)
		}
		check := func(what string, err *model.Error, want model.Code) {
			if (err == nil) != (want == "") || err != nil && !errors.Is(err, &model.Error{Code: want}) {
				t.Errorf("%s, %s: %v, want %q", c.name, what, err, want)
			}
		}
		check("by itself", m.CheckRemove(c.id), c.want)
		check("forced", m.CheckForcedRemove(c.id), c.force)
	}
	alone := threeServers()
	alone.Servers = alone.Servers[:1]
	if alone.CheckRemove("s1") == nil || alone.CheckForcedRemove("s1") == nil {
		t.Error("the last vote can be removed")
	}
}

// Gossip may announce many servers that don't exist. NextChange looks at each of them once, and does not compare them
// with each other. The index contains only members of the cluster, and NextChange allocates nothing per other server.
func TestMadeUpServersCostLittle(t *testing.T) {
	m := threeServers()
	m.Servers[2].Name = "three"
	for i := range maxMembers {
		s := fresh(fmt.Sprintf("z%05d", i), fmt.Sprintf("b%d:1", i))
		s.Name = []string{"three", fmt.Sprint("liar", i)}[i%2]
		m.Servers = append(m.Servers, s)
	}
	r := m.index()
	if len(r.byID) != 3 || len(r.address) != 3 || len(r.name) != 1 || len(r.name["three"]) != 1 || len(r.voters) != 3 {
		t.Errorf("the index has %d ids, %d addresses, %d names and %d voters", len(r.byID), len(r.address),
			len(r.name), len(r.voters))
	}
	looks := 0
	look := func() { m.NextChange(func(Change) bool { looks++; return true }) }
	look()
	if looks != maxMembers/2 {
		t.Errorf("%d changes are proposed", looks)
	}
	if got := testing.AllocsPerRun(3, look); got > 30 {
		t.Errorf("a look allocates %v times", got)
	}
}

// Which server's change is proposed first depends on Membership.First, so that no name has an advantage.
func TestNextChangeBeginsAnywhere(t *testing.T) {
	m := threeServers()
	m.Servers = append(m.Servers, fresh("s4", "a4:1"), fresh("s5", "a5:1"))
	for first, want := range []model.ServerID{"s4", "s4", "s4", "s4", "s5", "s4"} {
		m.First = first
		if c, ok := m.NextChange(func(Change) bool { return false }); !ok || c.ID != want {
			t.Errorf("from %d on: %v %s, want %s", first, ok, c.ID, want)
		}
	}
}
