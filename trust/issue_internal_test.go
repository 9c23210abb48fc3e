package trust

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// ownCA is a CA that knows nothing of outspan.
type ownCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newOwnCA(t *testing.T) ownCA {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	ca := ownCA{key: key}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	ca.cert = ca.sign(t, template, template, key)
	return ca
}

func (ca ownCA) sign(t *testing.T, template, parent *x509.Certificate, of *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &of.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// grant returns the PEM of a certificate as agent n1 of the cluster c1. edit changes it before it is signed.
func (ca ownCA) grant(t *testing.T, of *ecdsa.PrivateKey, edit func(*x509.Certificate)) string {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "n1"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"agent.outspan"}, URIs: []*url.URL{{Scheme: "outspan", Host: "c1", Path: "/agent/n1"}}}
	if edit != nil {
		edit(template)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.sign(t, template, ca.cert, of).Raw}))
}

// program writes a shell script, and returns its path. The script finds the answer in $0.pem.
func program(t *testing.T, script, answer string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "issue")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".pem", []byte(answer), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wanted(t *testing.T) (r pki.Request, der []byte, key *ecdsa.PrivateKey) {
	t.Helper()
	der, key, err := pki.NewRequest(pki.RoleAgent, "n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = pki.ParseRequest(der, pki.RoleAgent); err != nil {
		t.Fatal(err)
	}
	return r, der, key
}

// A program gets the request and an environment of its own, and its certificate is used.
func TestIssue(t *testing.T) {
	t.Setenv("SECRET", "of the server")
	ca := newOwnCA(t)
	r, der, key := wanted(t)
	path := program(t, `env > $0.env; cat > $0.request; echo text around it; cat $0.pem`, ca.grant(t, key, nil))
	chain, err := newIssuer(path, "c1").issue(t.Context(), r, der, "10.0.0.4", []*x509.Certificate{ca.cert})
	if err != nil {
		t.Fatal(err)
	}
	if !key.PublicKey.Equal(chain[0].PublicKey) {
		t.Error("the certificate is for another key")
	}
	got, err := os.ReadFile(path + ".request")
	if err != nil {
		t.Fatal(err)
	}
	if block, _ := pem.Decode(got); block == nil || !slices.Equal(block.Bytes, der) {
		t.Errorf("the program got %q", got)
	}
	env, err := os.ReadFile(path + ".env")
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(env)), "\n"), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains([]string{"PATH", "PWD", "OLDPWD", "SHLVL", "_"}, name) // all but PATH are the shell's
	})
	slices.Sort(lines)
	want := []string{"OUTSPAN_ADDRESS=10.0.0.4", "OUTSPAN_CLUSTER=c1", "OUTSPAN_NAME=n1", "OUTSPAN_ROLE=agent",
		"OUTSPAN_SUBJECT_ALT_NAME=URI:outspan://c1/agent/n1,DNS:agent.outspan,DNS:localhost,IP:127.0.0.1,IP:::1"}
	if d := cmp.Diff(want, lines); d != "" {
		t.Error(d)
	}
}

// What a program does wrong is an error that says so, with what the program wrote to standard error.
func TestIssueRefuses(t *testing.T) {
	ca, other := newOwnCA(t), newOwnCA(t)
	r, der, key := wanted(t)
	_, _, otherKey := wanted(t)
	const show = "cat $0.pem"
	uri := func(path string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.URIs[0].Path = path }
	}
	for name, test := range map[string]struct{ script, answer, says string }{
		"exit 1":       {"echo no room at the CA >&2; exit 1", "", "exit status 1, and wrote: no room at the CA"},
		"garbage":      {"echo garbage", "", "there is no PEM block CERTIFICATE"},
		"a key":        {show, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", `a block "PRIVATE KEY"`},
		"too much":     {"while :; do cat $0.pem; done", ca.grant(t, key, nil), "printed more than 65536 bytes"},
		"too long":     {show, strings.Repeat(ca.grant(t, key, nil), 4), "4 certificates"},
		"another key":  {show, ca.grant(t, otherKey, nil), "for another key"},
		"another name": {show, ca.grant(t, key, uri("/agent/n2")), "outspan://c1/agent/n2, not for outspan://c1/agent/n1"},
		"another role": {show, ca.grant(t, key, uri("/server/n1")), "outspan://c1/server/n1, not for"},
		"no holder":    {show, ca.grant(t, key, func(c *x509.Certificate) { c.URIs = nil }), "has no holder"},
		"no DNS name": {show, ca.grant(t, key, func(c *x509.Certificate) { c.DNSNames = nil }),
			"lacks the DNS name agent.outspan"},
		"another CA": {show, other.grant(t, key, nil), "under ca_file"},
		"one usage only": {show, ca.grant(t, key, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }),
			"not good for serverAuth"},
		"expired": {show, ca.grant(t, key, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
			"has expired"},
		"a CA": {show, ca.grant(t, key, func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }),
			"is that of a CA"},
	} {
		t.Run(name, func(t *testing.T) {
			path := program(t, test.script, test.answer)
			_, err := newIssuer(path, "c1").issue(t.Context(), r, der, "", []*x509.Certificate{ca.cert})
			if !errors.Is(err, &model.Error{Code: model.CodeIssueFailed}) || !strings.Contains(err.Error(), test.says) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want one that names the program and says %q", err, test.says)
			}
		})
	}
}

// A program that hangs is killed with what it has started, and further newcomers wait no longer than it may take.
func TestIssueHangs(t *testing.T) {
	ca := newOwnCA(t)
	r, der, _ := wanted(t)
	i := newIssuer(program(t, "echo thinking >&2; sleep 600 & sleep 600", ""), "c1")
	i.limit = 500 * time.Millisecond
	_, err := i.issue(t.Context(), r, der, "", []*x509.Certificate{ca.cert})
	if !errors.Is(err, &model.Error{Code: model.CodeIssueFailed}) ||
		!strings.Contains(err.Error(), "did not end in time") {
		t.Errorf("got %v", err)
	}
	for range maxIssuing {
		i.places <- struct{}{}
	}
	_, err = i.issue(t.Context(), r, der, "", []*x509.Certificate{ca.cert})
	if !errors.Is(err, &model.Error{Code: model.CodeBusy}) {
		t.Errorf("without a place: %v", err)
	}
}
