package invariant

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func hash(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func agentNamed(name string) model.Subject {
	return model.Subject{Kind: model.SubjectAgent, Name: name}
}

func serverNamed(name string) model.Subject {
	return model.Subject{Kind: model.SubjectServer, Name: name}
}

func createToken(id model.TokenID, role model.SubjectKind, uses int) *fsm.TokenCreate {
	return &fsm.TokenCreate{ID: id, Role: string(role), Verifier: hash('v'), TTL: model.Hour, Uses: uses}
}

func admit(who model.Subject, key byte, token model.TokenID) *fsm.MemberAdmit {
	return &fsm.MemberAdmit{Subject: who, Key: hash(key), NotAfter: 1000, Token: token, Verifier: hash('v')}
}

func renew(who model.Subject, old, key byte) *fsm.MemberRenew {
	return &fsm.MemberRenew{Subject: who, Old: hash(old), Key: hash(key), NotAfter: 2000}
}

const older, younger, servers, spentOut model.TokenID = "older0000000", "younger00000", "servers00000", "spent0000000"

// newTrustFixture has the agents n1 to n4: n1 has renewed its certificate once, n2 was revoked, n3 was revoked and is
// back, n4 has spent the only use of a token.
func newTrustFixture(t *testing.T) *historyFixture {
	d := newHistoryFixture(t)
	d.apply("cli:x", createToken(older, model.SubjectAgent, 5), createToken(servers, model.SubjectServer, 5),
		createToken(spentOut, model.SubjectAgent, 1))
	d.apply("cli:x", admit(agentNamed("n1"), 1, older), admit(agentNamed("n2"), 2, older),
		admit(agentNamed("n3"), 3, older))
	d.apply("cli:x", admit(agentNamed("n4"), 4, spentOut))
	d.apply("cli:x", renew(agentNamed("n1"), 1, 11))
	d.apply("cli:x", renew(agentNamed("n1"), 11, 12))
	d.apply("cli:x", &fsm.MemberRevoke{Subject: agentNamed("n2")}, &fsm.MemberRevoke{Subject: agentNamed("n3")})
	d.apply("cli:x", createToken(younger, model.SubjectAgent, 5))
	d.apply("cli:x", admit(agentNamed("n3"), 31, younger))
	return d
}

// Good histories: a repeated admission costs no use, and a server pays for its agent. A server without a row becomes a
// member by renewing.
func TestAdmissionsThatAreRight(t *testing.T) {
	d := newTrustFixture(t)
	d.apply("cli:x", admit(agentNamed("n3"), 31, younger), admit(agentNamed("n3"), 31, younger))
	d.apply("cli:x", admit(serverNamed("s1"), 5, servers), admit(agentNamed("s1"), 6, servers))
	d.apply("cli:x", renew(serverNamed("s2"), 7, 8), renew(serverNamed("s2"), 8, 9))
	d.apply("cli:x", renew(agentNamed("n1"), 11, 13), renew(agentNamed("n1"), 13, 13), renew(agentNamed("n1"), 13, 14))
	d.apply("cli:x", &fsm.MemberRevoke{Subject: agentNamed("n1")}, &fsm.MemberRevoke{Subject: agentNamed("n2")})
	d.apply("cli:x", createToken("newest000000", model.SubjectAgent, 1))
	d.apply("cli:x", admit(agentNamed("n2"), 21, "newest000000"))
	if used, _ := d.state.JoinTokens.Get(servers); used.Used != 1 {
		t.Errorf("a server and its agent spent %d uses", used.Used)
	}
}

// Each case shows the judge an entry in which a command was taken that must be refused, or a row that the entry should
// have changed. The judge must name it without the checks of fsm.
func TestAdmissionsThatAreWrong(t *testing.T) {
	taken := func(c fsm.Command) func(*historyFixture) *Step { // as if the state had accepted c
		return func(d *historyFixture) *Step {
			s := d.entry("cli:x", &fsm.NodeIntent{ID: "n2", Intent: model.IntentCordoned})
			s.Entry.Groups = [][]fsm.Command{{c}}
			return s
		}
	}
	lessUsed := func(id model.TokenID, group ...fsm.Command) func(*historyFixture) *Step { // as if a use had cost nothing
		return func(d *historyFixture) *Step {
			s := d.entry("cli:x", group...)
			token, _ := s.After.JoinTokens.Get(id)
			token.Used--
			return s
		}
	}
	for name, test := range map[string]struct {
		spoil func(*historyFixture) *Step
		want  string
	}{
		"a spent token":            {taken(admit(agentNamed("n5"), 5, spentOut)), "admitted 1 members"},
		"no token":                 {taken(admit(agentNamed("n5"), 5, "none00000000")), "does not exist"},
		"a revoked token":          {taken(admit(agentNamed("n5"), 5, older)), "which was revoked at index"},
		"an older token":           {taken(admit(agentNamed("n2"), 21, spentOut)), "and admitted by the token"},
		"the key of a revoked one": {taken(admit(agentNamed("n2"), 2, younger)), "with the same key"},
		"a name in use":            {taken(admit(agentNamed("n4"), 5, younger)), "with another key than that"},
		"a replaced key":           {taken(renew(agentNamed("n1"), 1, 13)), "with a key that was replaced"},
		"the key before":           {taken(renew(agentNamed("n3"), 3, 32)), "with a key that was replaced"},
		"a revoked member renews":  {taken(renew(agentNamed("n2"), 2, 21)), "and renewed its certificate"},
		"no member renews":         {taken(renew(agentNamed("n9"), 1, 2)), "is no member"},
		"an expired token": {func(d *historyFixture) *Step {
			d.state.Now = d.state.Now.Add(model.Hour)
			return taken(admit(agentNamed("n5"), 5, younger))(d)
		}, "which expired at"},
		"a use that is not counted": {lessUsed(younger, admit(agentNamed("n5"), 5, younger)), "admitted 1 members"},
		"a server that pays for another agent": {lessUsed(servers, admit(serverNamed("s1"), 5, servers),
			admit(agentNamed("s2"), 6, servers)), "admitted 2 members"},
		"a server that pays by another token": {lessUsed(younger, admit(serverNamed("s1"), 5, servers),
			admit(agentNamed("s1"), 6, younger)), "token younger00000 admitted 1 members"},
		"a key that the member no longer needs": {func(d *historyFixture) *Step {
			s := taken(renew(agentNamed("n1"), 12, 12))(d)
			s.Entry.Groups = append(s.Entry.Groups, []fsm.Command{renew(agentNamed("n1"), 11, 13)})
			s.Results = append(s.Results, s.Results[0])
			return s
		}, "with a key that was replaced"},
		"an agent that pays for itself": {func(d *historyFixture) *Step {
			s := d.entry("cli:x", admit(serverNamed("s1"), 5, servers), admit(agentNamed("s1"), 6, servers))
			s.Entry.Groups = [][]fsm.Command{{admit(serverNamed("s1"), 5, servers)}, {admit(agentNamed("s1"), 6, servers)}}
			s.Results = append(s.Results, s.Results[0])
			return s
		}, "admitted 2 members"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTrustFixture(t)
			var found fsm.Findings
			d.judge.admissions(&found, test.spoil(d))
			if !slices.ContainsFunc(found, func(f fsm.Finding) bool {
				return f.Invariant == fsm.S19 && strings.Contains(f.Text, test.want)
			}) {
				t.Errorf("found %v, want %q", found, test.want)
			}
		})
	}
}

// Resume finds what a restore brought back.
func TestResumeFindsWhatCameBack(t *testing.T) {
	d := newTrustFixture(t)
	old := d.state
	d.apply("cli:x", &fsm.MemberRevoke{Subject: agentNamed("n1")})
	live := d.state
	restored := func(s fsm.State) *fsm.State {
		s.Index = live.Index
		after, _ := s.Apply(live.Index+1, 1, fsm.Entry{Format: s.Format, At: live.Now,
			Groups: [][]fsm.Command{{&fsm.RestoreMark{}}}})
		return &after
	}
	if found := Resume(&live, restored(old.WithTrustOf(live))); len(found) > 0 {
		t.Errorf("a good restore: %v", found)
	}
	if found := Resume(&live, restored(old)); found.First() != fsm.S19 {
		t.Errorf("a revoked member came back, found %v", found)
	}
}
