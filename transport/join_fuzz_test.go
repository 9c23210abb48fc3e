package transport

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// FuzzJoinMessages: a message of a newcomer or to one is either read, or refused with a code, or ends too early. What
// was read stays the same when it is sent and read again, and a request that passes its checks is within its bounds.
func FuzzJoinMessages(f *testing.F) {
	for _, message := range []any{
		JoinRequest{Token: "osj1.agent.x.y", Agent: []byte{1}, Server: []byte{2}, Address: "10.0.0.4:7640",
			Version: "1.2.3", Labels: map[string]string{"rack": "r1"}},
		JoinRequest{Rejoin: &RejoinRequest{Certificate: []byte{1}, Request: []byte{2}, Boot: "b", Signature: []byte{3}}},
		JoinRequest{Token: "osj1.agent.x.y", Agent: []byte{1}, Rejoin: new(RejoinRequest)},
		JoinReply{Cluster: "c1", Roots: [][]byte{{1}}, Agent: [][]byte{{2}, {3}}, Servers: []string{"10.0.0.1:7640"}},
		JoinReply{Problem: api.NewProblem(model.Refuse(model.CodeBusy, "no").WithHint("later"))},
	} {
		var sent bytes.Buffer
		if err := writeJoin(&sent, message); err != nil {
			f.Fatal(err)
		}
		f.Add(sent.Bytes())
	}
	f.Add([]byte{0, 0, 0, 2, 0xbf, 0xff})
	f.Add([]byte{0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var request JoinRequest
		if stays(t, data, &request, new(JoinRequest)) {
			r := request
			if r.Rejoin != nil {
				if r.check() == nil && (len(r.Rejoin.Certificate) > maxRejoinCert || len(r.Rejoin.Request) > maxJoinCSR ||
					r.Token != "") {
					t.Fatalf("out of bounds: %+v", r)
				}
			} else if r.check() == nil && (len(r.Token) > maxJoinToken || len(r.Server)+len(r.Agent) > 2*maxJoinCSR ||
				len(r.Server)+len(r.Agent) == 0 || len(r.Address) > maxJoinAddress || len(r.Labels) > model.MaxLabels) {
				t.Fatalf("out of bounds: %+v", r)
			}
		}
		stays(t, data, new(JoinReply), new(JoinReply))
	})
}

// FuzzRejoin: of all requests on a connection, only those prove the key that have the content that was signed there.
func FuzzRejoin(f *testing.F) {
	key, err := pki.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		f.Fatal(err)
	}
	signed := RejoinRequest{Certificate: cert, Request: []byte("request"), Boot: "boot"}
	here, elsewhere := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	signed.bindTo(here)
	if err := signed.signBound(key); err != nil {
		f.Fatal(err)
	}
	if _, err := signed.Claim(); err != nil {
		f.Fatal(err)
	}
	f.Add(signed.Certificate, signed.Request, signed.Boot, signed.Signature, true)
	f.Add(signed.Certificate, signed.Request, signed.Boot, signed.Signature, false)
	f.Add(signed.Certificate, []byte("requestb"), "oot", signed.Signature, true)
	f.Fuzz(func(t *testing.T, cert, request []byte, boot string, signature []byte, same bool) {
		r := RejoinRequest{Certificate: cert, Request: request, Boot: boot, Signature: signature}
		if _, err := r.Claim(); err == nil {
			t.Fatal("a request without a connection proves a key")
		}
		if same {
			r.bindTo(here)
		} else {
			r.bindTo(elsewhere)
		}
		genuine := same && bytes.Equal(cert, signed.Certificate) && bytes.Equal(request, signed.Request) &&
			boot == signed.Boot
		switch claim, err := r.Claim(); {
		case err == nil && r.check() == nil && !genuine && bytes.Equal(signature, signed.Signature):
			t.Fatalf("it proves a key: %+v", claim)
		case err != nil && genuine && bytes.Equal(signature, signed.Signature):
			t.Fatal(err)
		}
	})
}

// stays reads a message from data into first, and reports whether that succeeds. Then it sends first, reads the bytes
// into second, and fails the test if the two differ.
func stays(t *testing.T, data []byte, first, second any) bool {
	t.Helper()
	if err := readJoin(bytes.NewReader(data), first); err != nil {
		refusal, ok := errors.AsType[*model.Error](err)
		if ok && (refusal.Code == model.CodeInvalid || refusal.Code == model.CodeTooLarge) || errors.Is(err, io.EOF) ||
			errors.Is(err, io.ErrUnexpectedEOF) {
			return false
		}
		t.Fatalf("refused with %v", err)
	}
	var sent, again bytes.Buffer
	if err := writeJoin(&sent, first); err != nil {
		if errors.Is(err, &model.Error{Code: model.CodeTooLarge}) {
			return true // the shortest encoding of a time can be longer than that in data
		}
		t.Fatal(err)
	}
	if err := readJoin(bytes.NewReader(sent.Bytes()), second); err != nil {
		t.Fatalf("what was sent can't be read: %v", err)
	}
	if err := writeJoin(&again, second); err != nil || !bytes.Equal(sent.Bytes(), again.Bytes()) {
		t.Fatalf("it came back different: %v\n%x\n%x", err, sent.Bytes(), again.Bytes())
	}
	return true
}
