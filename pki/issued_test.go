package pki_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A pair is made only of a certificate for the key, the holder and the roots that are expected, at a time at which it
// is valid. A request can be made again for the same key.
func TestIssued(t *testing.T) {
	ca, other := mustAuthority(t), mustAuthority(t)
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	issue := func(ca *transport.Authority, role pki.Role, name string) []byte {
		der, err := pki.RequestFor(key, role, name, []string{"10.0.0.4"})
		if err != nil {
			t.Fatal(err)
		}
		request, err := pki.ParseRequest(der, role)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := ca.Sign(request, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return cert.Raw
	}
	another, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	n1 := pki.Identity{Cluster: "c1", Role: pki.RoleAgent, Name: "n1"}
	root, good := ca.Root().Raw, issue(ca, pki.RoleAgent, "n1")
	pair, err := pki.Issued([][]byte{good}, [][]byte{other.Root().Raw, root}, key, n1, time.Now())
	if err != nil || !bytes.Equal(pair.Certificate[0], good) || pair.PrivateKey != any(key) || pair.Leaf == nil {
		t.Fatalf("got %v, %v", pair, err)
	}
	for name, test := range map[string]struct {
		chain, root []byte
		off         time.Duration
		wrongKey    bool
		want        string
	}{
		"another name":   {issue(ca, pki.RoleAgent, "n2"), root, 0, false, "a certificate for agent/n2"},
		"another role":   {issue(ca, pki.RoleServer, "n1"), root, 0, false, "a certificate for server/n1"},
		"another root":   {issue(other, pki.RoleAgent, "n1"), root, 0, false, "not good under the roots"},
		"another key":    {good, root, 0, true, "for another key"},
		"not valid yet":  {good, root, -25 * time.Hour, false, "not good under the roots"},
		"expired":        {good, root, 2 * time.Hour, false, "not good under the roots"},
		"damaged":        {good[:9], root, 0, false, "a damaged certificate"},
		"a damaged root": {good, root[:9], 0, false, "a damaged root"},
	} {
		used := key
		if test.wrongKey {
			used = another
		}
		_, err := pki.Issued([][]byte{test.chain}, [][]byte{test.root}, used, n1, time.Now().Add(test.off))
		refusal, ok := errors.AsType[*model.Error](err)
		if !ok || refusal.Code != model.CodeCertificateInvalid || !strings.Contains(refusal.Message, test.want) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}

func mustAuthority(t *testing.T) *transport.Authority {
	t.Helper()
	ca, err := transport.NewAuthority("c1", 0)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// A token names one root. A text that contains a token is recognised.
func TestTokenNames(t *testing.T) {
	ca, other := mustAuthority(t), mustAuthority(t)
	token, err := pki.NewJoinToken(pki.RoleAgent, ca.Root())
	if err != nil {
		t.Fatal(err)
	}
	if !token.Names(ca.Root()) || token.Names(other.Root()) || (pki.JoinToken{}).Names(ca.Root()) {
		t.Error("the token names the wrong root")
	}
	if !pki.HoldsJoinToken("x="+token.Reveal()) || pki.HoldsJoinToken(token.String()) {
		t.Error("a text with a token is not recognised, or one without is")
	}
}
