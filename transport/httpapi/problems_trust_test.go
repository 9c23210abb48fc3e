package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport/httpapi"
)

// replacing is an httpapi.CARotation whose rotation waits for agent:n1.
type replacing struct{ step api.CAStep }

// CAStatus implements httpapi.CARotation.
func (c *replacing) CAStatus(*fsm.State) (api.CA, error) {
	return api.CA{Rotation: &api.CARotation{Step: c.step, Waiting: 1,
		WaitingFor: []api.CAWaiting{{Subject: "agent:n1"}}}}, nil
}

// RotateCA implements httpapi.CARotation.
func (*replacing) RotateCA(*fsm.State, api.RotateCABody) ([]fsm.Command, error) { return nil, nil }

// A rotation of the CA that has waited for members for more than 10 minutes is a problem.
func TestCARotationWaits(t *testing.T) {
	r := newRig(t)
	ca := &replacing{step: api.CADistribute}
	r.startWith("s1", func(c *httpapi.Config) { c.CA = ca })
	r.manage()
	problem := func() string {
		raw, _, err := r.cli().Do(t.Context(), http.MethodGet, "/v1/status", nil, nil)
		var status api.Status
		if err == nil {
			err = json.Unmarshal(raw, &status)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range status.Problems {
			if row.Code == api.ProblemCARotation {
				return row.Message
			}
		}
		return ""
	}
	if got := problem(); got != "" {
		t.Errorf("at once there is a problem: %s", got)
	}
	r.born = r.born.Add(-11 * time.Minute)
	if got := problem(); !strings.HasSuffix(got, "in the step distribute for 1 servers and agents, such as agent:n1") {
		t.Errorf("after 11 minutes the problem is %q", got)
	}
}

// A server that was revoked and removed is shown by gossip for some time. Its silence is no problem, unless it votes.
func TestRevokedServerIsNoProblem(t *testing.T) {
	r := newRig(t, "s1", "s2", "s3")
	r.manage()
	_, token := r.token(map[string]any{"role": "server"})
	r.admit(token, model.SubjectServer, "s3")
	votes := false
	r.shape = func(m *httpapi.ServerEntry) {
		if m.Name == "s3" {
			m.State, m.Voter = "dead", votes
		}
	}
	silent := func() bool {
		return strings.Contains(strings.Join(problemsNow(t, r, ""), "\n"), "server_silent server/s3")
	}
	if !silent() {
		t.Error("a member's silence is no problem")
	}
	r.apply(&fsm.MemberRevoke{Subject: model.Subject{Kind: model.SubjectServer, Name: "s3"}})
	if silent() {
		t.Error("the silence of a server that was revoked is a problem")
	}
	votes = true
	if !silent() {
		t.Error("the silence of a voter is no problem")
	}
}
