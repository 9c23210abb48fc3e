package httpapi_test

import (
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// rotateCA replaces ca/1 by ca/2, and drops ca/1 if drop is set.
func (r *rig) rotateCA(drop bool) {
	r.t.Helper()
	put := func(name model.KeyName, version uint64, phase model.KeyPhase) fsm.Command {
		return &fsm.KeyPut{Name: name, Version: version, Phase: phase, Under: "data/1", Sealed: []byte("sealed-ca-key"),
			Public: r.ca.Root().Raw}
	}
	if drop {
		r.apply(&fsm.KeyDrop{Name: "ca/1"})
		return
	}
	r.apply(put("ca/2", 1, model.KeyIncoming))
	r.apply(put("ca/1", 2, model.KeyRetired), put("ca/2", 2, model.KeyActive))
}

// A join token names the CA that was active when it was made. Once another CA is active, it admits nobody, and the list
// says so.
func TestTokensOfAReplacedCA(t *testing.T) {
	r := newRig(t)
	r.manage()
	states := func() map[string]string {
		all := map[string]string{}
		for _, item := range get(t, r.cli(), "/v1/tokens")["items"].([]any) {
			row := item.(map[string]any)
			all[row["id"].(string)] = row["state"].(string)
		}
		return all
	}
	old, _ := r.token(map[string]any{"role": "agent"})
	revoked, _ := r.token(map[string]any{"role": "agent"})
	post(t, r.cli(), "/v1/tokens/"+string(revoked.Token.ID)+"/revoke", nil)
	for _, drop := range []bool{false, true} {
		r.rotateCA(drop)
		fresh, _ := r.token(map[string]any{"role": "agent"})
		got := states()
		if got[string(old.Token.ID)] != "ca_replaced" || got[string(fresh.Token.ID)] != "active" ||
			got[string(revoked.Token.ID)] != "revoked" {
			t.Errorf("ca/1 dropped: %t: old %s, new %s, revoked %s", drop, got[string(old.Token.ID)],
				got[string(fresh.Token.ID)], got[string(revoked.Token.ID)])
		}
	}
}

// A person's certificate is good while the cluster trusts the CA that signed it. The list says when that CA was
// replaced, and when it was dropped. A repeated request gets no certificate of another CA.
func TestCertificatesOfAReplacedCA(t *testing.T) {
	r := signing(t)
	state := func(name string) string {
		for _, item := range get(t, r.cli("s1"), "/v1/certificates")["items"].([]any) {
			if c := item.(map[string]any); c["name"] == name {
				return c["state"].(string)
			}
		}
		return "missing"
	}
	_, bob := requestOf(t, pki.RoleCLI, "bob")
	_, carol := requestOf(t, pki.RoleCLI, "carol")
	must(r.certificate("request_id=r1", map[string]any{"request": bob}))(t)
	must(r.certificate("", map[string]any{"request": carol}))(t)
	post(t, r.cli("s1"), "/v1/certificates/carol/revoke", nil)
	if got := state("bob") + " " + state("carol"); got != "active revoked" {
		t.Errorf("before the rotation: %s", got)
	}
	r.rotateCA(false)
	_, dave := requestOf(t, pki.RoleCLI, "dave")
	must(r.certificate("", map[string]any{"request": dave}))(t)
	if got := state("bob") + " " + state("dave"); got != "ca_replaced active" {
		t.Errorf("while both CAs are trusted: %s", got)
	}
	_, err := r.certificate("request_id=r1", map[string]any{"request": bob})
	wantCode(t, err, model.CodeConflict)
	r.rotateCA(true)
	if got := state("bob") + " " + state("carol") + " " + state("dave"); got != "ca_dropped revoked active" {
		t.Errorf("after the rotation: %s", got)
	}
	r.apply(&fsm.PersonAdmit{Subject: model.Subject{Kind: model.SubjectCert, Name: "eve"}, Key: make([]byte, 32),
		NotAfter: 1000, Number: r.machine.Current().MomentNumber()})
	if got := state("eve"); got != "expired" {
		t.Errorf("a certificate that has ended is %s", got)
	}
}
