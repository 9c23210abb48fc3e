package transport

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// strangers opens connections without a certificate, each a second younger than the one before.
type strangers struct {
	t        *testing.T
	accounts *bareAccounts
	all      []*gate
}

// enter opens a connection from a source. It returns false if there is no place.
func (s *strangers) enter(source string) (*gate, bool) {
	end, other := net.Pipe()
	s.t.Cleanup(func() { _, _ = end.Close(), other.Close() })
	g := &gate{Conn: end, source: source, bare: s.accounts, since: time.Unix(int64(len(s.all)), 0)}
	s.all = append(s.all, g)
	entered := g.enterOrDisplace(s.accounts.unproved)
	return g, entered
}

// prove shows the good token of a subject on a connection.
func (s *strangers) prove(g *gate, name string) error {
	return Proved(context.WithValue(s.t.Context(), bareKey{}, g), model.Subject{Kind: model.SubjectToken, Name: name})
}

// When the account of connections without a certificate is full, the oldest connection without a good token of the
// busiest source makes room. Connections that have shown a good token stay.
func TestStrangersMakeRoom(t *testing.T) {
	s := &strangers{t: t, accounts: &bareAccounts{newBudget(6, 4), newBudget(6, 4)}}
	account, all := s.accounts.unproved, map[string]*gate{}
	enter := func(source string) bool {
		g, ok := s.enter(source)
		all[source+strconv.Itoa(len(s.all)-1)] = g
		return ok
	}
	open := func(name string) bool {
		_, ok := account.open[all[name]]
		return ok
	}
	for _, source := range []string{"a", "b", "b", "b", "c", "c"} {
		if !enter(source) {
			t.Fatalf("%s: no place", source)
		}
	}
	if err := s.prove(all["b1"], "x"); err != nil || open("b1") || !enter("a") { // a6 has the place of b1
		t.Fatalf("the place of a connection with a token is not free: %v", err)
	}
	for _, step := range []struct{ source, victim string }{
		{"d", "a0"}, // a, b and c have two each, and that of a is the oldest
		{"d", "b2"},
		{"c", "c4"}, // the other sources have as many, and younger ones
	} {
		if !open(step.victim) || !enter(step.source) || open(step.victim) {
			t.Errorf("%s displaced another one than %s: %v", step.source, step.victim, account.peers)
		}
	}
	if account.len() != 6 || all["b1"].closed || s.accounts.proved.peers["token:x"] != 1 {
		t.Errorf("open: %v, with tokens: %v", account.peers, s.accounts.proved.peers)
	}
	_ = all["b1"].Close()
	if s.accounts.proved.len() != 0 {
		t.Error("a connection with a token keeps its place when it is closed")
	}
}

// The holder of a token gets the places of its subject, from however many addresses it calls, and takes none from
// others. If all places of connections with tokens are taken, whoever has most of them makes room.
func TestPlacesOfTokens(t *testing.T) {
	s := &strangers{t: t, accounts: &bareAccounts{newBudget(6, 4), newBudget(5, 4)}}
	connect := func(name string) (*gate, error) {
		g, ok := s.enter("source " + strconv.Itoa(len(s.all)))
		if !ok {
			t.Fatalf("%s: no place", name)
		}
		return g, s.prove(g, name)
	}
	first, err := connect("greedy")
	for range 3 {
		if _, more := connect("greedy"); more != nil || err != nil {
			t.Fatal(err, more)
		}
	}
	fifth, err := connect("greedy")
	if err == nil {
		t.Error("a subject has more connections than its share")
	}
	if err := s.prove(first, "another"); err != nil {
		t.Errorf("another token on the same connection: %v", err)
	}
	_ = fifth.Close()
	for range 2 {
		if _, err := connect("ci"); err != nil {
			t.Errorf("another subject: %v", err)
		}
	}
	if got := s.accounts.proved.peers; !first.closed || got["token:greedy"] != 3 || got["token:ci"] != 2 {
		t.Errorf("places: %v", got)
	}
	if _, err := connect("ci"); err == nil {
		t.Error("a subject took a place from one that would have no more than it")
	}
	if s.accounts.unproved.len() != 1 {
		t.Errorf("%d connections have proved nothing", s.accounts.unproved.len())
	}
}
