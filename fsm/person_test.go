package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

func personNamed(name string) model.Subject {
	return model.Subject{Kind: model.SubjectCert, Name: name}
}

// admitPerson records a certificate that was signed on the state s.
func admitPerson(s State, name string, key byte) *PersonAdmit {
	return &PersonAdmit{Subject: personNamed(name), Key: hashOf(key), NotAfter: 9000, Number: s.MomentNumber()}
}

func revokePerson(name string) *PersonRevoke {
	return &PersonRevoke{Subject: personNamed(name), Reason: "lost"}
}

// A revocation makes all earlier certificates of a name void, with a row or without, for ever. A later certificate
// counts.
func TestPeople(t *testing.T) {
	const joined, revoked = "person.joined member/cert:alice joined", "person.revoked member/cert:alice revoked"
	s := trustState(t)
	first := admitPerson(s, "alice", 1)
	s = checked(t, s, 1000, "", joined, first)
	s = checked(t, s, 1000, "", joined, admitPerson(s, "alice", 2))
	if p, _ := s.People.Get("alice"); p.Creator != "cli:alice" || p.Key[0] != 2 || p.IssuedIndex != s.Index {
		t.Errorf("the row is %+v", p)
	}
	second := s.MomentNumber()
	if s.PersonVoid("alice", 0) || s.PersonVoid("alice", first.Number) {
		t.Error("a certificate is void without a revocation")
	}
	signed := admitPerson(s, "alice", 3) // is signed before the revocation, and recorded after it
	s = checked(t, s, 1000, "", revoked, revokePerson("alice"))
	s = checked(t, s, 1000, "", "", revokePerson("alice"))
	checked(t, s, 1000, model.CodeStale, "", signed)
	checked(t, s, 1000, model.CodeMemberRevoked, "", admitPerson(s, "alice", 2))
	s = checked(t, s, 1000, "", joined, admitPerson(s, "alice", 4))
	third := s.MomentNumber()
	for number, want := range map[uint64]bool{0: true, first.Number: true, second: true, third: false} {
		if s.PersonVoid("alice", number) != want {
			t.Errorf("number %d is not void: %v", number, want)
		}
	}
	s = checked(t, s, 1000, "", "person.revoked member/cert:bob@example.com revoked", revokePerson("bob@example.com"))
	if !s.PersonVoid("bob@example.com", 0) || s.PersonVoid("carol", 0) {
		t.Error("the revocation of a name without a row holds for another one, or not at all")
	}
}

func TestPeopleRefused(t *testing.T) {
	s := trustState(t)
	for name, c := range map[string]Command{
		"a server":          with(admitPerson(s, "s1", 1), func(c *PersonAdmit) { c.Subject.Kind = model.SubjectServer }),
		"no name":           admitPerson(s, "", 1),
		"everyone":          admitPerson(s, everyone, 1),
		"a long name":       admitPerson(s, strings.Repeat("x", 129), 1),
		"a name with a '/'": admitPerson(s, "a/b", 1),
		"a short key":       with(admitPerson(s, "alice", 1), func(c *PersonAdmit) { c.Key = c.Key[1:] }),
		"no end":            with(admitPerson(s, "alice", 1), func(c *PersonAdmit) { c.NotAfter = 0 }),
		"revoke everyone":   revokePerson(everyone),
		"a long reason":     with(revokePerson("alice"), func(c *PersonRevoke) { c.Reason = strings.Repeat("x", 257) }),
	} {
		t.Run(name, func(t *testing.T) { checked(t, s, 1000, model.CodeInvalid, "", c) })
	}
	checked(t, run(t, NewState(), 1000, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()}), 1000,
		model.CodeNotFound, "", revokePerson("alice"))
}

// A recovered state may have lost revocations, so all certificates of people from before are void. Those that are made
// afterwards count. Old marks without VoidPeople change nothing.
func TestRecoveredPeople(t *testing.T) {
	old := trustState(t)
	old = run(t, old, 1000, admitPerson(old, "alice", 1))
	number := old.MomentNumber()
	s := checked(t, old, 2000, "", "settings.changed cluster 1", &RestoreMark{Recovered: true})
	if s.PersonVoid("alice", number) {
		t.Error("a mark without VoidPeople makes certificates void")
	}
	s = checked(t, old, 2000, "", "settings.changed cluster 1", &RestoreMark{Recovered: true, VoidPeople: true})
	if !s.PersonVoid("alice", number) || !s.PersonVoid("files", 0) {
		t.Error("certificates from before a recovery count")
	}
	checked(t, s, 2000, model.CodeStale, "", &PersonAdmit{personNamed("alice"), hashOf(2), 9000, number})
	after := admitPerson(s, "alice", 2)
	s = checked(t, s, 2000, "", "person.joined member/cert:alice joined", after)
	if s.PersonVoid("alice", after.Number) {
		t.Error("a certificate from after the recovery is void")
	}
	s = checked(t, s, 3000, "", "settings.changed cluster 2", &RestoreMark{Recovered: true, VoidPeople: true})
	if !s.PersonVoid("alice", after.Number) {
		t.Error("a second recovery keeps certificates")
	}
}

// A restore of a snapshot from before a revocation keeps the revocation.
func TestRestoredPeople(t *testing.T) {
	old := trustState(t)
	old = run(t, old, 1000, admitPerson(old, "alice", 1))
	live := run(t, old, 1000, revokePerson("alice"), revokePerson("bob"))
	if s := old.WithTrustOf(live); !s.PersonVoid("alice", old.MomentNumber()) || !s.PersonVoid("bob", 0) {
		t.Error("a restore brings certificates back")
	}
	for _, says := range []string{"person alice: certificates before", "person bob was dropped"} {
		restored := old
		restored.Index = live.Index
		wantFinding(t, CheckTrust(live, restored), S19, says)
	}
}

// At the limit, a newcomer replaces the person whose certificate ended first and at least 90 days ago, and never one
// that was ever revoked.
func TestPeopleAreBounded(t *testing.T) {
	s := *trustState(t).fork()
	s.Wall = 1_700_000_000_000
	end := s.Wall - memberKept
	put := func(name string, notAfter int64, void uint64) {
		s.putPerson(&Person{Subject: personNamed(name), Key: hashOf(9), NotAfter: notAfter, IssuedIndex: 1, VoidBefore: void})
	}
	put("returned", 1, 1)
	put("first", end-1, 0)
	put("last", end, 0)
	for n := range maxPeople - s.People.Len() {
		put(fmt.Sprint("p", n), end+1, 0)
	}
	s = s.fork().publish()
	for _, drops := range []string{"first", "last"} {
		name := "after-" + drops
		c := with(admitPerson(s, name, 1), func(c *PersonAdmit) { c.NotAfter = s.Wall })
		s = run(t, s, 1000, c)
		if s.People.Has(drops) || s.People.Len() != maxPeople {
			t.Errorf("%s is there: %v, of %d people", drops, s.People.Has(drops), s.People.Len())
		}
		s.Wall = 1_700_000_000_000
	}
	checked(t, s, 1000, model.CodeConflict, "", admitPerson(s, "more", 1))
	checked(t, s, 1000, model.CodeConflict, "", revokePerson("more"))
	run(t, s, 1000, revokePerson("p1"))
}
