package trust_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
)

// A server that lost its keyring starts, refuses what needs it, and gets the same keys from another server. A follower
// answers too.
func TestLostKeyring(t *testing.T) {
	for _, lost := range []string{"s1", "s2"} { // s1 leads
		t.Run(lost, func(t *testing.T) {
			r := newRig(t)
			s1 := r.found(time.Hour)
			s1.lead()
			s1.joinServer("s2", time.Hour)
			r.addresses = []string{"s1", "s2"}
			path := filepath.Join(r.sites[lost].dir, keyring.FileName)
			want := must(keyring.Open(path))(t).Active()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			s := r.start(lost, r.sites[lost].dir, time.Hour)
			der, _ := request(t, pki.RoleAgent, "n1")
			token := s.token(pki.RoleAgent)
			if lost == "s1" {
				before := len(r.log)
				_, err := s.join(token, transport.JoinRequest{Agent: der})
				wantCode(t, err, model.CodeNotFound)
				if len(r.log) != before {
					t.Error("the refusal is in the log")
				}
			}
			s.run()
			eventually(t, "the keyring is there", func() bool {
				ring, err := keyring.Open(path)
				return err == nil && ring.Active() == want
			})
			eventually(t, "it admits again", func() bool {
				_, err := s.join(token, transport.JoinRequest{Agent: der})
				return err == nil
			})
		})
	}
}

// A keyring that outspan server keyring import writes while the server runs is used, although no other server answers.
func TestImportedKeyring(t *testing.T) {
	r := newRig(t)
	s1 := r.found(time.Hour)
	s1.lead()
	r.addresses = []string{}
	path := filepath.Join(s1.dir, keyring.FileName)
	keys := must(keyring.Open(path))(t).Keys()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s := r.start("s1", s1.dir, time.Hour)
	s.run()
	der, _ := request(t, pki.RoleAgent, "n1")
	token := s.token(pki.RoleAgent)
	_, err := s.join(token, transport.JoinRequest{Agent: der})
	wantCode(t, err, model.CodeNotFound)
	must(keyring.Create(path, keys...))(t)
	eventually(t, "the server uses it", func() bool {
		_, err := s.join(token, transport.JoinRequest{Agent: der})
		return err == nil
	})
}

// A keyring from an older export is completed by another server, although most addresses never answer. Keys that the
// state does not need stay where they are.
func TestIncompleteKeyring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s1 := r.found(time.Hour)
		s1.lead()
		s2 := s1.joinServer("s2", time.Hour)
		other := must(must(keyring.Open(filepath.Join(s1.dir, keyring.FileName)))(t).Generate())(t)
		r.start("s1", s1.dir, time.Hour)
		path := filepath.Join(s2.dir, keyring.FileName)
		want := must(keyring.Open(path))(t).Active()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		old := must(keyring.Create(path))(t).Active()
		s2 = r.start("s2", s2.dir, time.Hour)
		r.leader = ""
		for i := range 30 {
			r.addresses = append(r.addresses, fmt.Sprint("nobody", i))
		}
		r.addresses = append(r.addresses, "s1")
		s2.run()
		time.Sleep(10 * time.Second)
		got := must(keyring.Open(path))(t).IDs()
		if !slices.Equal(got, []keyring.ID{want, old}) { // the state uses the key want, so it is active
			t.Errorf("the keyring has %v, want %v; %s is not needed", got, []keyring.ID{want, old}, other.ID())
		}
		_, _, err := s2.engine.AnswerPeer(transport.WithSubject(t.Context(), who(model.SubjectServer, "s1")), "trust-keyring",
			[]byte{0xa0})
		if err != nil {
			t.Error(err)
		}
	})
}

// Neither an agent nor a revoked server gets the keys.
func TestKeyringIsForServers(t *testing.T) {
	r := newRig(t)
	s1 := r.found(time.Hour)
	s1.lead()
	s1.joinServer("s2", time.Hour)
	ask := func(who model.Subject) error {
		_, known, err := s1.engine.AnswerPeer(transport.WithSubject(t.Context(), who), "trust-keyring", []byte{0xa0})
		if !known {
			t.Error("the question is unknown")
		}
		return err
	}
	if err := ask(who(model.SubjectServer, "s2")); err != nil {
		t.Error(err)
	}
	wantCode(t, ask(who(model.SubjectAgent, "s2")), model.CodeForbidden)
	s1.do(&fsm.MemberRevoke{Subject: who(model.SubjectServer, "s2")})
	wantCode(t, ask(who(model.SubjectServer, "s2")), model.CodeMemberRevoked)
}

// With a damaged keyring, a server does not start. TestLostKeyring is about a missing one.
func TestEngineNeedsAGoodKeyring(t *testing.T) {
	s := newRig(t).found(time.Hour)
	if err := os.WriteFile(filepath.Join(s.dir, keyring.FileName), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := trust.NewEngine(trust.Config{Name: "s1", Cluster: "c1", DataDir: s.dir, Credentials: s.creds})
	wantCode(t, err, model.CodeKeyringInvalid)
}
