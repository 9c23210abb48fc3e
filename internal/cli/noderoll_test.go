package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// rollServer answers as a server with one node n1, which the drains have drained, and which can be taken back.
type rollServer struct {
	drains []api.Drain
	used   bool // n1 was taken back
}

func (s *rollServer) answer(w http.ResponseWriter, r *http.Request) {
	n := api.Node{Name: "n1", DrainID: "R1.1.1", BootID: "b", Eligible: s.used}
	if n.Intent, n.Health = model.IntentDraining, model.HealthOnline; s.used {
		n.Intent = model.IntentActive
	}
	var v any = map[string]any{"items": []any{}}
	switch path := r.URL.Path; {
	case path == "/v1/auth/whoami":
		v = api.Identity{Subject: "cert:alice"}
	case path == "/v1/drains":
		v = map[string]any{"items": s.drains}
	case strings.HasPrefix(path, "/v1/drains/"):
		v = s.drains[0]
	case strings.HasSuffix(path, "/uncordon"):
		s.used, v = true, map[string]any{}
	case path == "/v1/nodes/n1":
		v = n
	}
	_ = json.NewEncoder(w).Encode(v)
}

// step returns a drain of n1 as a step of the roll R1, which runs a command that makes a file.
func step(actor model.Actor, index uint64, file string, nodes ...string) api.Drain {
	return api.Drain{ID: model.DrainID(fmt.Sprintf("R1.1.%d", index)), Actor: actor, Index: index,
		Phase: model.PhaseDrained,
		Nodes: []api.DrainNode{{Node: "n1", Phase: model.PhaseDrained, BootID: "b"}},
		Options: model.DrainOptions{Deadline: model.Hour,
			Roll: &model.Roll{ID: "R1", Nodes: nodes, Exec: "touch " + file, NoReboot: true}}}
}

// A roll that the caller can't see whole is not resumed: the word in place of its command is no command.
func TestResumeOfWhatIsHidden(t *testing.T) {
	s := &rollServer{drains: []api.Drain{step("cert:alice", 1, "none", "n1")}}
	s.drains[0].Options.Roll.Exec = "hidden"
	out, errs, code := runHere(t, serve(t, s.answer), "node", "roll", "--resume", "R1", "--within", "20s")
	if code != 2 || !strings.Contains(errs, "you may not see all of this roll") || s.used {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

// Whoever resumes a roll runs its own command only. That of somebody else it must repeat, and drains of others with
// other nodes say nothing about the roll.
func TestResumeRunsNoStrangersCommand(t *testing.T) {
	for name, test := range map[string]struct {
		first  model.Actor // began the roll, to make the file good
		second []string    // nodes of the roll by a later drain of mallory, to make the file evil; nil: there is none
		args   string
		code   int
		says   string
		made   string // the file that was made
	}{
		"own":                {first: "cert:alice", made: "good"},
		"own before mallory": {first: "cert:alice", second: []string{"n1"}, made: "good"},
		"other nodes": {first: "cert:alice", second: []string{"n1", "n2"}, made: "good",
			says: `drain R1.1.2 of "cert:mallory"`},
		"of mallory":              {first: "cert:mallory", code: 2, says: `from "cert:mallory": "touch `},
		"of mallory and repeated": {first: "cert:mallory", args: "--exec=touch evil", made: "evil"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := &rollServer{drains: []api.Drain{step(test.first, 1, filepath.Join(dir, "good"), "n1")}}
			if test.second != nil {
				s.drains = append(s.drains, step("cert:mallory", 2, filepath.Join(dir, "evil"), test.second...))
				s.drains[1].Nodes[0].Node = "n2"
			}
			args := []string{"node", "roll", "--resume", "R1", "--within", "20s"}
			if test.args != "" {
				args = append(args, strings.Replace(test.args, "evil", filepath.Join(dir, "evil"), 1))
			}
			out, errs, code := runHere(t, serve(t, s.answer), args...)
			if code != test.code || !strings.Contains(errs, test.says) {
				t.Errorf("exit code %d, want %d and %q\n%s%s", code, test.code, test.says, out, errs)
			}
			made, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range made {
				got += f.Name()
			}
			if got != test.made {
				t.Errorf("made %q, want %q", got, test.made)
			}
		})
	}
}
