package cluster

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// statusOf returns the entry for id in the list of servers that at.Servers returns.
func statusOf(t *testing.T, at *rigServer, id model.ServerID) ServerStatus {
	t.Helper()
	for _, s := range at.Servers() {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("server %s is not listed", id)
	return ServerStatus{}
}

// The answers to the leader's ticks contain every server's disk space and certificates. The leader also knows how long
// ago each server last answered.
func TestServersTellTheirCondition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		agents := map[string]transport.Lifetime{}
		for i := range 3 * maxToldCerts {
			agents[fmt.Sprintf("n%02d", i)] = transport.Lifetime{From: began, Until: began.Add(time.Duration(i) * time.Hour)}
		}
		r.threeServersRunning(func(c *Config) {
			c.Disk.Space = func(string) (int64, int64, error) { return 3 << 30, 8 << 30, nil }
			c.Certificates = func() Certificates {
				return Certificates{Own: transport.Lifetime{From: began, Until: began.Add(time.Hour)}, Agents: agents,
					SignIn: strings.Repeat("é", maxToldPath)}
			}
		})
		leader := r.leader(time.Second)
		time.Sleep(3 * time.Second)
		follower := r.other(leader)
		for _, id := range []model.ServerID{leader.ID(), follower.ID()} {
			s := statusOf(t, leader, id)
			c := s.Condition
			if c.FreeBytes != 3<<30 || c.TotalBytes != 8<<30 || c.Expect != 3 || c.DataDir == "" || c.SavedAt != 0 {
				t.Errorf("told: %+v", c)
			}
			if c.Cert != (Lifetime{began.UnixMilli(), began.Add(time.Hour).UnixMilli()}) {
				t.Errorf("certificate: %+v", c.Cert)
			}
			if c.SignIn != strings.Repeat("é", maxToldPath/2) {
				t.Errorf("why nobody can sign in: %q", c.SignIn)
			}
			if len(c.Agents) != maxToldCerts || c.Agents[0].Node != "n00" {
				t.Errorf("certificates of agents: %+v", c.Agents)
			}
			if s.Silent > 2*time.Second {
				t.Errorf("a server that answers is silent for %s", s.Silent)
			}
		}
		follower.crash()
		time.Sleep(10 * time.Second)
		if s := statusOf(t, leader, follower.ID()); s.Silent < 8*time.Second || s.Silent > 12*time.Second {
			t.Errorf("after 10s the lost server is silent for %s", s.Silent)
		}
	})
}

// The next leader knows when the last snapshot was saved. The server that saved it still knows the time after the
// server restarts. A failed save does not change the time.
func TestLastSaveIsRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		leader := r.leader(time.Second)
		if err := leader.Save(context.Background(), failingWriter{}); err == nil {
			t.Fatal("no error of the writer")
		}
		if c := leader.Condition(); c.SavedAt != 0 {
			t.Errorf("a save that failed counts: %+v", c)
		}
		if err := leader.Save(context.Background(), io.Discard); err != nil {
			t.Fatal(err)
		}
		at := time.Now().UnixMilli()
		if err := leader.TransferLeader(context.Background(), ""); err != nil {
			t.Fatal(err)
		}
		var next *rigServer
		eventually(t, 20*time.Second, "the next leader", func() bool {
			next = r.leader(20 * time.Second)
			return next != leader
		})
		time.Sleep(3 * time.Second)
		if got := statusOf(t, next, leader.ID()).Condition.SavedAt; got != at {
			t.Errorf("the next leader knows of a save at %d, want %d", got, at)
		}
		leader.stop()
		again := r.start(hostNumber(leader.host), nil)
		if got := again.Condition().SavedAt; got == 0 || at-got > 1000 {
			t.Errorf("after a restart: saved at %d, want %d", got, at)
		}
	})
}

// failingWriter fails every write.
type failingWriter struct{}

// Write implements io.Writer.
func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
