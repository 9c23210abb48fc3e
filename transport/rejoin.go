package transport

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"slices"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Bounds of the fields of a RejoinRequest, in bytes.
const (
	maxRejoinCert      = 8 << 10
	maxRejoinBoot      = 100
	maxRejoinSignature = 256
)

// RejoinRequest asks for the next certificate of an agent whose certificate has expired. It takes the place of a token
// in a JoinRequest.
type RejoinRequest struct {
	Certificate []byte `cbor:"1,keyasint"` // the one that has expired, as DER
	// Request is a request for a certificate as pki.NewRequest makes it, for a new key and the agent's own name. If a
	// reply was lost, the agent repeats the same request, so that the cluster knows one new key and not two.
	Request []byte `cbor:"2,keyasint"`
	Boot    string `cbor:"3,keyasint,omitempty"` // the kernel's id of the machine's boot, as the agent registers it
	// Signature is by the key of Certificate. It is good for these fields on this connection only. Rejoin fills it in.
	Signature []byte `cbor:"4,keyasint"`

	bound []byte // what Signature signs, or nil if the request has not come from a connection
}

// RejoinClaim is the content of a RejoinRequest whose sender has proved that it has the key of Certificate. Whether the
// certificate is worth anything is still to be checked.
type RejoinClaim struct {
	Certificate []byte `cbor:"1,keyasint"`
	Request     []byte `cbor:"2,keyasint"`
	Boot        string `cbor:"3,keyasint,omitempty"`
}

// Claim checks the signature. Codes: invalid (the certificate is damaged), forbidden (the signature is by another key,
// for another request or for another connection).
func (r *RejoinRequest) Claim() (RejoinClaim, error) {
	cert, err := x509.ParseCertificate(r.Certificate)
	if err != nil {
		return RejoinClaim{}, model.Refuse(model.CodeInvalid, "the expired certificate is damaged: %s",
			model.Clip(err.Error())).WithHint("let that machine join with a token: outspan join")
	}
	if r.bound == nil || cert.CheckSignature(x509.ECDSAWithSHA256, r.bound, r.Signature) != nil {
		return RejoinClaim{}, model.Refuse(model.CodeForbidden,
			"the sender has not proved that it has the key of the certificate %q", model.Clip(cert.Subject.CommonName)).
			WithHint("if that machine lost its key, let it join with a token: outspan join")
	}
	return RejoinClaim{r.Certificate, r.Request, r.Boot}, nil
}

// rejoinLabel is the label of the keying material (RFC 5705) that ties a signature to a connection.
const rejoinLabel = "EXPORTER-outspan-rejoin"

// bind computes what the signature signs on a connection. Both ends of a connection compute the same, and no two
// connections have the same keying material. So a server that gets a signature can't use it at another server.
func (r *RejoinRequest) bind(state tls.ConnectionState) error {
	material, err := state.ExportKeyingMaterial(rejoinLabel, nil, sha256.Size)
	if err != nil {
		return model.Refuse(model.CodeInternal, "the connection has no keying material: %v", err)
	}
	r.bindTo(material)
	return nil
}

// bindTo does what bind does. All parts but the last have a fixed length, so different requests sign different bytes.
func (r *RejoinRequest) bindTo(material []byte) {
	cert, request := sha256.Sum256(r.Certificate), sha256.Sum256(r.Request)
	r.bound = slices.Concat([]byte(rejoinLabel), material, cert[:], request[:], []byte(r.Boot))
}

// sign fills in the signature for a connection.
func (r *RejoinRequest) sign(state tls.ConnectionState, key crypto.PrivateKey) error {
	signer, ok := key.(crypto.Signer)
	if !ok {
		return model.Refuse(model.CodeCertificateInvalid, "the expired certificate has no key that can sign").
			WithHint("let this machine join with a token: outspan join")
	}
	if err := r.bind(state); err != nil {
		return err
	}
	return r.signBound(signer)
}

func (r *RejoinRequest) signBound(signer crypto.Signer) error {
	sum := sha256.Sum256(r.bound)
	signature, err := signer.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		return model.Refuse(model.CodeInternal, "can't sign with the key of the expired certificate: %v", err)
	}
	r.Signature = signature
	return nil
}

// check refuses a request with a field that is missing or out of bounds. Code: invalid.
func (r *RejoinRequest) check() error {
	for _, field := range [...]struct {
		name             string
		has, least, most int
	}{
		{"expired certificate", len(r.Certificate), 1, maxRejoinCert},
		{"certificate request", len(r.Request), 1, maxJoinCSR},
		{"id of the boot", len(r.Boot), 0, maxRejoinBoot},
		{"signature", len(r.Signature), 1, maxRejoinSignature},
	} {
		if field.has < field.least || field.has > field.most {
			return model.Refuse(model.CodeInvalid, "the %s has %d bytes, and must have %d to %d", field.name, field.has,
				field.least, field.most)
		}
	}
	return nil
}

// Rejoin asks the servers at addresses (host:port) for the next certificate of an agent whose certificate has expired,
// one after the other until one of them answers. old is that certificate with its key, and roots are the CAs that the
// agent trusts. It proves that it has the key only to a server that pki.RejoinPeer accepts. r.Certificate and
// r.Signature are ignored.
//
// It retries and blocks as Join does. A failed call may be repeated with the same r. Codes: as for Join, without those
// of tokens; certificate_invalid if old has no certificate, or no key that can sign.
func Rejoin(ctx context.Context, addresses []string, roots []*x509.Certificate, old tls.Certificate,
	r RejoinRequest) (RenewReply, error) {
	if len(old.Certificate) == 0 {
		return RenewReply{}, model.Refuse(model.CodeCertificateInvalid, "there is no certificate to return with").
			WithHint("let this machine join with a token: outspan join")
	}
	r.Certificate = old.Certificate[0]
	n := newNewcomer()
	visit := errand{
		config: pki.RejoinConfig(roots, n.now),
		server: func(state tls.ConnectionState) (pki.JoinServer, error) { return pki.RejoinPeer(state, roots, n.now()) },
		request: func(state tls.ConnectionState) (JoinRequest, error) {
			signed := r
			err := signed.sign(state, old.PrivateKey)
			return JoinRequest{Rejoin: &signed}, err
		},
	}
	reply, _, err := n.seek(ctx, addresses, visit)
	if err != nil {
		return RenewReply{}, err
	}
	return RenewReply{Chain: reply.Agent, Roots: reply.Roots, GossipKeys: reply.GossipKeys, Servers: reply.Servers}, nil
}
