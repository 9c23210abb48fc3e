package transport

import (
	"net"
	"strconv"
	"testing"
	"time"
)

// When the account of connections without a certificate is full, the oldest connection without a good token of the
// busiest source makes room. Connections that have shown a good token stay.
func TestStrangersMakeRoom(t *testing.T) {
	account := newBudget(6, 4)
	all, began := map[string]*gate{}, time.Now()
	enter := func(source string, good bool) bool {
		end, other := net.Pipe()
		t.Cleanup(func() { _, _ = end.Close(), other.Close() })
		g := &gate{Conn: end, source: source, since: began.Add(time.Duration(len(all)) * time.Second)}
		g.proved.Store(good)
		all[source+strconv.Itoa(len(all))] = g
		return g.enterOrDisplace(account)
	}
	open := func(name string) bool {
		_, ok := account.open[all[name]]
		return ok
	}
	for i, source := range []string{"a", "b", "b", "b", "c", "c"} {
		if !enter(source, i == 1) { // b1 has shown a good token
			t.Fatalf("%s: no place", source)
		}
	}
	for _, step := range []struct{ source, victim string }{
		{"d", "b2"}, // b and c have two each, and that of b is older
		{"d", "c4"},
		{"c", "d6"},
	} {
		if !open(step.victim) || !enter(step.source, false) || open(step.victim) {
			t.Errorf("%s displaced another one than %s: %v", step.source, step.victim, account.peers)
		}
	}
	if account.len() != 6 || !open("a0") || !open("b1") {
		t.Errorf("open: %v", account.peers)
	}

	full := newBudget(6, 2)
	account = full
	if !enter("e", true) || !enter("e", false) || !enter("e", true) || enter("e", false) {
		t.Error("a source whose connections have all shown good tokens got one more place than it has")
	}
}
