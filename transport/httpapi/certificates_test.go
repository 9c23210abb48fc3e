package httpapi_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport/httpapi"
)

// signing starts a managed cluster that signs certificates of people, and lets s2 lead.
func signing(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.startWith("s2", func(c *httpapi.Config) {
		c.SignPerson = func(_ *fsm.State, q pki.Request, ttl time.Duration) (*x509.Certificate, [][]byte, error) {
			cert, err := r.ca.Sign(q, ttl)
			return cert, [][]byte{r.ca.Root().Raw}, err
		}
	})
	r.setLeader("s2")
	r.manage()
	return r
}

// requestOf makes a key and a request for a certificate.
func requestOf(t *testing.T, role pki.Role, name string) (key *ecdsa.PrivateKey, text string) {
	t.Helper()
	der, key, err := pki.NewRequest(role, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func (r *rig) certificate(query string, body map[string]any) (reply api.NewCertificateReply, err error) {
	r.t.Helper()
	raw, _, err := r.cli("s1").Do(r.t.Context(), http.MethodPost, "/v1/certificates", values(query), body)
	if err != nil {
		return reply, err
	}
	err = json.Unmarshal(raw, &reply)
	return reply, err
}

// leafOf returns the certificate in a reply. It must be for the key.
func leafOf(t *testing.T, reply api.NewCertificateReply, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(reply.PEM))
	if block == nil {
		t.Fatalf("the reply is %+v", reply)
	}
	leaf := must(x509.ParseCertificate(block.Bytes))(t)
	if !key.PublicKey.Equal(leaf.PublicKey) {
		t.Fatal("the certificate is for another key")
	}
	return leaf
}

// A person's certificate has the name, the lifetime and the number of the state, and its row the actor. A repeated
// request gets the same certificate, unless it was revoked since. The list shows what counts.
func TestCertificatesOfPeople(t *testing.T) {
	r := signing(t)
	key, text := requestOf(t, pki.RoleCLI, "bob")
	body := map[string]any{"request": text, "ttl": "2h"}
	number := r.machine.Current().MomentNumber()
	dry, err := r.certificate("dry_run=true", body)
	if err != nil || dry.PEM != "" || r.machine.Current().People.Len() != 0 {
		t.Errorf("a dry run answers %+v, %v", dry, err)
	}
	first := must(r.certificate("request_id=r1", body))(t)
	leaf := leafOf(t, first, key)
	if left := time.Until(leaf.NotAfter); pki.AdmittedAt(leaf) != number || left > 2*time.Hour || left < time.Hour ||
		leaf.URIs[0].Path != "/cli/bob" || !strings.Contains(first.CAPEM, "BEGIN CERTIFICATE") {
		t.Errorf("the certificate has the number %d, not %d, %s left, and is for %s", pki.AdmittedAt(leaf), number, left,
			leaf.URIs[0])
	}
	if c := first.Certificate; c == nil || c.CreatedBy != "cert:alice" || c.Revoked || len(c.Key) != 64 {
		t.Errorf("the row is %+v", c)
	}
	again := must(r.certificate("request_id=r1", body))(t)
	if l := leafOf(t, again, key); !again.Replayed || pki.AdmittedAt(l) != number || l.NotAfter.After(leaf.NotAfter) {
		t.Errorf("the repeated request answers %+v", again)
	}

	revoked := post(t, r.cli("s1"), "/v1/certificates/bob/revoke", map[string]string{"reason": "left"})
	if c := revoked["certificate"].(map[string]any); !isTrue(c["revoked"]) || c["reason"] != "left" {
		t.Errorf("the revocation answers %v", revoked)
	}
	if e := r.lastEntry(); e.Actor != "cert:alice" {
		t.Errorf("the actor is %s", e.Actor)
	}
	_, err = r.certificate("request_id=r1", body)
	wantCode(t, err, model.CodeConflict)
	_, err = r.certificate("", body)
	wantCode(t, err, model.CodeMemberRevoked)
	post(t, r.cli("s1"), "/v1/certificates/files/revoke", nil) // has no row
	_, text = requestOf(t, pki.RoleCLI, "carol")
	must(r.certificate("", map[string]any{"request": text}))(t)
	list := func() (names []string) {
		for _, item := range get(t, r.cli("s1"), "/v1/certificates")["items"].([]any) {
			c := item.(map[string]any)
			names = append(names, c["name"].(string))
			if isTrue(c["revoked"]) {
				names[len(names)-1] += "!"
			}
		}
		return names
	}
	if got := strings.Join(list(), " "); got != "bob! carol files!" {
		t.Errorf("the list is %s", got)
	}
	r.apply(&fsm.RestoreMark{Recovered: true, VoidPeople: true})
	if got := strings.Join(list(), " "); got != "bob! carol! files!" {
		t.Errorf("after a recovery the list is %s", got)
	}
}

func TestCertificatesOfPeopleRefused(t *testing.T) {
	r := signing(t)
	_, good := requestOf(t, pki.RoleCLI, "bob")
	_, server := requestOf(t, pki.RoleServer, "s9")
	for name, test := range map[string]struct {
		body map[string]any
		want model.Code
	}{
		"no request":      {map[string]any{}, model.CodeInvalid},
		"two requests":    {map[string]any{"request": good + good}, model.CodeInvalid},
		"a server":        {map[string]any{"request": server}, model.CodeForbidden},
		"a long life":     {map[string]any{"request": good, "ttl": "366d"}, model.CodeInvalid},
		"no life":         {map[string]any{"request": good, "ttl": "0s"}, model.CodeInvalid},
		"a damaged block": {map[string]any{"request": strings.Replace(good, "M", "N", 3)}, model.CodeInvalid},
	} {
		_, err := r.certificate("", test.body)
		t.Log(name)
		wantCode(t, err, test.want)
	}
	_, _, err := r.client(pki.RoleAgent, "n1", "s2").Do(t.Context(), http.MethodPost, "/v1/certificates", nil,
		map[string]any{"request": good})
	wantCode(t, err, model.CodeForbidden)
	_, _, err = r.cli("s2").Do(t.Context(), http.MethodPost, "/v1/certificates/*/revoke", nil, nil)
	wantCode(t, err, model.CodeInvalid)
	r.setLeader("s1") // signs nobody
	_, err = r.certificate("", map[string]any{"request": good})
	wantCode(t, err, model.CodeNotSupported)
}
