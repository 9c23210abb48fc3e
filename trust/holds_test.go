package trust_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A member whose claims change all the time makes few entries. Its last claim is recorded, and nobody else waits.
func TestClaimsAreFewEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRig(t).found(24 * time.Hour)
		s.lead()
		n1, n2 := s.joinNode("n1"), s.joinNode("n2")
		defer s.run()()
		time.Sleep(10 * time.Second)
		before := s.r.entries()
		claim := pki.RootsDigest(nil)
		for i := range 2000 { // 10 s
			claim = slices.Clone(claim)
			claim[0], claim[1] = byte(i), byte(i>>8)
			s.engine.Holds(n1, claim, nil)
			time.Sleep(5 * time.Millisecond)
		}
		if n := s.r.entries() - before; n < 2 || n > 5 {
			t.Errorf("10 s of claims of one agent made %d entries", n)
		}
		recorded := func(who model.Subject) bool {
			row, _ := s.machine.Current().TrustMemberOf(who)
			return string(row.Roots) == string(claim)
		}
		s.engine.Holds(n2, claim, nil)
		time.Sleep(200 * time.Millisecond)
		if !recorded(n2) {
			t.Error("the claim of another agent waits")
		}
		time.Sleep(4 * time.Second)
		if !recorded(n1) {
			t.Error("the last claim is not recorded")
		}
	})
}

// A claim waits at a server that does not reach the leader. Meanwhile the member claims other keys at another server.
// The claim that has waited does not put the row back.
func TestClaimThatWaitedIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s1 := r.found(24 * time.Hour)
		s1.lead()
		s2 := s1.joinServer("s2", 24*time.Hour)
		n1 := s1.joinNode("n1")
		defer s1.run()()
		defer s2.run()()
		time.Sleep(10 * time.Second)
		old, newer := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
		roots := func() []byte {
			row, _ := s1.machine.Current().TrustMemberOf(n1)
			return row.Roots
		}
		lose := func(lost func(to, question string) error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.lost = lost
		}
		lose(func(_, question string) error {
			if question == "trust-holds" {
				return errors.New("lost")
			}
			return nil
		})
		s2.engine.Holds(n1, old, nil)
		time.Sleep(5 * time.Second)
		s1.engine.Holds(n1, newer, nil)
		time.Sleep(5 * time.Second)
		if !bytes.Equal(roots(), newer) {
			t.Fatalf("the row has %x", roots())
		}
		lose(nil)
		for range 30 {
			if time.Sleep(time.Second); !bytes.Equal(roots(), newer) {
				t.Fatalf("the row has %x again", roots())
			}
		}
		s2.engine.Holds(n1, old, nil)
		if time.Sleep(5 * time.Second); !bytes.Equal(roots(), old) {
			t.Errorf("a claim that was made later is not recorded: %x", roots())
		}
	})
}

// entries returns the length of the log.
func (r *rig) entries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.log)
}

// A server says only of itself, and of agents, which keys they use. What changes nothing is not written.
func TestHoldsOfOthers(t *testing.T) {
	r := newRig(t)
	s1 := r.found(time.Hour)
	s1.lead()
	s2 := s1.joinServer("s2", time.Hour)
	s1.agentFiles("n1")
	digest := bytes.Repeat([]byte{1}, 32)
	say := func(who model.Subject) error {
		body := must(transport.EncodeCBOR([]fsm.MemberHolds{{Subject: who, Roots: digest}}))(t)
		_, err := s2.AskPeer(t.Context(), "s1", "trust-holds", body)
		return err
	}
	wantCode(t, say(who(model.SubjectServer, "s1")), model.CodeForbidden)
	for _, subject := range []model.Subject{who(model.SubjectServer, "s2"), who(model.SubjectAgent, "n1")} {
		if err := say(subject); err != nil {
			t.Errorf("%s: %v", subject, err)
		}
		if row, _ := s1.machine.Current().TrustMemberOf(subject); !bytes.Equal(row.Roots, digest) {
			t.Errorf("the row of %s has %x", subject, row.Roots)
		}
	}
	entries := len(r.log)
	if err := say(who(model.SubjectAgent, "n1")); err != nil {
		t.Error(err)
	}
	if err := say(who(model.SubjectAgent, "nobody")); err != nil {
		t.Error(err)
	}
	if len(r.log) != entries {
		t.Errorf("%d entries more", len(r.log)-entries)
	}
}
