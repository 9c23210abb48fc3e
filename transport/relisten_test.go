package transport_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// A patient listener opens its port once the port is free. It reports each failed try, and the success.
func TestPatientListenerWaitsForItsPort(t *testing.T) {
	holder, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	addr := holder.Addr().String()
	said := make(chan error, 100)
	l, err := transport.ListenPatiently(t.Context(), addr, func(err error) { said <- err })
	if err != nil {
		t.Fatal(err)
	}
	var refused *model.Error
	if err := <-said; !errors.As(err, &refused) || refused.Code != model.CodeAddressInUse {
		t.Fatalf("said %v", err)
	}
	if l.Addr().String() != addr {
		t.Errorf("its address is %s", l.Addr())
	}
	accepted := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = conn.Close()
		}
		accepted <- err
	}()
	<-said // the listener has tried again
	holder.Close()
	for err = errors.New("still taken"); err != nil; err = <-said {
		if !strings.Contains(err.Error(), "taken") && !errors.As(err, &refused) {
			t.Fatal(err)
		}
	}
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Closing a patient listener ends its wait. For an address of another machine, ListenPatiently fails and does not wait.
func TestPatientListenerIsClosed(t *testing.T) {
	holder, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	l, err := transport.ListenPatiently(t.Context(), holder.Addr().String(), func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := l.Accept(); done <- err }()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept ended with %v", err)
	}
	if _, err := transport.ListenPatiently(t.Context(), "192.0.2.1:9", func(error) {}); err == nil {
		t.Error("an address of another machine is waited for")
	}
}
