package cli

import (
	"crypto/ecdsa"
	"crypto/tls"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// expireCertificate replaces a certificate by one for the same key that has expired.
func expireCertificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: expire DIR ROLE NAME CA")
	}
	dir, role := transport.ManagedDir(ts.MkAbs(args[0])), pki.Role(args[1])
	ca, found, err := transport.ManagedDir(ts.MkAbs(args[3])).Authority()
	if err != nil || !found {
		ts.Fatalf("the CA's key: found %v, %v", found, err)
	}
	pair, found, err := dir.Pair(role)
	if err != nil || !found {
		ts.Fatalf("the certificate: found %v, %v", found, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		ts.Fatalf("the key is a %T", pair.PrivateKey)
	}
	cert, err := ca.Sign(pki.Request{Role: role, Name: args[2], PublicKey: &key.PublicKey,
		AdmittedAt: pki.AdmittedAt(pair.Leaf)}, time.Nanosecond)
	ts.Check(err)
	ts.Check(dir.Write(transport.ManagedFiles{Pairs: map[pki.Role]tls.Certificate{
		role: {Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}))
}
