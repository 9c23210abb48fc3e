package cluster

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
)

// A new key takes the place of the old one in three steps, and messages arrive in each of them, in both directions. A
// member that has only the old key is then not heard any more.
func TestPoolSetKeys(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := memnet.New()
		p1, _ := startPool(t, n, "n1", "10.0.0.1", nil)
		p2, _ := startPool(t, n, "n2", "10.0.0.2", nil)
		late, _ := startPool(t, n, "n3", "10.0.0.3", nil)
		for _, p := range []*Pool{p1, p2} {
			eventually(t, 5*time.Second, "three alive", allAlive(p, 3))
		}
		reach := func(what string, from, to *Pool) {
			t.Helper()
			eventually(t, 5*time.Second, what, func() bool {
				if err := from.Send(to.Name(), []byte("hello")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
				select {
				case <-to.Receive():
					return true
				default:
					return false
				}
			})
		}
		old, next := testGossipKey, bytes.Repeat([]byte{8}, 32)
		for _, step := range [][][]byte{{old, next}, {next, old}, {next}} {
			for _, p := range []*Pool{p1, p2} {
				if err := p.SetKeys(step); err != nil {
					t.Fatal(err)
				}
				reach("n1 to n2", p1, p2)
				reach("n2 to n1", p2, p1)
			}
		}
		if got := p1.Keys(); len(got) != 1 || !bytes.Equal(got[0], next) {
			t.Errorf("n1 has %d keys", len(got))
		}
		for len(p1.Receive()) > 0 {
			<-p1.Receive()
		}
		if err := late.Send("n1", []byte("hello")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if len(p1.Receive()) != 0 {
			t.Error("n1 hears the old key")
		}
		for _, bad := range [][][]byte{nil, {next, {1}}} {
			var refused *model.Error
			if err := p1.SetKeys(bad); !errors.As(err, &refused) || refused.Code != model.CodeGossipKeyInvalid {
				t.Errorf("%d keys: %v", len(bad), err)
			}
		}
	})
}

// The screen passes streams of each of its keys, and refuses those that fill the memory under each of them.
func TestScreenOfTwoKeys(t *testing.T) {
	s, err := newScreen(bytes.Repeat([]byte{8}, 32), poolKey)
	if err != nil {
		t.Fatal(err)
	}
	passes := func(stream []byte) error {
		head, _ := headBytes(stream)
		return s.stream(stream[:min(head, len(stream))])
	}
	members := append(exchange(3, 0), make([]byte, 300)...)
	good := 0
	for range 200 { // under the wrong key, one in about 80 looks like another message
		if passes(sealed(t, members, true)) == nil {
			good++
		}
		if err := passes(sealed(t, bomb(1<<20), true)); !errors.Is(err, errCompressed) && !errors.Is(err, errTooMany) {
			t.Fatalf("a compressed stream: %v", err)
		}
		if err := s.packet(sealed(t, bomb(1<<20), false)); !errors.Is(err, errCompressed) {
			t.Fatalf("a compressed packet: %v", err)
		}
	}
	if good < 150 {
		t.Errorf("%d of 200 streams pass", good)
	}
	if err := s.use([][]byte{bytes.Repeat([]byte{8}, 32)}); err != nil {
		t.Fatal(err)
	}
	good = 0
	for range 200 {
		if passes(sealed(t, members, true)) == nil {
			good++
		}
	}
	if good > 50 {
		t.Errorf("%d of 200 streams of a key that is gone pass", good)
	}
}
