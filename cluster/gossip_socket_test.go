package cluster

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"
)

func openTestSocket(t *testing.T, address string, port int) *socket {
	t.Helper()
	looks, err := newScreen(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	s, err := openSocket(address, port, looks, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	return s
}

// proves that packets keep their content although all are read into one buffer, that streams connect, and that no
// goroutine waits after Shutdown.
func TestGossipSocket(t *testing.T) {
	a, b := openTestSocket(t, "127.0.0.1", 0), openTestSocket(t, "127.0.0.2", 0)
	ip, port, err := b.FinalAdvertiseAddr("", 0)
	if err != nil || !ip.Equal(net.IPv4(127, 0, 0, 2)) || port != b.port() {
		t.Fatalf("b is reached at %s:%d, %v; it listens on port %d", ip, port, err, b.port())
	}
	if ip, port, err := b.FinalAdvertiseAddr("10.1.2.3", 77); err != nil || ip.String() != "10.1.2.3" || port != 77 {
		t.Errorf("told where it is reached: %s:%d, %v", ip, port, err)
	}
	to := net.JoinHostPort(ip.String(), strconv.Itoa(port))
	var got []*memberlist.Packet
	for i := range 3 {
		if _, err := a.WriteToAddress(bytes.Repeat([]byte{byte('a' + i)}, 1+i), memberlist.Address{Addr: to}); err != nil {
			t.Fatal(err)
		}
		select {
		case p := <-b.PacketCh():
			got = append(got, p)
		case <-time.After(10 * time.Second):
			t.Fatal("a packet did not come")
		}
	}
	for i, want := range []string{"a", "bb", "ccc"} {
		if string(got[i].Buf) != want || got[i].From.String() != net.JoinHostPort("127.0.0.1", strconv.Itoa(a.port())) ||
			got[i].Timestamp.IsZero() {
			t.Errorf("packet %d: %q from %s", i, got[i].Buf, got[i].From)
		}
	}
	conn, err := a.DialTimeout(to, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("hello"))
	other := <-b.StreamCh()
	defer other.Close()
	buf := make([]byte, 5)
	if _, err := other.Read(buf); err != nil || string(buf) != "hello" {
		t.Errorf("the stream brought %q, %v", buf, err)
	}
	if _, err := openSocket("127.0.0.1", a.port(), a.screen, hclog.NewNullLogger()); !errors.Is(err,
		syscall.EADDRINUSE) {
		t.Errorf("a port that is taken: %v", err)
	}
	if _, err := openSocket("somewhere", 0, a.screen, hclog.NewNullLogger()); err == nil {
		t.Error("a name was taken for an address")
	}
	_, _ = a.WriteTo([]byte("nobody takes this"), to)
	if err := b.Shutdown(); err != nil { // waits for b's goroutines; one of them tries to deliver that packet
		t.Error(err)
	}
}
