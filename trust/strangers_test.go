package trust_test

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A source that was refused ten times waits, and all addresses of an IPv6 network are one source. A good token does not
// wait for others there. If it is refused ten times itself, it waits, but only at that address.
func TestRefusedSourcesWait(t *testing.T) {
	s := newRig(t).found(time.Hour)
	s.lead()
	der, _ := request(t, pki.RoleAgent, "n1")
	taken, _ := request(t, pki.RoleAgent, "s1")
	q, bad := transport.JoinRequest{Agent: der}, transport.JoinRequest{Agent: taken}
	from := func(network, host int) net.Addr {
		return &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("2001:db8:0:%x::%x", network, host)), Port: 1000 + host}
	}
	unknown := s.unknownToken(pki.RoleAgent)
	for i := range 10 {
		_, err := s.joinFrom(from(1, i+1), unknown, q)
		wantCode(t, err, model.CodeTokenInvalid)
	}
	_, err := s.joinFrom(from(1, 99), unknown, q)
	wantCode(t, err, model.CodeRateLimited)
	gone := s.token(pki.RoleAgent)
	s.do(&fsm.TokenRevoke{ID: model.TokenID(gone.ID())})
	_, err = s.joinFrom(from(1, 99), gone, q)
	wantCode(t, err, model.CodeRateLimited)
	good := s.token(pki.RoleAgent, func(c *fsm.TokenCreate) { c.Uses = 2 })
	must(s.joinFrom(from(1, 1), good, q))(t)
	if _, err := s.joinFrom(from(2, 1), pki.JoinToken{}, q); codeOf(err) != model.CodeInvalid {
		t.Errorf("a damaged token: %v", err)
	}
	for range 10 {
		_, err := s.joinFrom(from(1, 2), good, bad)
		wantCode(t, err, model.CodeNameTaken)
	}
	_, err = s.joinFrom(from(1, 2), good, bad)
	wantCode(t, err, model.CodeRateLimited)
	der2, _ := request(t, pki.RoleAgent, "n2")
	must(s.joinFrom(from(1, 3), good, transport.JoinRequest{Agent: der2}))(t)
	eventually(t, "later the source may ask again", func() bool {
		_, err := s.joinFrom(from(1, 99), unknown, q)
		return codeOf(err) == model.CodeTokenInvalid
	})
}

// A token that is spent admits its machine again, but not as often as one asks: each time costs signatures.
func TestRepeatedJoinsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s1 := r.found(time.Hour)
		s1.lead()
		s2 := s1.joinServer("s2", time.Hour)
		token, other := s1.token(pki.RoleAgent), s1.token(pki.RoleAgent)
		der, _ := request(t, pki.RoleAgent, "n1")
		q := transport.JoinRequest{Agent: der}
		must(s1.join(token, q))(t)
		repeated := func(n int) (done int) {
			for i := range n {
				_, err := []*site{s1, s2}[i%2].join(token, q)
				if err == nil {
					done++
				} else {
					wantCode(t, err, model.CodeRateLimited)
				}
			}
			return done
		}
		if got := repeated(30); got != 10 {
			t.Errorf("%d of 30 repeated joins were answered, want 10", got)
		}
		der2, _ := request(t, pki.RoleAgent, "n2")
		for range 2 {
			must(s1.join(other, transport.JoinRequest{Agent: der2}))(t)
		}
		time.Sleep(3 * time.Second)
		if got := repeated(30); got != 3 {
			t.Errorf("3 s later %d of 30 repeated joins were answered, want 3", got)
		}
	})
}

// The token is looked at before everything else that costs time, and a follower that knows the token asks nobody. So
// strangers take no place of a newcomer.
func TestTokenIsLookedAtFirst(t *testing.T) {
	r := newRig(t)
	s1 := r.found(time.Hour)
	s1.lead()
	s2 := s1.joinServer("s2", time.Hour)
	unknown := s1.unknownToken(pki.RoleAgent)
	damaged := transport.JoinRequest{Agent: []byte("no request")}
	for _, asked := range []*site{s1, s2} {
		_, err := asked.join(unknown, damaged)
		wantCode(t, err, model.CodeTokenInvalid)
	}
	gone := s1.token(pki.RoleAgent)
	s1.do(&fsm.TokenRevoke{ID: model.TokenID(gone.ID())})
	before := s2.asked
	_, err := s2.join(gone, damaged)
	wantCode(t, err, model.CodeTokenRevoked)
	if s2.asked != before {
		t.Error("the leader was asked about a token that was revoked")
	}
	token := s1.token(pki.RoleAgent, func(c *fsm.TokenCreate) { c.Uses = 100 })
	entered, release := make(chan struct{}, 100), make(chan struct{})
	r.before = func() error { entered <- struct{}{}; <-release; return nil }
	ended := make(chan error, 100)
	for i := range 32 {
		der, _ := request(t, pki.RoleAgent, fmt.Sprint("n", i))
		go func() {
			_, err := s1.join(token, transport.JoinRequest{Agent: der})
			ended <- err
		}()
	}
	for range 32 {
		select {
		case <-entered:
		case <-time.After(20 * time.Second):
			t.Fatal("fewer than 32 joins were begun")
		}
	}
	_, err = s1.join(unknown, damaged)
	wantCode(t, err, model.CodeTokenInvalid)
	close(release)
	for range 32 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
