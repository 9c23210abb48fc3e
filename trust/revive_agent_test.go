package trust_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// The agent of a server's machine can't ask for a certificate once its own has expired, for example because the clock
// was behind at the start. Its server makes one.
func TestServerKeepsItsAgentAlive(t *testing.T) {
	for name, revoked := range map[string]bool{"member": false, "revoked": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const life = 3 * 24 * time.Hour
				s := newRig(t).found(life)
				s.lead()
				if revoked {
					s.do(&fsm.MemberRevoke{Subject: who(model.SubjectAgent, "s1")})
				}
				defer s.run()()
				before, _, err := transport.ManagedDir(s.dir).Pair(pki.RoleAgent)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(life + 11*time.Minute)
				creds, err := transport.ManagedDir(s.dir).Credentials("c1", pki.RoleAgent, "s1")
				if revoked {
					wantCode(t, err, model.CodeCertificateInvalid)
					return
				}
				after, _, _ := transport.ManagedDir(s.dir).Pair(pki.RoleAgent)
				if err != nil || time.Until(creds.NotAfter()) < life/2 ||
					!bytes.Equal(pki.KeyHash(after.Leaf), pki.KeyHash(before.Leaf)) {
					t.Errorf("the agent's certificate: %v", err)
				}
			})
		})
	}
}
