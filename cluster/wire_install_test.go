package cluster

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowStream is a Stream that can delay a snapshot, like a network that loses packets. After a call of arm, it holds
// back the next snapshot that is sent to one server. letGo delivers that snapshot, even if the writer has closed the
// connection long before.
type slowStream struct {
	Stream
	to string // address of the server whose snapshot is held back

	mu    sync.Mutex
	armed bool
	held  *slowConn
}

type slowConn struct {
	net.Conn
	s      *slowStream
	kept   []byte
	closed bool
}

const installRequest = 2 // the byte with which raft's transport begins a request to install a snapshot

func (s *slowStream) DialRaft(address string, timeout time.Duration) (net.Conn, error) {
	c, err := s.Stream.DialRaft(address, timeout)
	if err != nil || address != s.to {
		return c, err
	}
	return &slowConn{Conn: c, s: s}, nil
}

func (c *slowConn) Write(p []byte) (int, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.armed && p[0] == installRequest {
		c.s.armed, c.s.held = false, c
	}
	if c.s.held == c {
		c.kept = append(c.kept, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *slowConn) Close() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.held == c {
		c.closed = true
		return nil
	}
	return c.Conn.Close()
}

func (s *slowStream) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = true
}

// givenUp reports whether the writer of the snapshot that is held back has closed its connection.
func (s *slowStream) givenUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held != nil && s.held.closed
}

func (s *slowStream) letGo(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.held
	s.held = nil
	_ = c.Conn.SetDeadline(time.Time{}) // a deadline that the writer set may have passed
	if _, err := c.Conn.Write(c.kept); err != nil {
		t.Fatalf("the late snapshot does not arrive: %v", err)
	}
	c.Conn.Close()
}

// S4 S8: If a leader sends two snapshots and the earlier one arrives last, the follower's state does not go back.
func TestLateSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		streams := map[string]*slowStream{}
		held := func(c *Config) {
			fewLogs(c)
			s := &slowStream{Stream: c.Stream}
			streams[c.Name], c.Stream = s, s
		}
		leader, away := r.oneBehind(held)
		slow := streams[leader.cfg.Name]
		slow.to = away.host + ":7640"
		slow.arm()
		r.net.Heal()
		back := r.start(hostNumber(away.host), held)
		eventually(t, 2*time.Minute, "a second snapshot after the first was given up", func() bool {
			return slow.givenUp() && back.machine.State().Nodes.Len() == 60
		})
		for i := range 20 {
			if err := leader.register(context.Background(), fmt.Sprintf("later%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		r.agree(10 * time.Second)
		installs, before := back.fsm.installs.Load(), back.machine.State().Index
		slow.letGo(t)
		synctest.Wait()
		if now := back.machine.State(); now.Index < before || back.fsm.installs.Load() != installs {
			t.Errorf("it went back from %d to %d with the late snapshot, %d installs after %d", before, now.Index,
				back.fsm.installs.Load(), installs)
		}
		r.mustRegister("last")
		r.agree(10 * time.Second)
	})
}
