package transport_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Whoever waits for the lock stops when its context ends.
func TestManagedLockFollowsItsContext(t *testing.T) {
	m, _ := newManaged(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("the process stops")
	err := m.Lock(t.Context(), func() error {
		cancel(stopped)
		return m.Lock(ctx, func() error { return errors.New("two have the lock") })
	})
	if !errors.Is(err, stopped) {
		t.Errorf("got %v", err)
	}
}

// Only CredentialsAnyTime takes a certificate that has expired, and then it still checks the rest.
func TestCredentialsAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newManaged(t)
		other := must(transport.NewAuthority("c1", 0))(t)
		time.Sleep(2 * transport.MemberTTL)
		_, err := m.Credentials("c1", pki.RoleAgent, "s1")
		wantCode(t, err, model.CodeCertificateInvalid)
		creds := must(m.CredentialsAnyTime("c1", pki.RoleAgent, "s1"))(t)
		if creds.NotAfter().After(time.Now()) || creds.Reload() != nil {
			t.Errorf("the certificate ends at %s", creds.NotAfter())
		}
		_, err = m.CredentialsAnyTime("c1", pki.RoleAgent, "s2")
		wantCode(t, err, model.CodeCertificateInvalid)
		if err := m.Write(transport.ManagedFiles{Roots: [][]byte{other.Root().Raw}}); err != nil {
			t.Fatal(err)
		}
		_, err = m.CredentialsAnyTime("c1", pki.RoleAgent, "s1")
		wantCode(t, err, model.CodeCertificateInvalid)
	})
}

// A certificate may be used from memory, until a reload finds other files. It must be for the same identity.
func TestUseWithoutFiles(t *testing.T) {
	m, ca := newManaged(t)
	creds := must(m.Credentials("c1", pki.RoleAgent, "s1"))(t)
	wantCode(t, creds.Use(managedPair(t, ca, pki.RoleServer, "s1"), nil), model.CodeCertificateInvalid)
	wantCode(t, creds.Use(tls.Certificate{}, nil), model.CodeCertificateInvalid)
	other := must(transport.NewAuthority("c1", 0))(t)
	next := managedPair(t, other, pki.RoleAgent, "s1")
	wantCode(t, creds.Use(next, [][]byte{[]byte("x")}), model.CodeCertificateInvalid)
	if err := creds.Use(next, [][]byte{other.Root().Raw}); err != nil {
		t.Fatal(err)
	}
	if !creds.Uses(next.Leaf) || creds.Trusts([]*x509.Certificate{managedPair(t, ca, pki.RoleServer, "s1").Leaf}) {
		t.Error("the certificate or its CA is not in use")
	}
	if err := creds.Reload(); err != nil || !creds.Uses(next.Leaf) {
		t.Errorf("the reload went back to the older certificate: %v", err)
	}
	written := managedPair(t, ca, pki.RoleAgent, "s1")
	if err := m.Write(transport.ManagedFiles{Pairs: map[pki.Role]tls.Certificate{pki.RoleAgent: written}}); err != nil {
		t.Fatal(err)
	}
	if err := creds.Reload(); err != nil || !creds.Uses(written.Leaf) {
		t.Errorf("the reload did not read the files: %v", err)
	}
}

// CAs may be used from memory too. A reload takes the CAs of the files once they change, and keeps a certificate that
// is in no file.
func TestUseRootsWithoutFiles(t *testing.T) {
	m, ca := newManaged(t)
	creds := must(m.Credentials("c1", pki.RoleAgent, "s1"))(t)
	second, third := must(transport.NewAuthority("c1", 0))(t), must(transport.NewAuthority("c1", 0))(t)
	both := [][]byte{ca.Root().Raw, second.Root().Raw}
	uses := func(what string, leaf *x509.Certificate, roots [][]byte) {
		t.Helper()
		if !creds.Uses(leaf) || !bytes.Equal(pki.RootsDigest(creds.Roots()), pki.RootsDigest(roots)) {
			t.Errorf("%s: another certificate, or %d CAs, are in use", what, len(creds.Roots()))
		}
	}
	first := creds.Leaf()
	if err := creds.UseRoots(both); err != nil {
		t.Fatal(err)
	}
	uses("from memory", first, both)
	if err := creds.Reload(); err != nil {
		t.Fatal(err)
	}
	uses("the files are the same", first, both)
	next := managedPair(t, ca, pki.RoleAgent, "s1")
	if err := creds.Use(next, nil); err != nil {
		t.Fatal(err)
	}
	three := append(slices.Clone(both), third.Root().Raw)
	if err := m.Write(transport.ManagedFiles{Roots: three}); err != nil {
		t.Fatal(err)
	}
	if err := creds.Reload(); err != nil {
		t.Fatal(err)
	}
	uses("the files have three", next.Leaf, three)
	if !creds.Trusts([]*x509.Certificate{managedPair(t, third, pki.RoleServer, "s1").Leaf}) {
		t.Error("the third CA is not trusted")
	}
	wantCode(t, creds.UseRoots([][]byte{{1}}), model.CodeCertificateInvalid)
}
