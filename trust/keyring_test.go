package trust_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
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
