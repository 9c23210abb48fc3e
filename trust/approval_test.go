package trust_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// needApproval turns the setting join_approval on.
func (s *site) needApproval() {
	s.r.t.Helper()
	settings := s.machine.Current().Settings
	settings.JoinApproval = true
	s.do(&fsm.SettingsSet{Settings: settings})
}

// waiting returns the only newcomer of a name.
func (s *site) waiting(name string) *fsm.Newcomer {
	s.r.t.Helper()
	all := s.machine.Current().NewcomersNamed(name)
	if len(all) != 1 {
		s.r.t.Fatalf("%d newcomers %s", len(all), name)
	}
	return all[0]
}

func (s *site) approve(name string) {
	s.r.t.Helper()
	n := s.waiting(name)
	s.do(&fsm.NewcomerApprove{Newcomer: n.Subject(), Key: n.Key(), Index: n.Index})
}

// A newcomer waits until a person approves it, however often it asks, and by way of any server. It has one entry in the
// log. Its server and its agent are approved together.
func TestJoinWaitsForApproval(t *testing.T) {
	r := newRig(t)
	s1 := r.found(time.Hour)
	s1.lead()
	s2 := s1.joinServer("s2", time.Hour)
	s1.needApproval()
	for _, asked := range []*site{s1, s2} {
		t.Run("by way of "+asked.name, func(t *testing.T) {
			name := "new-" + asked.name
			token := s1.token(pki.RoleServer)
			server, serverLeaf := request(t, pki.RoleServer, name)
			agent, agentLeaf := request(t, pki.RoleAgent, name)
			q := transport.JoinRequest{Server: server, Agent: agent, Address: "10.0.0.9:7640", Version: "1.2"}
			before := len(r.log)
			for range 3 {
				_, err := asked.join(token, q)
				wantCode(t, err, model.CodeApprovalPending)
				key := model.Fingerprint(s1.waiting(name).Key())
				if text := err.Error(); !strings.Contains(text, key) || !strings.Contains(text, "outspan server approve "+name) {
					t.Errorf("it says %q", text)
				}
			}
			if len(r.log) != before+1 {
				t.Errorf("%d entries in the log", len(r.log)-before)
			}
			row := s1.waiting(name)
			if !strings.HasPrefix(row.Address, "127.0.") || row.Version != "1.2" || row.Subject() != who("server", name) {
				t.Errorf("the row is %+v", row)
			}
			s1.approve(name)
			reply := must(asked.join(token, q))(t)
			serverLeaf(reply.Server)
			agentLeaf(reply.Agent)
			must(asked.join(token, q))(t) // the answer was lost
			left, _ := s1.machine.Current().JoinTokens.Get(model.TokenID(token.ID()))
			if left.Used != 1 || len(s1.machine.Current().NewcomersNamed(name)) != 0 {
				t.Errorf("%d uses, and the newcomer still waits", left.Used)
			}
		})
	}
}

// The approval of one key admits no other, and none once the token is revoked. A rejected newcomer does not wait.
func TestApprovalAdmitsOneKey(t *testing.T) {
	s := newRig(t).found(time.Hour)
	s.lead()
	s.needApproval()
	token := s.token(pki.RoleAgent, func(c *fsm.TokenCreate) { c.Uses = 2 })
	ask := func(der []byte) error {
		_, err := s.join(token, transport.JoinRequest{Agent: der})
		return err
	}
	first, _ := request(t, pki.RoleAgent, "n1")
	other, _ := request(t, pki.RoleAgent, "n1")
	wantCode(t, ask(first), model.CodeApprovalPending)
	s.approve("n1")
	wantCode(t, ask(other), model.CodeApprovalPending)
	wantCode(t, ask(other), model.CodeApprovalPending)
	for _, n := range s.machine.Current().NewcomersNamed("n1") {
		if n.ApprovedIndex == 0 {
			s.do(&fsm.NewcomerReject{Newcomer: n.Subject(), Key: n.Key(), Index: n.Index})
		}
	}
	wantCode(t, ask(other), model.CodeApprovalRejected)
	s.do(&fsm.TokenRevoke{ID: model.TokenID(token.ID())})
	wantCode(t, ask(first), model.CodeTokenRevoked)
}

// A machine that asks with ever new keys can't fill the log.
func TestWaitingIsBounded(t *testing.T) {
	r := newRig(t)
	s := r.found(time.Hour)
	s.lead()
	s.needApproval()
	token := s.token(pki.RoleServer)
	server, _ := request(t, pki.RoleServer, "s9")
	ask := func() error {
		agent, _ := request(t, pki.RoleAgent, "s9")
		_, err := s.join(token, transport.JoinRequest{Server: server, Agent: agent, Address: "10.0.0.9:7640"})
		return err
	}
	before := len(r.log)
	limited := false
	for range 40 {
		err := ask()
		limited = limited || codeOf(err) == model.CodeRateLimited
	}
	if !limited || len(r.log)-before > 30 {
		t.Errorf("40 requests with new keys made %d entries", len(r.log)-before)
	}
	other, _ := request(t, pki.RoleAgent, "n1")
	_, err := s.join(token, transport.JoinRequest{Agent: other})
	wantCode(t, err, model.CodeTokenUsed) // the one use of the token is spoken for
}
