package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

var testGossipKey = bytes.Repeat([]byte{7}, 32)

// startPool opens a pool on host and runs it until the test ends or stop is called.
func startPool(t *testing.T, n *memnet.Net, name, host string, edit func(*PoolConfig)) (p *Pool, stop func()) {
	t.Helper()
	cfg := PoolConfig{
		Name: name, Cluster: "test", Key: testGossipKey, Profile: ProfileFast, Transport: n.Packets(host + ":7642"),
		Meta: Meta{Role: pki.RoleAgent, BootID: "boot", Incarnation: "1", API: host + ":7640"},
		Join: []string{"10.0.0.1:7642"},
	}
	if edit != nil {
		edit(&cfg)
	}
	p, err := OpenPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { p.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		p.Abandon()
		wg.Wait()
	})
	t.Cleanup(stop)
	return p, stop
}

func states(p *Pool) string {
	var out []string
	for _, m := range p.Members() {
		out = append(out, m.Name+"="+string(m.State))
	}
	return strings.Join(out, " ")
}

func allAlive(p *Pool, n int) func() bool {
	return func() bool {
		alive := 0
		for _, m := range p.Members() {
			if m.State == fsm.GossipAlive {
				alive++
			}
		}
		return alive == n
	}
}

func TestPoolFindsAndLosesMembers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := memnet.New()
		p1, _ := startPool(t, n, "n1", "10.0.0.1", nil)
		p2, _ := startPool(t, n, "n2", "10.0.0.2", nil)
		_, stop3 := startPool(t, n, "n3", "10.0.0.3", nil)
		eventually(t, 5*time.Second, "three alive at n1", allAlive(p1, 3))
		eventually(t, 5*time.Second, "three alive at n2", allAlive(p2, 3))

		m, ok := p2.Member("n3")
		if !ok || m.Meta.API != "10.0.0.3:7640" || m.Meta.Role != pki.RoleAgent {
			t.Fatalf("n3 at n2 = %+v, %v; want its meta", m, ok)
		}
		began := time.Now()
		stop3()
		eventually(t, 10*time.Second, "n3 suspect before it is dead", func() bool {
			return strings.Contains(states(p1), "n3=suspect")
		})
		eventually(t, 10*time.Second, "n3 dead at n1", func() bool { return strings.Contains(states(p1), "n3=dead") })
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the fast profile took %s to find a dead member, want less than 4 s", took)
		}
		if got := p1.Liveness(); got["n3"] != fsm.GossipDead || got["n2"] != fsm.GossipAlive {
			t.Errorf("liveness = %v", got)
		}
	})
}

// A member that is silent for a short time is suspected. Once the member is heard, it is alive again.
func TestPoolSuspicionEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := memnet.New()
		p1, _ := startPool(t, n, "n1", "10.0.0.1", nil)
		startPool(t, n, "n2", "10.0.0.2", nil)
		eventually(t, 5*time.Second, "two alive", allAlive(p1, 2))
		n.Isolate("10.0.0.2", "10.0.0.1")
		eventually(t, 5*time.Second, "n2 suspect", func() bool { return strings.Contains(states(p1), "n2=suspect") })
		n.Heal()
		eventually(t, 5*time.Second, "n2 alive again", allAlive(p1, 2))
	})
}

// After a long partition, members find each other again. memberlist alone would forget dead members after 30 s and
// never contact them again.
func TestPoolRejoinsAfterLongPartition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := memnet.New()
		noJoin := func(c *PoolConfig) { c.Join = nil } // pools may only use addresses that they remember
		p1, _ := startPool(t, n, "n1", "10.0.0.1", noJoin)
		p2, _ := startPool(t, n, "n2", "10.0.0.2", noJoin)
		if err := p2.Join(p1.Address()); err != nil {
			t.Fatal(err)
		}
		eventually(t, 5*time.Second, "joined", allAlive(p2, 2))
		n.Isolate("10.0.0.2", "10.0.0.1")
		time.Sleep(10 * time.Minute)
		if got := states(p1); !strings.Contains(got, "n2=dead") {
			t.Fatalf("after ten minutes apart: %s", got)
		}
		n.Heal()
		eventually(t, time.Minute, "n1 sees n2 again", allAlive(p1, 2))
		eventually(t, time.Minute, "n2 sees n1 again", allAlive(p2, 2))
	})
}

// If a member restarts before others miss it, they continue to see it as alive. Only the incarnation in its meta shows
// the restart. A dead member can return under its name at another address.
func TestPoolSeesFastRestartAndNewAddress(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := memnet.New()
		p1, _ := startPool(t, n, "n1", "10.0.0.1", nil)
		_, stop2 := startPool(t, n, "n2", "10.0.0.2", nil)
		eventually(t, 5*time.Second, "joined", allAlive(p1, 2))
		stop2()
		_, stop2 = startPool(t, n, "n2", "10.0.0.2", func(c *PoolConfig) { c.Meta.Incarnation = "2" })
		eventually(t, 5*time.Second, "new incarnation", func() bool {
			m, _ := p1.Member("n2")
			return m.State == fsm.GossipAlive && m.Meta.Incarnation == "2"
		})
		stop2()
		eventually(t, 10*time.Second, "dead", func() bool { return strings.Contains(states(p1), "n2=dead") })
		time.Sleep(11 * time.Second)
		startPool(t, n, "n2", "10.0.0.9", nil)
		eventually(t, 10*time.Second, "alive at the new address", func() bool {
			m, _ := p1.Member("n2")
			return m.State == fsm.GossipAlive && m.Address == "10.0.0.9:7642"
		})
	})
}

