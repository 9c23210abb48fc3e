package trust_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A server and its agent join with one use of a token, by way of any server, and get all that they need. A repeated
// request gets certificates again and costs nothing, even after the token has ended.
func TestJoin(t *testing.T) {
	r := newRig(t)
	s1 := r.found(time.Hour)
	s1.lead()
	s2 := s1.joinServer("s2", time.Hour)
	for _, asked := range []*site{s1, s2} {
		t.Run("by way of "+asked.name, func(t *testing.T) {
			name := "new-" + asked.name
			token := s1.token(pki.RoleServer)
			server, serverLeaf := request(t, pki.RoleServer, name)
			agent, agentLeaf := request(t, pki.RoleAgent, name)
			q := transport.JoinRequest{Server: server, Agent: agent, Address: "10.0.0.9:7640"}
			for i := range 3 {
				reply := must(asked.join(token, q))(t)
				for _, one := range []struct {
					cert interface{ VerifyHostname(string) error }
					host string
					good bool
				}{
					{serverLeaf(reply.Server), pki.RoleServer.ServerName(), true},
					{serverLeaf(reply.Server), "10.0.0.9", true},
					{agentLeaf(reply.Agent), pki.RoleAgent.ServerName(), true},
					{agentLeaf(reply.Agent), "10.0.0.9", false}, // an agent can't choose hosts
				} {
					if err := one.cert.VerifyHostname(one.host); (err == nil) != one.good {
						t.Errorf("%s: %v", one.host, err)
					}
				}
				left := time.Until(serverLeaf(reply.Server).NotAfter)
				if left <= 0 || left > time.Hour {
					t.Errorf("the certificate lasts %s", left)
				}
				if len(reply.Roots) != 1 || len(reply.GossipKeys) != 1 || len(reply.Keyring) != 1 || reply.Cluster != "c1" {
					t.Errorf("reply %d has %d roots, %d gossip keys, %d keys of the keyring, cluster %q", i, len(reply.Roots),
						len(reply.GossipKeys), len(reply.Keyring), reply.Cluster)
				}
				want := [][]string{{"10.0.0.1:7640"}, {"10.0.0.1:7641"}}
				if d := cmp.Diff(want, [][]string{reply.Servers, reply.Gossip}); d != "" {
					t.Error(d)
				}
				if reply.Labels["rack"] != "r1" {
					t.Errorf("labels %v", reply.Labels)
				}
				row, _ := s1.machine.Current().JoinTokens.Get(model.TokenID(token.ID()))
				if row.Used != 1 {
					t.Errorf("the token was used %d times", row.Used)
				}
			}
		})
	}
}

// An agent gets no keys of the keyring.
func TestAgentsGetNoKeyring(t *testing.T) {
	s := newRig(t).found(time.Hour)
	s.lead()
	for _, role := range []pki.Role{pki.RoleAgent, pki.RoleServer} { // a server's token may ask for an agent alone
		der, _ := request(t, pki.RoleAgent, "n-"+string(role))
		reply := must(s.join(s.token(role), transport.JoinRequest{Agent: der}))(t)
		if len(reply.Keyring) != 0 || len(reply.Server) != 0 {
			t.Errorf("a token of role %s: %d keys, %d certificates of a server", role, len(reply.Keyring), len(reply.Server))
		}
	}
}

