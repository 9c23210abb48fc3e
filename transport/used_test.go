package transport_test

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A certificate that could not be written stays in use when the files are read again. It goes as soon as they have
// another one.
func TestReloadKeepsWhatIsNotWritten(t *testing.T) {
	ca := authority(t, "c1")
	dir := transport.ManagedDir(t.TempDir())
	put := func(pair tls.Certificate) {
		t.Helper()
		if err := dir.Write(transport.ManagedFiles{Roots: [][]byte{ca.Root().Raw},
			Pairs: map[pki.Role]tls.Certificate{pki.RoleAgent: pair}}); err != nil {
			t.Fatal(err)
		}
	}
	key := func() tls.Certificate { return issued(t, ca, must(pki.NewKey())(t)) }
	put(key())
	creds := must(dir.CredentialsAnyTime("c1", pki.RoleAgent, "n1"))(t)
	memory := issued(t, ca, must(pki.NewKey())(t))
	memory.Leaf.NotAfter = memory.Leaf.NotAfter.Add(time.Minute) // a mark to tell it from the others
	if err := creds.Use(memory, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := creds.Reload(); err != nil {
			t.Fatal(err)
		}
		if !creds.NotAfter().Equal(memory.Leaf.NotAfter) {
			t.Fatal("the reload brought the certificate of the files back")
		}
	}
	put(key())
	if err := creds.Reload(); err != nil || creds.NotAfter().Equal(memory.Leaf.NotAfter) {
		t.Errorf("the new certificate of the files is not in use: %v", err)
	}
}
