package trust_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
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

// entries returns the length of the log.
func (r *rig) entries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.log)
}
