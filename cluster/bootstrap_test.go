package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
)

func TestChooseFirstServers(t *testing.T) {
	fresh := func(ids ...model.ServerID) (out []Beginner) {
		for _, id := range ids {
			out = append(out, Beginner{ID: id, Fresh: true, Expect: 3})
		}
		return out
	}
	for _, c := range []struct {
		name string
		b    Beginning
		want string
	}{
		{"two of three", Beginning{Self: "a", Expect: 3, Servers: fresh("a", "b")}, "[] false"},
		{"three, in any order", Beginning{Self: "b", Expect: 3, Servers: fresh("c", "a", "b")}, "[a b c] true"},
		{"four: the first three", Beginning{Self: "b", Expect: 3, Servers: fresh("d", "c", "a", "b")}, "[a b c] true"},
		{"four, and this is the fourth", Beginning{Self: "d", Expect: 3, Servers: fresh("d", "c", "a", "b")},
			"[a b c] false"},
		{"expects nothing", Beginning{Self: "a", Servers: fresh("a", "b", "c")}, "[] false"},
		{"pledged already",
			Beginning{Self: "a", Expect: 3, Pledge: []model.ServerID{"a", "b", "z"}, Servers: fresh("a", "b", "c")}, "[] false"},
		{"a cluster is there", Beginning{Self: "a", Expect: 3, Servers: append(fresh("a", "b", "c"), Beginner{ID: "z"})},
			"[] false"},
		{"others expect another number",
			Beginning{Self: "a", Expect: 2, Servers: append(fresh("b", "c"), Beginner{ID: "a", Fresh: true, Expect: 2})},
			"[] false"},
		{"what others agreed to comes first", Beginning{Self: "c", Expect: 3, Servers: append(fresh("a", "b", "c"),
			Beginner{ID: "d", Fresh: true, Expect: 3, Pledge: []model.ServerID{"b", "c", "d"}})}, "[b c d] true"},
		{"a cluster is there, and others agreed to another", Beginning{Self: "c", Expect: 3, Servers: []Beginner{
			{ID: "d", Fresh: true, Expect: 3, Pledge: []model.ServerID{"b", "c", "d"}}, {ID: "z"}}}, "[] false"},
		{"alone", Beginning{Self: "a", Expect: 1, Servers: []Beginner{{ID: "a", Fresh: true, Expect: 1}}}, "[a] true"},
	} {
		set, ok := c.b.Choose()
		if got := fmt.Sprint(set, ok); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestBeginOnlyWhenAllAgreed(t *testing.T) {
	set := []model.ServerID{"a", "b", "c"}
	all := func() []Beginner {
		var out []Beginner
		for _, id := range set {
			out = append(out, Beginner{ID: id, Fresh: true, Expect: 3, Pledge: set})
		}
		return out
	}
	check := func(name string, b Beginning, wantBegin bool, wantStray model.ServerID) {
		t.Helper()
		if begin, stray := b.Complete(); begin != wantBegin || stray != wantStray {
			t.Errorf("%s: %v, %q; want %v, %q", name, begin, stray, wantBegin, wantStray)
		}
	}
	check("all agreed, smallest id", Beginning{Self: "a", Expect: 3, Pledge: set, Servers: all()}, true, "")
	check("all agreed, another id", Beginning{Self: "b", Expect: 3, Pledge: set, Servers: all()}, false, "")
	check("one not seen", Beginning{Self: "a", Expect: 3, Pledge: set, Servers: all()[:2]}, false, "")
	undecided := all()
	undecided[2].Pledge = nil
	check("one undecided", Beginning{Self: "a", Expect: 3, Pledge: set, Servers: undecided}, false, "")
	begun := all()
	begun[1].Fresh = false
	check("one has state", Beginning{Self: "a", Expect: 3, Pledge: set, Servers: begun}, false, "")
	other := all()
	other[2].Pledge = []model.ServerID{"b", "c", "d"}
	check("one agreed to others", Beginning{Self: "a", Expect: 3, Pledge: set, Servers: other}, false, "c")
}

// Two different sets of servers that share a server never both begin a cluster. This holds however incomplete or old
// the servers' knowledge of each other is, and in whatever order the servers act.
func TestNeverTwoBeginningsThatShareAServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const count, expect = 5, 3
		pledges := map[model.ServerID][]model.ServerID{}
		var ids []model.ServerID
		for i := range count {
			ids = append(ids, model.ServerID(string(rune('a'+i))))
		}
		seen := map[model.ServerID]map[model.ServerID]Beginner{} // what each server last heard of the others
		for _, id := range ids {
			seen[id] = map[model.ServerID]Beginner{}
		}
		var begun [][]model.ServerID
		for range rapid.IntRange(10, 150).Draw(t, "steps") {
			self := rapid.SampledFrom(ids).Draw(t, "self")
			if other := rapid.SampledFrom(ids).Draw(t, "other"); other != self { // self hears of other
				seen[self][other] = Beginner{ID: other, Fresh: true, Expect: expect, Pledge: pledges[other]}
				continue
			}
			b := Beginning{Self: self, Expect: expect, Pledge: pledges[self]}
			for _, id := range ids {
				if id == self {
					b.Servers = append(b.Servers, Beginner{ID: self, Fresh: true, Expect: expect, Pledge: pledges[self]})
				} else if one, ok := seen[self][id]; ok {
					b.Servers = append(b.Servers, one)
				}
			}
			if set, ok := b.Choose(); ok {
				pledges[self] = set
			}
			if begin, _ := b.Complete(); begin {
				begun = append(begun, pledges[self])
			}
		}
		for _, x := range begun {
			for _, y := range begun {
				if !slices.Equal(x, y) && slices.ContainsFunc(x, func(id model.ServerID) bool { return slices.Contains(y, id) }) {
					t.Fatalf("both %v and %v began a cluster", x, y)
				}
			}
		}
	})
}

