package trust_test

import (
	"context"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
)

// filesSite is a server of a cluster with certificate files, and the CA of its operator.
type filesSite struct {
	*site
	ca    *transport.Authority
	files *trust.FilesEngine
	path  string // of the program, which prints the file PATH.pem
	log   strings.Builder
}

func newFilesSite(t *testing.T, script string) *filesSite {
	t.Helper()
	r := newRig(t)
	dir := t.TempDir()
	s := &filesSite{site: &site{r: r, name: "s1", dir: dir, machine: fsm.NewMachine()}, path: filepath.Join(dir, "issue"),
		ca: must(transport.NewAuthority("c1", 0))(t)}
	if err := transport.ManagedDir(dir).Write(transport.ManagedFiles{
		GossipKeys: [][]byte{transport.NewGossipKey()}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.creds = must(s.ca.Credentials(pki.RoleServer, "s1"))(t)
	s.gossip = newFakeGossip(t, dir)
	r.sites["s1"], r.leader = s.site, "s1"
	s.use(s.path)
	return s
}

// use starts the server again with another program.
func (s *filesSite) use(program string) {
	s.files = trust.NewFilesEngine(trust.Config{Name: "s1", Cluster: "c1", Store: s.machine, Servers: s.site,
		Peers: s.site, Credentials: s.creds, Gossip: s.gossip,
		Logger: hclog.New(&hclog.LoggerOptions{Output: &s.log})}, program)
}

// asks sends the request of a newcomer. If it is nil, it asks as agent n1 with a new key, which the CA is willing to
// sign.
func (s *filesSite) asks(token pki.JoinToken, q *transport.JoinRequest) (transport.JoinReply, error) {
	s.r.t.Helper()
	if q == nil {
		q = &transport.JoinRequest{Agent: s.sign(agentRequest(s.r.t))}
	}
	q.Token = token.Reveal()
	source := &net.TCPAddr{IP: net.IPv4(127, 1, 0, byte(joins.Add(1)))} // so that refusals don't add up
	return s.files.AnswerJoin(context.Background(), source, *q)
}

// agentRequest makes a request for the certificate of agent n1.
func agentRequest(t testing.TB) []byte {
	t.Helper()
	der, _, err := pki.NewRequest(pki.RoleAgent, "n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// sign makes the program print the certificate for an agent's request, and returns the request.
func (s *filesSite) sign(der []byte) []byte {
	s.r.t.Helper()
	r := must(pki.ParseRequest(der, pki.RoleAgent))(s.r.t)
	cert := must(s.ca.Sign(r, time.Hour))(s.r.t)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	if err := os.WriteFile(s.path+".pem", text, 0o600); err != nil {
		s.r.t.Fatal(err)
	}
	return der
}

func (s *filesSite) newToken(role pki.Role) pki.JoinToken {
	s.r.t.Helper()
	token := must(pki.NewJoinToken(role, must(s.files.Root())(s.r.t)))(s.r.t)
	verifier := token.Verifier()
	s.do(&fsm.TokenCreate{ID: model.TokenID(token.ID()), Role: string(role), Verifier: verifier[:], TTL: model.Hour,
		Uses: 1, Labels: map[string]string{"rack": "r1"}})
	return token
}

// An agent joins a cluster with certificate files with one use of a token, also if it repeats its request, and gets the
// certificate that the program has made.
func TestJoinWithFiles(t *testing.T) {
	s := newFilesSite(t, "cat $0.pem")
	token := s.newToken(pki.RoleAgent)
	q := &transport.JoinRequest{Agent: s.sign(agentRequest(t))}
	for range 2 {
		reply := must(s.asks(token, q))(t)
		if !reply.Files || len(reply.Agent) != 1 || len(reply.Server) != 0 || len(reply.Roots) != 1 ||
			len(reply.GossipKeys) != 1 || len(reply.Keyring) != 0 || len(reply.Servers) != 1 ||
			reply.Labels["rack"] != "r1" || reply.Cluster != "c1" {
			t.Errorf("the reply lacks something: %+v", reply)
		}
	}
	state := s.machine.Current()
	row, _ := state.JoinTokens.Get(model.TokenID(token.ID()))
	if row.Used != 1 || state.TrustMembers.Len() != 1 || state.Managed() {
		t.Errorf("the token was used %d times, there are %d members", row.Used, state.TrustMembers.Len())
	}
	before := s.newToken(pki.RoleAgent)
	_, err := s.asks(before, nil) // another machine, or this one without its key
	wantCode(t, err, model.CodeNameTaken)
	if !strings.Contains(err.Error(), "another --name") || !strings.Contains(err.Error(), "outspan node revoke n1") {
		t.Errorf("the error does not say how to free the name: %v", err)
	}
	s.do(&fsm.MemberRevoke{Subject: who(model.SubjectAgent, "n1")})
	_, err = s.asks(before, nil)
	wantCode(t, err, model.CodeTokenRevoked)
	must(s.asks(s.newToken(pki.RoleAgent), nil))(t)
	if m, _ := s.machine.Current().TrustMemberOf(who(model.SubjectAgent, "n1")); m.RevokedIndex != 0 {
		t.Error("the machine that took the name is revoked")
	}
}

// What can't be answered is refused, and uses no token.
func TestJoinWithFilesRefuses(t *testing.T) {
	s := newFilesSite(t, "echo s3cret >&2; exit 1")
	token := s.newToken(pki.RoleServer)
	server, _ := request(t, pki.RoleServer, "s2")
	agent, _ := request(t, pki.RoleAgent, "s2")
	_, err := s.asks(token, &transport.JoinRequest{Server: server, Agent: agent, Address: "10.0.0.2:7640"})
	wantCode(t, err, model.CodeInvalid)
	hosts, _, err := pki.NewRequest(pki.RoleAgent, "n1", []string{"www.example"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.asks(token, &transport.JoinRequest{Agent: hosts})
	wantCode(t, err, model.CodeInvalid)

	_, err = s.asks(token, nil)
	wantCode(t, err, model.CodeIssueFailed)
	if strings.Contains(err.Error(), "s3cret") || !strings.Contains(s.log.String(), "s3cret") {
		t.Errorf("only the log has what the program wrote; the error is %v, the log %s", err, s.log.String())
	}
	s.use("")
	_, err = s.asks(token, nil)
	wantCode(t, err, model.CodeCertificateNeeded)
	_, known, err := s.files.AnswerPeer(t.Context(), "trust-join", nil)
	if wantCode(t, err, model.CodeCertificateNeeded); !known {
		t.Error("the question of another server is not known")
	}
	_, err = s.files.Root()
	wantCode(t, err, model.CodeCertificateNeeded)
	state := s.machine.Current()
	row, _ := state.JoinTokens.Get(model.TokenID(token.ID()))
	if row.Used != 0 || state.TrustMembers.Len() != 0 {
		t.Errorf("the token was used %d times, there are %d members", row.Used, state.TrustMembers.Len())
	}
}
