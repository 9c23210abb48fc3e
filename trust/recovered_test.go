package trust_test

import (
	"context"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
)

// After a recovery an agent is admitted with a key that the state does not have, by any server. From then on only this
// key counts.
func TestRecoveredAgents(t *testing.T) {
	for _, met := range []string{"s1", "s2"} {
		t.Run("at "+met, func(t *testing.T) {
			r := newRig(t)
			s1 := r.found(time.Hour)
			s1.lead()
			s1.joinServer("s2", time.Hour)
			n1 := who(model.SubjectAgent, "n1")
			var keys []*x509.Certificate
			der, leafOf := request(t, pki.RoleAgent, "n1")
			keys = append(keys, leafOf(must(s1.join(s1.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent))
			for i := range 2 {
				der, leafOf := request(t, pki.RoleAgent, "n1")
				keys = append(keys, leafOf(must(s1.engine.Renew(shown(t, pki.KeyHash(keys[i]), keys[i].NotAfter), n1,
					transport.RenewRequest{Request: der}))(t).Chain))
				if err := keys[i+1].VerifyHostname("10.0.0.9"); err == nil {
					t.Error("an agent chose the host of its certificate")
				}
			}
			id := pki.Identity{Cluster: "c1", Role: pki.RoleAgent, Name: "n1"}
			site := r.sites[met]
			wantCode(t, site.engine.Admit(id, keys[0]), model.CodeCertificateRefused)
			s1.do(&fsm.RestoreMark{Recovered: true}) // as if the renewals had come before the end of the snapshot
			site.run()
			if err := site.engine.Admit(id, keys[0]); err != nil {
				t.Fatal(err)
			}
			site.engine.Proved(id, keys[0])
			eventually(t, "the key is in the state", func() bool {
				row, _ := s1.machine.Current().TrustMemberOf(n1)
				return !row.AnyKey
			})
			if err := site.engine.Admit(id, keys[0]); err != nil {
				t.Error(err)
			}
			wantCode(t, site.engine.Admit(id, keys[2]), model.CodeCertificateRefused)
		})
	}
}

// A server whose state does not have the newest CA yet sees the key of an agent after a recovery. The row of the agent
// names that CA all the same, because the leader knows it.
func TestPinKnowsTheCAOfTheLeader(t *testing.T) {
	r := newRig(t)
	s1 := r.found(time.Hour)
	s1.lead()
	s2 := s1.joinServer("s2", time.Hour)
	n1 := who(model.SubjectAgent, "n1")
	der, leafOf := request(t, pki.RoleAgent, "n1")
	leaf := leafOf(must(s1.join(s1.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent)
	s1.do(&fsm.RestoreMark{Recovered: true})
	r.stop(s2)
	s1.do(must(s1.engine.RotateCA(s1.machine.Current(), api.RotateCABody{}))(t)...)
	row, _ := s1.machine.Current().TrustMemberOf(n1)
	if !row.AnyKey {
		t.Fatal("the row takes only certain keys")
	}
	ca := s1.machine.Current().KeysOf(model.KeyCA)
	next := must(x509.ParseCertificate(ca[len(ca)-1].Public))(t)
	signed := *leaf // as if the newest CA had signed it
	signed.AuthorityKeyId = next.SubjectKeyId
	s2.run()
	s2.engine.Proved(id(pki.RoleAgent, "n1"), &signed)
	eventually(t, "the key is in the state", func() bool {
		row, _ := s1.machine.Current().TrustMemberOf(n1)
		return !row.AnyKey
	})
	if row, _ := s1.machine.Current().TrustMemberOf(n1); row.CA != ca[len(ca)-1].Name {
		t.Errorf("the row names the CA %q, not %s", row.CA, ca[len(ca)-1].Name)
	}
}

// A server that joined after the snapshot is revoked although the recovered state never knew it: its certificate counts
// nowhere, also after another machine has joined under its name, and it gets no keys.
func TestRevokeServerAfterRecovery(t *testing.T) {
	r := newRig(t)
	s1 := r.found(time.Hour)
	s1.lead()
	saved := len(r.log)
	stolen := must(tlsLeaf(s1.joinServer("s3", time.Hour)))(t)
	recovered := newRig(t)
	recovered.log, recovered.leader = r.log[:saved:saved], "s1"
	s1 = recovered.start("s1", s1.dir, time.Hour)
	s1.do(&fsm.RestoreMark{Recovered: true})
	s3 := who(model.SubjectServer, "s3")
	if err := s1.engine.Admit(id(pki.RoleServer, "s3"), stolen); err != nil {
		t.Fatalf("before its revocation: %v", err)
	}
	s1.do(&fsm.MemberRevoke{Subject: s3, Reason: "stolen"})
	wantCode(t, s1.engine.Admit(id(pki.RoleServer, "s3"), stolen), model.CodeMemberRevoked)
	_, _, err := s1.engine.AnswerPeer(transport.WithSubject(t.Context(), s3), "trust-keyring", []byte{0xa0})
	wantCode(t, err, model.CodeMemberRevoked)
	returned := must(tlsLeaf(s1.joinServer("s3", time.Hour)))(t)
	if err := s1.engine.Admit(id(pki.RoleServer, "s3"), returned); err != nil {
		t.Errorf("the machine that joined since: %v", err)
	}
	wantCode(t, s1.engine.Admit(id(pki.RoleServer, "s3"), stolen), model.CodeMemberRevoked)
}

// A server that has only its state and its keyring gets all other keys from these. Without its keyring the refusal
// names it, and a machine that was never a member gets nothing.
func TestReviveMakesMissingFiles(t *testing.T) {
	r := newRig(t)
	s := r.found(time.Hour)
	s.lead()
	dir := t.TempDir()
	state := func(context.Context) (fsm.State, error) { return s.machine.State(), nil }
	revival := trust.Revival{Name: "s9", DataDir: dir, State: state, Lifetime: time.Hour, Logger: hclog.NewNullLogger()}
	none := revival
	none.State = func(context.Context) (fsm.State, error) {
		return fsm.State{}, model.Refuse(model.CodeInvalid, "no log")
	}
	if err := revive(t.Context(), none); err != nil {
		t.Fatal(err)
	}
	wantCode(t, revive(t.Context(), revival), model.CodeNotFound)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Fatalf("the directory has %v: %v", left, err)
	}
	ring := must(keyring.Open(filepath.Join(s.dir, keyring.FileName)))(t)
	must(keyring.Create(filepath.Join(dir, keyring.FileName), ring.Keys()...))(t)
	if err := revive(t.Context(), revival); err != nil {
		t.Fatal(err)
	}
	creds := must(transport.ManagedDir(dir).Credentials("c1", pki.RoleServer, "s9"))(t)
	if left := time.Until(creds.NotAfter()); left <= 0 || left > time.Hour {
		t.Errorf("the certificate lasts %s", left)
	}
	want := must(transport.ManagedDir(s.dir).GossipKeys())(t)[0]
	if got := must(transport.ManagedDir(dir).GossipKeys())(t)[0]; string(got) != string(want) {
		t.Error("another key of the gossip pool")
	}
	s9 := who(model.SubjectServer, "s9")
	der, _ := request(t, pki.RoleServer, "s9")
	must(s.join(s.token(pki.RoleServer), transport.JoinRequest{Server: der}))(t)
	s.do(&fsm.MemberRevoke{Subject: s9})
	if err := os.RemoveAll(transport.ManagedDir(dir).Path()); err != nil {
		t.Fatal(err)
	}
	wantCode(t, revive(t.Context(), revival), model.CodeMemberRevoked)
}

func revive(ctx context.Context, r trust.Revival) error {
	_, err := trust.Revive(ctx, r)
	return err
}