// Three servers that start one by one, with long pauses, still begin one cluster. A fourth server joins it.
func TestServersThatComeOneByOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.start(1, nil)
		time.Sleep(2 * time.Minute)
		r.start(2, nil)
		time.Sleep(2 * time.Minute)
		for _, s := range r.all() {
			if !s.fresh() {
				t.Fatalf("%s began with two of three", s.host)
			}
		}
		r.start(3, nil)
		leader := r.leader(20 * time.Second)
		if got := len(leader.voters()); got != 3 {
			t.Errorf("%d voters", got)
		}
		fourth := r.start(4, nil)
		eventually(t, time.Minute, "the fourth votes", func() bool { return len(leader.voters()) == 4 })
		if fourth.ClusterID() != leader.ClusterID() {
			t.Error("the fourth is in another cluster")
		}
	})
}

// proves that a server logs, while it waits for the first servers, which servers it has found and which addresses are
// silent. The server does so soon after its start, and then twice a minute.
func TestSaysForWhomItWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		var out lockedBuffer
		third := host(3) + ":7642"
		r.start(1, func(c *Config) {
			c.Gossip.Join = append(c.Gossip.Join, third)
			c.Logger = hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info})
		})
		r.start(2, nil)
		time.Sleep(70 * time.Second)
		lines := out.String()
		if n := strings.Count(lines, "waiting for the first servers: expected=3"); n != 3 {
			t.Errorf("it said %d times in 70 s for whom it waits, want 3:\n%s", n, lines)
		}
		if !strings.Contains(lines, `found=["s2 `+host(2)) || !strings.Contains(lines, "silent=["+third) &&
			!strings.Contains(lines, `silent=["`+third) {
			t.Errorf("it does not say for whom:\n%s", lines)
		}
	})
}

// lockedBuffer collects a log. Safe for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what was written so far.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A server that expects no others and has no join addresses begins its cluster at once.
func TestSingleServer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		r.start(1, func(c *Config) { c.BootstrapExpect, c.Gossip.Join = 1, nil })
		leader := r.leader(10 * time.Second)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("took %s", took)
		}
		r.mustRegister("n1")
		if !leader.CaughtUp() || leader.StaleFor() != 0 {
			t.Errorf("caught up %v, stale for %s", leader.CaughtUp(), leader.StaleFor())
		}
	})
}

