package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
)

// Each term has one event that names its leader, even if the leader repeats LeaderBegin. Only the leader of the current
// term may send this command.
func TestLeaderIsToldOncePerTerm(t *testing.T) {
	s := NewState()
	apply := func(term uint64, actor model.Actor, c *LeaderBegin) *model.Error {
		t.Helper()
		after, results := s.Apply(s.Index+1, term,
			Entry{Format: model.CurrentFormat, At: 1000, Actor: actor, Groups: [][]Command{{c}}})
		s = after
		return results[0].Refusal
	}
	one := &LeaderBegin{Term: 3, Server: "01A", Name: "s1"}
	two := &LeaderBegin{Term: 4, Server: "01B", Name: "s2"}
	wantCode(t, "by a person", apply(3, "cli:ann", one), model.CodeForbidden)
	wantCode(t, "by an agent", apply(3, model.ActorAgents, one), model.CodeForbidden)
	wantCode(t, "the first leader", apply(3, model.ActorLeader, one), "")
	wantCode(t, "again", apply(3, model.ActorLeader, one), "")
	wantCode(t, "in an earlier term", apply(3, model.ActorLeader, two), model.CodeStaleTerm)
	wantCode(t, "another leader", apply(4, model.ActorLeader, two), "")
	wantCode(t, "the first one late", apply(4, model.ActorLeader, one), model.CodeStaleTerm)
	wantCode(t, "another leader again", apply(4, model.ActorLeader, two), "")
	wantCode(t, "the same leader in a new term",
		apply(5, model.ActorLeader, &LeaderBegin{Term: 5, Server: "01B", Name: "s2"}), "")
	for _, bad := range []LeaderBegin{{Server: "01A"}, {Name: "s1"},
		{Server: "01A", Name: strings.Repeat("x", maxAgentText+1)}} {
		bad.Term = 6
		wantCode(t, fmt.Sprintf("%.60v", bad), apply(6, model.ActorLeader, &bad), model.CodeInvalid)
	}

	var words []string
	for _, e := range s.Events.All() {
		words = append(words, fmt.Sprintf("%s %s %s>%s %v by %s", e.Type, e.Subject, e.Before, e.After, e.Data, e.Actor))
	}
	want := []string{
		"leader.changed cluster >s1 map[server:01A term:3] by leader",
		"leader.changed cluster s1>s2 map[server:01B term:4] by leader",
		"leader.changed cluster s2>s2 map[server:01B term:5] by leader",
	}
	if diff := cmp.Diff(want, words); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var buf bytes.Buffer
	if err := WriteSnapshot(&buf, s); err != nil {
		t.Fatal(err)
	}
	back, err := ReadSnapshot(&buf)
	if err != nil || back.Leader != s.Leader {
		t.Errorf("read back as %+v (%v), want %+v", back.Leader, err, s.Leader)
	}
	if err := Check(s); err != nil {
		t.Error(err)
	}
}
