package bridge

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// A network of which somebody removed a part is noticed, whichever part it is, and the next Add mends it.
func TestLost(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	lost := func() string {
		t.Helper()
		var said []string
		if err := n.Lost(t.Context(), []string{"a", "nothing"}, func(id, what string) {
			said = append(said, id+": "+what)
		}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(said, "; ")
	}
	ip := func(args ...string) {
		t.Helper()
		if _, err := run(t.Context(), "ip", args...); err != nil {
			t.Fatal(err)
		}
	}
	// side returns the interface of container a on the machine's side.
	side := func() string {
		_, result, err := n.remembered(n.bridge(), "a")
		if err != nil || result == nil {
			t.Fatal(result, err)
		}
		for _, i := range result.Interfaces {
			if i.Sandbox == "" && i.Name != n.Device() {
				return i.Name
			}
		}
		t.Fatal("no interface")
		return ""
	}
	for _, c := range []struct {
		what string
		harm func()
	}{
		{"interface", func() { ip("link", "delete", side()) }},
		{"interface", func() { ip("link", "set", side(), "nomaster") }},
		{"interface", func() { ip("link", "set", side(), "down") }},
		{"the bridge", func() { ip("link", "delete", n.Device()) }},
		{"the bridge", func() { ip("link", "set", n.Device(), "down") }},
		{"the address", func() { ip("address", "flush", "dev", n.Device()) }},
		{"namespace", func() {
			if err := removeNetns(n.netns("a")); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		connect(t, n, "a", Mapping{8001, 80})
		if got := lost(); got != "" {
			t.Fatalf("a whole network is lost: %s", got)
		}
		if c.harm(); !strings.HasPrefix(lost(), "a: ") || !strings.Contains(lost(), c.what) {
			t.Errorf("%q does not tell of %s", lost(), c.what)
		}
		if err := n.Remove(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		checkNothing(t, n)
	}
}

// looked is a Backend of which only Lost, Add and Subnet are called.
type looked struct {
	Backend
	missing bool
	err     error
}

func (l *looked) Lost(_ context.Context, ids []string, tell func(id, what string)) error {
	for _, id := range ids {
		if l.missing && l.err == nil {
			tell(id, "it")
		}
	}
	return l.err
}

func (l *looked) Add(context.Context, string, string, []Mapping) (Attachment, error) {
	return Attachment{}, nil
}

func (l *looked) Subnet() netip.Prefix { return netip.Prefix{} }

// A network is lost only if something of it is missing in two looks in a row. A look that fails is none, and what an
// earlier network of the instance lacked does not count.
func TestLostTwice(t *testing.T) {
	const whole, harmed, fails, anew = "whole", "harmed", "fails", "anew"
	for _, c := range []struct {
		looks []string
		want  int // how often the loss is told
	}{
		{[]string{harmed}, 0},
		{[]string{harmed, whole, harmed, whole}, 0},
		{[]string{harmed, harmed}, 1},
		{[]string{whole, harmed, harmed, harmed, whole}, 2},
		{[]string{fails, fails, fails}, 0},
		{[]string{harmed, fails, harmed}, 0},
		{[]string{harmed, anew, harmed}, 0},
		{[]string{harmed, anew, harmed, harmed}, 1},
	} {
		l := &looked{}
		k := NewKeeper(func() (Backend, error) { return l, nil })
		k.net, k.why, k.uses["a"] = l, nil, true
		told := 0
		for _, look := range c.looks {
			if look == anew {
				if _, err := k.Connect(t.Context(), "a", nil); err != nil {
					t.Fatal(err)
				}
				continue
			}
			l.missing, l.err = look == harmed, nil
			if look == fails {
				l.err = errors.New("no memory")
			}
			if err := k.Lost(t.Context(), func(string, string) { told++ }); !errors.Is(err, l.err) {
				t.Errorf("%v: %v", c.looks, err)
			}
		}
		if told != c.want {
			t.Errorf("%v: told %d times, want %d", c.looks, told, c.want)
		}
	}
}