// Server 1 began the cluster alone, and servers 2 and 3 joined. Server 1 loses its disk, and starts with an empty one
// before its network is up. It waits until it has heard from each of its join addresses, and then rejoins its cluster.
func TestNoSecondClusterWhenTheNetworkIsLate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		alone := func(c *Config) { c.BootstrapExpect = 1 }
		joins := func(c *Config) { c.BootstrapExpect = 0 }
		first := r.start(1, alone)
		time.Sleep(10 * time.Second)
		if !first.fresh() {
			t.Fatal("it began although one of its addresses never answered")
		}
		r.start(2, joins)
		r.start(3, joins)
		eventually(t, 2*time.Minute, "three voters", func() bool { return len(first.voters()) == 3 })
		id := first.ClusterID()
		first.crash()
		if err := os.RemoveAll(first.dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		again := r.start(1, alone)
		r.isolate(again.host)
		time.Sleep(time.Minute)
		r.net.Heal()
		eventually(t, 2*time.Minute, "it is in its cluster again", func() bool {
			return again.ClusterID() == id && !again.fresh()
		})
		for _, s := range r.running() {
			if s.ClusterID() != id {
				t.Errorf("%s is in cluster %s, want %s", s.host, s.ClusterID(), id)
			}
		}
	})
}

// A server that must not begin a cluster waits, although bootstrap_expect is 1 and it has no addresses to join. It logs
// why. The others add it once it hears from them.
func TestServerThatJoinedBeginsNothing(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *Config){
		"it joined": func(t *testing.T, c *Config) {
			if err := NoteJoined(c.DataDir, Joined{Cluster: "test", Roots: []string{"ab"}}); err != nil {
				t.Fatal(err)
			}
			if err := BeginAlone(c.DataDir); !errors.Is(err, &model.Error{Code: model.CodeConflict}) {
				t.Errorf("an operator lets it begin: %v, want conflict", err)
			}
		},
		"it has certificates of a cluster": func(_ *testing.T, c *Config) {
			c.NoBegin = NoSecondCluster(c.DataDir, "it has certificates")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r, log := newRig(t), &lockedBuffer{}
				waits := r.start(1, func(c *Config) {
					c.BootstrapExpect, c.Gossip.Join = 1, nil
					c.Logger = hclog.New(&hclog.LoggerOptions{Output: log})
					prepare(t, c)
				})
				time.Sleep(time.Minute)
				if !waits.fresh() {
					t.Fatal("it began a cluster")
				}
				if out := log.String(); !strings.Contains(out, "it begins no second one") {
					t.Errorf("the log does not say why:\n%s", out)
				}
				other := r.start(2, func(c *Config) { c.BootstrapExpect, c.Gossip.Join = 1, nil })
				r.leader(10 * time.Second)
				if err := other.seen.pool.Join(waits.seen.pool.Address()); err != nil {
					t.Fatal(err)
				}
				eventually(t, time.Minute, "it is added", func() bool { return waits.ClusterID() == other.ClusterID() })
			})
		})
	}
}

// A server whose log is lost keeps its id and its pledge, and does not begin its cluster again.
func TestLostLogBeginsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		alone := func(c *Config) { c.BootstrapExpect, c.Gossip.Join = 1, nil }
		first := r.start(1, alone)
		r.leader(10 * time.Second)
		eventually(t, time.Minute, "it knows its cluster", func() bool { return first.ClusterID() != "" })
		first.crash()
		if err := errors.Join(os.Remove(filepath.Join(first.dir, fileLog)),
			os.RemoveAll(filepath.Join(first.dir, "snapshots"))); err != nil {
			t.Fatal(err)
		}
		again := r.start(1, alone)
		time.Sleep(time.Minute)
		if !again.fresh() {
			t.Error("it began a second cluster")
		}
	})
}

// While a server waits for its join addresses, an operator may call BeginAlone, and the server begins its cluster.
// After that, BeginAlone fails.
func TestBeginAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		s := r.start(1, func(c *Config) { c.BootstrapExpect = 1 })
		time.Sleep(time.Minute)
		if !s.fresh() {
			t.Fatal("it began although one of its addresses never answered")
		}
		if err := BeginAlone(s.dir); err != nil {
			t.Fatal(err)
		}
		r.leader(10 * time.Second)
		if err := BeginAlone(s.dir); !errors.Is(err, &model.Error{Code: model.CodeConflict}) {
			t.Errorf("after it began: %v, want conflict", err)
		}
	})
}

// A join program that prints no address is one of the silent addresses, because it may later print a cluster's address.
func TestProgramWithoutAddressesIsSilent(t *testing.T) {
	program := filepath.Join(t.TempDir(), "peers")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	pool := &Pool{cfg: PoolConfig{Join: []string{"exec:" + program}}}
	if silent := pool.silent(t.Context(), map[string]bool{}); len(silent) != 1 {
		t.Errorf("silent %v, want the program", silent)
	}
}
