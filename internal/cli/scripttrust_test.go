package cli

import (
	"crypto/ecdsa"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"os"
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

// signBy is the program sign-by DIR. It signs the certificate request on its standard input, as the program of
// tls { issue } does, by the CA in DIR/tls.
func signBy() {
	cert, err := signed(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
}

func signed(dir string) (cert []byte, err error) {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("there is no request in %q", text)
	}
	request, err := pki.ParseRequest(block.Bytes, pki.Role(os.Getenv("OUTSPAN_ROLE")))
	if err != nil {
		return nil, err
	}
	ca, _, err := transport.ManagedDir(dir).Authority()
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Sign(request, time.Hour)
	if err != nil {
		return nil, err
	}
	return leaf.Raw, nil
}
