package transport

import (
	"fmt"
	"net"
	"testing"
)

// Newcomers of one IPv6 address get 4 places and those of its network 16. Those of one IPv4 address get 16, because
// many machines may share it. Places that were given back are used again.
func TestPlacesOfNewcomers(t *testing.T) {
	account := newJoinBudget()
	var open []*gate
	enter := func(host string) bool {
		a := &net.TCPAddr{IP: net.ParseIP(host), Port: 1000 + len(open)}
		g := &gate{source: SourceOf(a), host: HostOf(a)}
		if !account.add(g, g.source) {
			return false
		}
		open = append(open, g)
		return true
	}
	many := func(host string) (n int) {
		for enter(host) {
			n++
		}
		return n
	}
	for _, step := range []struct {
		host string
		want int
	}{
		{"2001:db8:0:1::1", 4}, {"2001:db8:0:1::1", 0}, {"2001:db8:0:1::2", 4}, {"2001:db8:0:1::3", 4},
		{"2001:db8:0:1::4", 4}, {"2001:db8:0:1::5", 0}, {"2001:db8:0:2::1", 4}, {"10.0.0.1", 16}, {"::ffff:10.0.0.1", 0},
	} {
		if got := many(step.host); got != step.want {
			t.Errorf("%s got %d places, want %d", step.host, got, step.want)
		}
	}
	account.remove(open[0])
	if enter("2001:db8:0:1::2") || !enter("2001:db8:0:1::1") || enter("2001:db8:0:1::1") {
		t.Error("the place that was given back is not the first address's")
	}
	for i := range 7 {
		many(fmt.Sprintf("10.0.1.%d", i))
	}
	if got := len(open) - 1; got != maxJoin {
		t.Errorf("%d places in all, want %d", got, maxJoin)
	}
	for _, g := range open {
		account.remove(g)
	}
	if len(account.open)+len(account.peers)+len(account.hosts) != 0 {
		t.Errorf("still counted: %v, %v, %v", account.open, account.peers, account.hosts)
	}
}
