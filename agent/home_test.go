package agent

import (
	"errors"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
)

// A node follows a lineage that replaces its own, and never returns to an earlier lineage, also after a restart of its
// agent.
func TestPinLineage(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		answered string
		follows  string
	}{
		{"C", "C"},
		{"C", "C"},
		{"D", "C"},
		{"C/l1", "C/l1"},
		{"C", "C/l1"},
		{"C/x", "C/l1"},
		{"C/l1,l2,l3", "C/l1,l2,l3"},
		{"C/l1,l2", "C/l1,l2,l3"},
		{"C/x,l3,x4", "C/x,l3,x4"},
		{"/", "C/x,l3,x4"},
	} {
		h, err := openHome(dir, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		err = h.followCluster(step.answered)
		if wanted := step.answered == step.follows; (err == nil) != wanted {
			t.Errorf("%s answered: %v, follows %s", step.answered, err, step.follows)
		}
		var refusal *model.Error
		if err != nil &&
			(!errors.As(err, &refusal) || refusal.Code != model.CodeConflict && refusal.Code != model.CodeInvalid) {
			t.Errorf("%s answered: %v", step.answered, err)
		}
		h.close()
		if h, err = openHome(dir, hclog.NewNullLogger()); err != nil {
			t.Fatal(err)
		}
		if got := h.cluster(); got != step.follows {
			t.Errorf("after %s: follows %s, want %s", step.answered, got, step.follows)
		}
		h.close()
	}
}

// If the servers refuse an agent because another agent runs its node, the refusal is recorded on disk until they accept
// the agent. Other errors change nothing on disk.
func TestRefusalIsNoted(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		name    string
		answer  error
		refused bool
	}{
		{name: "no server answers", answer: errors.New("connection refused")},
		{name: "another node has the name", answer: model.Refuse(model.CodeNameTaken, "the name n1 belongs to the node 01X")},
		{name: "another agent is that of the node", answer: model.Refuse(model.CodeNodeTaken, "node n1 is in use"),
			refused: true},
		{name: "no server answers then", answer: errors.New("connection refused"), refused: true},
		{name: "taken"},
	} {
		h, err := openHome(dir, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		if err := h.noteAnswer(step.answer); err != nil || h.refused() != step.refused {
			t.Errorf("%s: refused %v, error %v", step.name, h.refused(), err)
		}
		h.close()
	}
}