func TestPoolKeepsStrangersOut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := memnet.New()
		p1, _ := startPool(t, n, "n1", "10.0.0.1", nil)
		startPool(t, n, "key", "10.0.0.2", func(c *PoolConfig) { c.Key = bytes.Repeat([]byte{8}, 32) })
		startPool(t, n, "label", "10.0.0.3", func(c *PoolConfig) { c.Cluster = "other" })
		time.Sleep(time.Minute)
		if got := states(p1); got != "n1=alive" {
			t.Errorf("members = %s, want n1 alone", got)
		}
	})
}

func TestPoolMessagesAndMeta(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := memnet.New()
		p1, _ := startPool(t, n, "n1", "10.0.0.1", nil)
		p2, _ := startPool(t, n, "n2", "10.0.0.2", nil)
		eventually(t, 5*time.Second, "joined", allAlive(p1, 2))
		eventually(t, 5*time.Second, "joined", allAlive(p2, 2))
		if err := p1.Send("n2", []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if got := string(<-p2.Receive()); got != "hello" {
			t.Errorf("received %q", got)
		}
		if err := p1.Send("n9", nil); !errors.Is(err, &model.Error{Code: model.CodeNotFound}) {
			t.Errorf("send to a stranger = %v, want not_found", err)
		}
		changed := p1.Changed()
		if err := p2.SetMeta(func(m *Meta) { m.API = "10.0.0.2:9999" }); err != nil {
			t.Fatal(err)
		}
		<-changed
		eventually(t, 5*time.Second, "new meta", func() bool {
			m, _ := p1.Member("n2")
			return m.Meta.API == "10.0.0.2:9999"
		})
		if err := p2.SetMeta(func(m *Meta) { m.Name = strings.Repeat("x", 600) }); err == nil {
			t.Error("a meta of 600 bytes was taken; memberlist would panic")
		}
	})
}

func TestMetaFitsWhenFull(t *testing.T) {
	c := newCodec()
	id := strings.Repeat("Z", 26)
	m := Meta{
		Role: pki.RoleServer, BootID: strings.Repeat("b", 36), Incarnation: id,
		API: strings.Repeat("a", maxMetaAddress), Name: strings.Repeat("n", 63),
		Server: &ServerMeta{ClusterID: id, Fresh: true, Expect: 7, Room: RoomNone, Format: 65535,
			Version: strings.Repeat("v", 80)},
	}
	for range maxPledge {
		m.Server.Pledge = append(m.Server.Pledge, model.ServerID(id))
	}
	buf, err := c.encodeMeta(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.decodeMeta(buf); err != nil {
		t.Fatal(err)
	}
}

func TestResolveJoin(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "peers")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho 127.0.0.2:1 127.0.0.3:2\necho 127.0.0.4:3\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ entry, want, err string }{
		{"127.0.0.1:7642", "[127.0.0.1:7642]", ""},
		{"exec:" + script, "[127.0.0.2:1 127.0.0.3:2 127.0.0.4:3]", ""},
		{"exec:peers", "[]", "not an absolute path"},
		{"exec:" + dir + "/none", "[]", "no such file"},
		{"10.0.0.1", "[]", "not host:port"},
	} {
		got, err := resolveJoin(context.Background(), c.entry)
		if fmt.Sprint(got) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("resolveJoin(%q) = %v, %v; want %s, error with %q", c.entry, got, err, c.want, c.err)
		}
	}
}

func TestPoolRefusesBadSettings(t *testing.T) {
	good := PoolConfig{Name: "n1", Cluster: "c", Key: testGossipKey, Bind: "127.0.0.1",
		Meta: Meta{Role: pki.RoleAgent}}
	for what, edit := range map[string]func(*PoolConfig){
		"no key":      func(c *PoolConfig) { c.Key = nil },
		"short key":   func(c *PoolConfig) { c.Key = []byte("short") },
		"no name":     func(c *PoolConfig) { c.Name = "" },
		"no cluster":  func(c *PoolConfig) { c.Cluster = "" },
		"bad profile": func(c *PoolConfig) { c.Profile = "turbo" },
	} {
		cfg := good
		edit(&cfg)
		if p, err := OpenPool(cfg); err == nil {
			p.Abandon()
			t.Errorf("%s: no error", what)
		}
	}
}

// Over real sockets on loopback, two pools find each other, and one sees that the other has left.
func TestPoolOnLoopback(t *testing.T) {
	open := func(name string, join ...string) *Pool {
		p, err := OpenPool(PoolConfig{
			Name: name, Cluster: "test", Key: testGossipKey, Profile: ProfileFast, Bind: "127.0.0.1",
			Meta: Meta{Role: pki.RoleServer}, Join: join,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); p.Run(ctx) }()
		t.Cleanup(func() { cancel(); p.Close(); <-done })
		return p
	}
	p1 := open("s1")
	p2 := open("s2", p1.Address())
	eventually(t, 10*time.Second, "s1 sees s2", allAlive(p1, 2))
	eventually(t, 10*time.Second, "s2 sees s1", allAlive(p2, 2))
	p2.Close()
	eventually(t, 10*time.Second, "s2 left", func() bool { return strings.Contains(states(p1), "s2=dead") })
}
