package local

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// pending is what a server answers while a person has to approve the newcomer.
func pending() error {
	return model.Refuse(model.CodeApprovalPending, "agent:x1 with the key 3f2a waits").
		WithHint("on a server: outspan node approve x1")
}

// answers makes the gate answer with these errors, one after the other. The last one stays.
func (g *gate) answers(all ...error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	g.edit = func(*transport.JoinReply) { g.fail = all[min(n, len(all)-1)]; n++ }
}

func (g *gate) asked() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.keys
}

// A machine that has to be approved says so once, and asks again with the same key until it is approved, also while no
// server is able to answer for a moment.
func TestJoinWaitsForApproval(t *testing.T) {
	g := newGate(t)
	g.answers(pending(), pending(), model.Refuse(model.CodeNotCaughtUp, "away"), pending(), nil)
	o := g.newcomer(t, pki.RoleAgent)
	o.wait, o.askEvery = time.Minute, time.Millisecond
	var out, notes bytes.Buffer
	console := consoleAt(&out, 0)
	console.Err = &notes
	console.Output = term.OutputFlags{Asked: true} // also with --json
	if err := runJoin(t.Context(), console, SetupCalls{}, o); err != nil {
		t.Fatal(err)
	}
	keys := g.asked()
	if len(keys) != 5 || keys[0] != keys[4] {
		t.Errorf("it asked with %v", keys)
	}
	n, says := strings.Count(notes.String(), "outspan node approve x1"), strings.Contains(notes.String(), "3f2a waits")
	if n != 1 || !says {
		t.Errorf("it says %d times: %s", n, &notes)
	}
}

// The wait ends with --wait, with a rejection, and with the token. Without --wait there is none.
func TestJoinStopsWaiting(t *testing.T) {
	for name, test := range map[string]struct {
		wait    time.Duration
		answers []error
		code    model.Code
		hint    string
		asked   int // at least
	}{
		"no wait": {0, []error{pending()}, model.CodeApprovalPending, "run the same outspan join again", 1},
		"in vain": {time.Second, []error{pending()}, model.CodeApprovalPending, "outspan node approve x1", 2},
		"rejected": {time.Minute, []error{pending(), model.Refuse(model.CodeApprovalRejected, "no").WithHint("ask")},
			model.CodeApprovalRejected, "ask", 2},
		"expired": {time.Minute, []error{pending(), model.Refuse(model.CodeTokenExpired, "over").WithHint("another")},
			model.CodeTokenExpired, "another", 2},
		"another CA": {time.Minute, []error{pending(), model.Refuse(model.CodeCertificateRefused, "another root")},
			model.CodeCertificateRefused, "outspan token create", 2},
		"other": {time.Minute, []error{model.Refuse(model.CodeNameTaken, "taken").WithHint("another")},
			model.CodeNameTaken, "another", 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			g.answers(test.answers...)
			o := g.newcomer(t, pki.RoleAgent)
			o.wait, o.askEvery = test.wait, time.Millisecond
			_, err := o.run(t, 0)
			wantRefusal(t, err, test.code, "", test.hint)
			if n := len(g.asked()); n < test.asked || test.wait == 0 && n > 1 {
				t.Errorf("it asked %d times", n)
			}
		})
	}
}
