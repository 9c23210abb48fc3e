package cluster

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/pki"
)

// madeUp returns an invented member, as an attacker with the gossip key could announce. i chooses its name and address.
func madeUp(t *testing.T, p *Pool, i int, role pki.Role) *memberlist.Node {
	t.Helper()
	meta, err := p.codec.encodeMeta(Meta{Role: role, Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	address := net.IPv4(10, 0, byte(i>>8), byte(i))
	return &memberlist.Node{Name: fmt.Sprintf("x%06d", i), Addr: address, Port: 7642, Meta: meta}
}

// A pool knows at most maxMembers members, however many are announced. A full pool forgets dead members to make room,
// and always accepts voters.
func TestPoolIsBounded(t *testing.T) {
	p := openTestPool(t, "a")
	say := func(i int, state fsm.Gossip) {
		if n := madeUp(t, p, i, pki.RoleAgent); (gossipBounds{p}).NotifyAlive(n) == nil {
			p.seen(n, state)
		}
	}
	for i := range maxMembers + 500 {
		say(i, fsm.GossipAlive)
	}
	if got := len(p.Members()); got != maxMembers {
		t.Fatalf("%d members are known, at most %d may be", got, maxMembers)
	}
	if err := (gossipBounds{p}).NotifyAlive(madeUp(t, p, 7, pki.RoleAgent)); err != nil {
		t.Errorf("a known member is refused: %v", err)
	}
	full := openTestPool(t, "b")
	if err := full.Join(p.Address()); err != nil { // memberlist reports no error for a refusal
		t.Fatal(err)
	}
	if _, known := p.Member("b"); known || p.list.NumMembers() != 1 {
		t.Errorf("a full pool took one more member, memberlist knows %d", p.list.NumMembers())
	}
	p.Want([]string{"b"})
	if err := full.Join(p.Address()); err != nil {
		t.Fatal(err)
	}
	// memberlist answers Join before it takes in what Join brought.
	eventually(t, 10*time.Second, "the voter to be taken in", func() bool { _, known := p.Member("b"); return known })
	for i := range 100 {
		p.seen(madeUp(t, p, i, pki.RoleAgent), fsm.GossipDead)
	}
	time.Sleep(sweepEvery) // the sockets are real, so time can't be faked
	if say(maxMembers+1000, fsm.GossipAlive); len(p.Members()) > maxMembers {
		t.Errorf("%d members are known", len(p.Members()))
	}
	if _, known := p.Member(fmt.Sprintf("x%06d", maxMembers+1000)); !known {
		t.Error("the dead make no room")
	}
	long := madeUp(t, p, 1, pki.RoleAgent)
	long.Name = strings.Repeat("x", maxMetaID+1)
	if err := (gossipBounds{p}).NotifyAlive(long); err == nil {
		t.Error("a long name is taken in")
	}
}

// Many invented servers that gossip shows as dead can't keep a pool from contacting the members that it wants. The pool
// contacts only a few of the invented servers.
func TestRejoinIsBounded(t *testing.T) {
	p := openTestPool(t, "a")
	for i := range 1000 {
		p.seen(madeUp(t, p, i, pki.RoleServer), fsm.GossipDead)
	}
	p.Want([]string{"x000999"})
	got := p.missing(t.Context())
	wanted := madeUp(t, p, 999, pki.RoleServer).Address()
	if len(got) > 1+16+3 || !strings.Contains(strings.Join(got, " "), wanted) {
		t.Errorf("it contacts %d addresses, %v", len(got), got[:min(5, len(got))])
	}
}
