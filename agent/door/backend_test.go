package door

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

func TestPickIsFair(t *testing.T) {
	r := NewRelay(DefaultLimits(), hclog.NewNullLogger())
	defer r.Close()
	s := newServed(r, "web", "127.0.0.1:1")
	var set []model.Backend
	for n := range 5 {
		set = append(set, model.Backend{Instance: model.InstanceID(rune('a' + n)), Node: "there", Address: fmt.Sprint(n)})
	}
	s.set("here", transport.ServiceBackends{Backends: set})
	got := map[string]int{}
	for range 1000 {
		address, b, ok := connect(t.Context(), s, func(_ context.Context, a string) (string, error) {
			if a == "3" {
				return "", errors.New("unreachable")
			}
			return a, nil
		})
		if !ok {
			t.Fatal("no backend")
		}
		got[address]++
		s.done(b)
	}
	for _, a := range []string{"0", "1", "2", "4"} {
		if got[a] < 150 {
			t.Errorf("backend %s got %d of 1000: %v", a, got[a], got)
		}
	}
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, []string{"0", "1", "2", "4"}) {
		t.Errorf("%v", keys)
	}
}

// After failures to accept connections, a port is reported as open again once it has accepted one.
func TestPortRecovers(t *testing.T) {
	r := NewRelay(DefaultLimits(), hclog.NewNullLogger())
	defer r.Close()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := newServed(r, "web", l.Addr().String())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.accept(ctx, l)
	}()
	defer func() { stop(); <-ended }()
	await := func(want model.PortCode) {
		t.Helper()
		for limit := time.After(10 * time.Second); ; {
			s.mu.Lock()
			code := s.code
			s.mu.Unlock()
			if code == want {
				return
			}
			select {
			case <-limit:
				t.Fatalf("the port has the code %q, want %q", code, want)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	if err := l.SetDeadline(time.Unix(1, 0)); err != nil { // accept fails, as it does when no descriptors are free
		t.Fatal(err)
	}
	await(model.PortFailed)
	if err := l.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	await("")
}
