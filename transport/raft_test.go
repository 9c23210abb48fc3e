package transport_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// layer makes a RaftStream the stream layer of hashicorp/raft.
type layer struct{ *transport.RaftStream }

func (l layer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return l.DialRaft(string(addr), timeout)
}

// TestRaftTransport runs raft's own transport over the port, with an RPC and a snapshot. Closing the transport closes
// all its connections.
func TestRaftTransport(t *testing.T) {
	ca := authority(t, "c1")
	node := func(name string) (*station, *raft.NetworkTransport) {
		s := start(t, credentials(t, ca, pki.RoleServer, name), stationConfig{})
		tr := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: layer{s.raft}, MaxPool: 3, Timeout: 10 * time.Second, MaxRPCsInFlight: 1, Logger: hclog.NewNullLogger(),
		})
		return s, tr
	}
	a, from := node("s1")
	b, to := node("s2")
	third :=
		must(transport.Dialer{Credentials: credentials(t, ca, pki.RoleServer, "s3")}.DialRaft(t.Context(), b.addr))(t)
	defer third.Close()
	if name := a.raft.PeerName(third); name != "s2" {
		t.Errorf("the certificate at the other end is of %q, want s2", name)
	}
	eventually(t, "a third server's connection is in", func() bool { return b.Stats().Raft == 1 })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 {
			rpc := <-to.Consumer()
			if rpc.Reader != nil {
				n, _ := io.Copy(io.Discard, rpc.Reader)
				rpc.Respond(&raft.InstallSnapshotResponse{Term: uint64(n), Success: true}, nil)
				continue
			}
			rpc.Respond(&raft.AppendEntriesResponse{Term: 7, LastLog: 9, Success: true}, nil)
		}
	}()
	var got raft.AppendEntriesResponse
	if err := from.AppendEntries("s2", to.LocalAddr(), &raft.AppendEntriesRequest{Term: 7}, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(raft.AppendEntriesResponse{Term: 7, LastLog: 9, Success: true}, got); d != "" {
		t.Errorf("answer (-want +got):\n%s", d)
	}
	const size = 3 << 20
	var inst raft.InstallSnapshotResponse
	if err := from.InstallSnapshot("s2", to.LocalAddr(), &raft.InstallSnapshotRequest{Size: size}, &inst,
		io.LimitReader(zeros{}, size)); err != nil {
		t.Fatal(err)
	}
	if inst.Term != size {
		t.Errorf("%d bytes of snapshot arrived, want %d", inst.Term, size)
	}
	<-done
	if err := errors.Join(from.Close(), to.Close()); err != nil {
		t.Error(err)
	}
	third.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := third.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an accepted connection outlived the stream: %v", err)
	}
	eventually(t, "nothing of raft is on the wire", func() bool { return a.Stats().Raft+b.Stats().Raft == 0 })
	if _, err := a.raft.DialRaft(b.addr, time.Second); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed stream dials: %v", err)
	}
	if _, err := a.raft.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed stream accepts: %v", err)
	}
	// TestMain checks with goleak that no goroutine is left.
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestRaftAdvertise(t *testing.T) {
	l := must(transport.NewListener(memnet.New().Listen("x"),
		transport.ListenerConfig{Credentials: credentials(t, authority(t, "c1"), pki.RoleServer, "s1")}))(t)
	if got := l.Raft(transport.Dialer{}, "s1.lan:7640").Addr(); got.String() != "s1.lan:7640" || got.Network() != "tcp" {
		t.Errorf("got %s %s", got.Network(), got)
	}
	if got := l.Raft(transport.Dialer{}, "").Addr().String(); got != "x" {
		t.Errorf("got %s, want the address listened on", got)
	}
}

// A server that stops refuses raft without a word about limits: peers dial again until they notice.
func TestRaftIsClosedQuietly(t *testing.T) {
	ca := authority(t, "c1")
	var log strings.Builder
	s := start(t, credentials(t, ca, pki.RoleServer, "s1"), stationConfig{listener: transport.ListenerConfig{
		Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn})}})
	if err := s.raft.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := transport.Dialer{Credentials: credentials(t, ca, pki.RoleServer, "s2")}.DialRaft(t.Context(), s.addr)
	if err == nil {
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection stayed open: %v", err)
		}
	}
	if err := s.stop(); err != nil { // no goroutine writes to the log any more
		t.Error(err)
	}
	if log.Len() > 0 || s.Stats().RaftRefused != 0 {
		t.Errorf("%d refused, and: %s", s.Stats().RaftRefused, &log)
	}
}