// Each refusal comes with its code, from the leader and by way of another server, and leaves no entry in the log.
func TestJoinRefuses(t *testing.T) {
	r := newRig(t)
	s1 := r.found(time.Hour)
	s1.lead()
	s2 := s1.joinServer("s2", time.Hour)
	der := func(role pki.Role, name string) []byte { b, _ := request(t, role, name); return b }
	spent := s1.token(pki.RoleAgent)
	must(s1.join(spent, transport.JoinRequest{Agent: der(pki.RoleAgent, "n1")}))(t)
	gone := s1.token(pki.RoleAgent)
	s1.do(&fsm.TokenRevoke{ID: model.TokenID(gone.ID())})
	for name, test := range map[string]struct {
		token pki.JoinToken
		q     transport.JoinRequest
		want  model.Code
	}{
		"unknown token": {s1.unknownToken(pki.RoleAgent), transport.JoinRequest{Agent: der(pki.RoleAgent, "n2")},
			model.CodeTokenInvalid},
		"no token":      {pki.JoinToken{}, transport.JoinRequest{Agent: der(pki.RoleAgent, "n2")}, model.CodeInvalid},
		"spent token":   {spent, transport.JoinRequest{Agent: der(pki.RoleAgent, "n2")}, model.CodeTokenUsed},
		"revoked token": {gone, transport.JoinRequest{Agent: der(pki.RoleAgent, "n2")}, model.CodeTokenRevoked},
		"an agent's token for a server": {s1.token(pki.RoleAgent),
			transport.JoinRequest{Server: der(pki.RoleServer, "s9")}, model.CodeTokenRole},
		"another name": {s1.token(pki.RoleAgent, func(c *fsm.TokenCreate) { c.NodeName = "web-*" }),
			transport.JoinRequest{Agent: der(pki.RoleAgent, "n2")}, model.CodeTokenName},
		"a taken name": {s1.token(pki.RoleAgent), transport.JoinRequest{Agent: der(pki.RoleAgent, "n1")},
			model.CodeNameTaken},
		"two names": {s1.token(pki.RoleServer), transport.JoinRequest{Server: der(pki.RoleServer, "s3"),
			Agent: der(pki.RoleAgent, "s4")}, model.CodeInvalid},
		"nothing": {s1.token(pki.RoleServer), transport.JoinRequest{}, model.CodeInvalid},
		"a server in the agent's place": {s1.token(pki.RoleServer), transport.JoinRequest{Agent: der(pki.RoleServer, "s3")},
			model.CodeForbidden},
		"damaged": {s1.token(pki.RoleServer), transport.JoinRequest{Agent: []byte("x")}, model.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(r.log)
			for _, asked := range []*site{s1, s2} {
				_, err := asked.join(test.token, test.q)
				wantCode(t, err, test.want)
				if refusal, _ := errors.AsType[*model.Error](err); refusal.Hint == "" {
					t.Errorf("%v has no next step", err)
				}
			}
			if len(r.log) != before {
				t.Error("the refusal is in the log")
			}
		})
	}
}

// Without a leader, a newcomer gets no_leader, and also if the server that was taken for the leader leads no more.
func TestJoinWithoutALeader(t *testing.T) {
	r := newRig(t)
	s1 := r.found(time.Hour)
	s1.lead()
	s2 := s1.joinServer("s2", time.Hour)
	token := s1.token(pki.RoleAgent)
	der, _ := request(t, pki.RoleAgent, "n1")
	for _, leader := range []string{"", "s1"} {
		r.leader = leader
		if leader == "s1" { // s2 asks s1 while s1 believes in nobody
			s1.r = &rig{t: t}
		}
		_, err := s2.join(token, transport.JoinRequest{Agent: der})
		wantCode(t, err, model.CodeNoLeader)
	}
}

// A server answers at most 32 newcomers at once.
func TestJoinsAreBounded(t *testing.T) {
	r := newRig(t)
	s := r.found(time.Hour)
	s.lead()
	token := s.token(pki.RoleAgent, func(c *fsm.TokenCreate) { c.Uses = 100 })
	entered, release := make(chan struct{}, 100), make(chan struct{})
	r.before = func() error { entered <- struct{}{}; <-release; return nil }
	ended := make(chan error, 100)
	for i := range 32 {
		der, _ := request(t, pki.RoleAgent, fmt.Sprint("n", i))
		go func() {
			_, err := s.join(token, transport.JoinRequest{Agent: der})
			ended <- err
		}()
	}
	for range 32 {
		select {
		case <-entered:
		case <-time.After(20 * time.Second):
			t.Fatal("fewer than 32 joins were begun")
		}
	}
	der, _ := request(t, pki.RoleAgent, "late")
	_, err := s.join(token, transport.JoinRequest{Agent: der})
	wantCode(t, err, model.CodeBusy)
	close(release)
	for range 32 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	must(s.join(token, transport.JoinRequest{Agent: der}))(t)
}
