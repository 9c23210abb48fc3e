package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// After a change of the certificates, the next request uses another connection. If it can't be dialled, the one before
// goes on, and another attempt follows 10 s later.
func TestFreshConn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var changes uint64
		var others []net.Conn // the other ends, in the order of the dials
		dials, refuse := 0, false
		dial := func() (net.Conn, error) {
			if dials++; refuse {
				return nil, errors.New("refused")
			}
			mine, other := net.Pipe()
			others = append(others, other)
			return mine, nil
		}
		first, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		c := &freshConn{Conn: first, now: func() uint64 { return changes }, dial: dial}
		request := func(what string, wantDials, wantConn int) {
			t.Helper()
			if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = c.Write([]byte("x")) }()
			_ = others[wantConn].SetReadDeadline(time.Now().Add(time.Second))
			if n, err := others[wantConn].Read(make([]byte, 1)); n != 1 || dials != wantDials {
				t.Errorf("%s: connection %d carried %d bytes (%v) after %d dials", what, wantConn, n, err, dials)
			}
		}
		request("no change", 1, 0)
		changes, refuse = 1, true
		request("the dial fails", 2, 0)
		request("soon afterwards", 2, 0)
		refuse = false
		time.Sleep(freshPause + time.Second)
		request("later", 3, 1)
		if _, err := first.Write([]byte("x")); err == nil {
			t.Error("the connection before is still open")
		}
		request("no further change", 3, 1)
		_ = c.Close()
	})
}

// The certificates of three servers are replaced by those of another CA, and the old CA is dropped. The leader stays,
// no write fails, and no request of raft fails.
func TestRaftOutlivesACA(t *testing.T) {
	dir := t.TempDir()
	next, err := transport.NewAuthority("test", 0)
	if err != nil {
		t.Fatal(err)
	}
	var log lockedLog
	var servers []*realServer
	var join []string
	for i := range 3 {
		servers = append(servers, startRealServer(t, dir, fmt.Sprintf("s%d", i+1), "127.0.0.1:0", join, &log))
		join = append(join, servers[i].Pool().Address())
	}
	var leader *realServer
	eventually(t, 30*time.Second, "a leader with two voters beside it", func() bool {
		for _, s := range servers {
			if _, self, _ := s.Leader(); self && s.Term() != 0 && len(s.voters()) == 3 {
				leader = s
			}
		}
		return leader != nil
	})
	eventually(t, 30*time.Second, "all servers have the log", func() bool {
		return !slices.ContainsFunc(servers, func(s *realServer) bool {
			return s.machine.State().Index < leader.machine.State().Index
		})
	})
	term := leader.Term()
	log.forget()
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writes := 0
	writing.Go(func() {
		for ; ctx.Err() == nil; writes++ {
			if err := (&rigServer{Server: leader.Server}).register(t.Context(), fmt.Sprintf("n%d", writes%10)); err != nil {
				t.Errorf("write %d: %v", writes, err)
			}
		}
	})
	old := servers[0].creds.Roots()[0]
	each := func(change func(*realServer) error) {
		for _, s := range servers {
			if err := change(s); err != nil {
				t.Error(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	each(func(s *realServer) error { return s.creds.UseRoots([][]byte{old, next.Root().Raw}) })
	each(func(s *realServer) error {
		cert, key, err := next.Issue(transport.CertRequest{Role: pki.RoleServer, Name: s.cfg.Name, TTL: time.Hour})
		if err != nil {
			return err
		}
		pair, err := tls.X509KeyPair(cert, key)
		return errors.Join(err, s.creds.Use(pair, nil))
	})
	each(func(s *realServer) error { return s.creds.UseRoots([][]byte{next.Root().Raw}) })
	time.Sleep(16 * time.Second) // connections with certificates of the old CA are closed after 15 s
	stop()
	writing.Wait()
	t.Logf("%d writes", writes)
	if _, self, _ := leader.Leader(); !self || leader.Term() != term {
		t.Errorf("another leader was elected: term %d after %d", leader.Term(), term)
	}
	for _, line := range log.with("failed to") {
		// A server that closes an idle connection before its sender does says so. A request on it would fail at the sender.
		if !strings.Contains(line, "failed to decode incoming command") {
			t.Error(line)
		}
	}
}

// lockedLog keeps what several servers log.
type lockedLog struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lockedLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Reset()
}

// with returns the lines that contain text.
func (l *lockedLog) with(text string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.all.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}
