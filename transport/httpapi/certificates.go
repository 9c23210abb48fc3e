package httpapi

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Bounds of the lifetime of a person's certificate.
const (
	defaultPersonTTL = 90 * 24 * model.Hour
	maxPersonTTL     = 365 * 24 * model.Hour
)

// SignPerson signs a certificate for a person with the CA of a state, for at most ttl. It also returns the certificates
// of all CAs, as DER.
type SignPerson func(state *fsm.State, r pki.Request, ttl time.Duration) (cert *x509.Certificate, roots [][]byte,
	err error)

type certificateList struct{ ListParams }

type newCertificateInput struct {
	WriteParams
	Input api.CertificateBody

	name   string // set by prepare or signAgain, for answer
	signed *x509.Certificate
	roots  [][]byte
}

func (in *newCertificateInput) body() any { return &in.Input }

type certificateInput struct {
	WriteParams
	Name  string `path:"name" maxLength:"128"`
	Input api.RevokeBody
}

func (in *certificateInput) body() any { return &in.Input }

func certificateOperations(s *Server) []operation {
	people := getRoute("list-certificates", "/v1/certificates", "trust",
		"List the certificates of people, the newest of each name")
	people.allow = forCLI
	return []operation{
		list(s, people, listing[certificateList, api.Certificate]{topics: topics[certificateList]("people"),
			rows: listCertificates}),
		write(s, route{id: "create-certificate", path: "/v1/certificates", tag: "trust",
			summary: "Sign a certificate for a person; earlier ones of the name stay good"},
			createCertificate(s.cfg.SignPerson)),
		write(s, route{id: "revoke-certificate", path: "/v1/certificates/{name}/revoke", tag: "trust",
			summary: "Revoke all certificates of a person, also those that were made with files"}, revokeCertificate()),
	}
}

func listCertificates(r *reading, _ *certificateList, from string, yield func(string, api.Certificate) bool) error {
	if !r.Managed() {
		return signsNobody()
	}
	for name, p := range r.People.From(from) {
		if p.Everyone() {
			continue
		}
		if !yield(name, certificateOf(r, p)) {
			break
		}
	}
	return nil
}

func certificateOf(r *reading, p *fsm.Person) api.Certificate {
	v := api.Certificate{Name: p.Subject.Name, Key: hex.EncodeToString(p.Key), CreatedBy: p.Creator,
		IssuedIndex: p.IssuedIndex, Revoked: p.RevokedIndex != 0 || r.PersonVoid(p.Subject.Name, p.Number),
		RevokedIndex: p.RevokedIndex, Reason: p.Reason}
	if p.NotAfter != 0 {
		end := time.UnixMilli(p.NotAfter).UTC().Truncate(time.Second)
		v.NotAfter = &end
	}
	v.State = certificateState(r, p, v.Revoked)
	return v
}

// certificateState returns the state of a person's certificate. It compares the CAs with the index at which the
// certificate was signed, not recorded: another CA may have become active in between.
func certificateState(r *reading, p *fsm.Person, revoked bool) api.CertificateState {
	issuer, known := r.CAAt(fsm.IndexOf(p.Number))
	switch {
	case revoked || p.IssuedIndex == 0:
		return api.CertificateRevoked
	case time.Now().UnixMilli() >= p.NotAfter:
		return api.CertificateExpired
	case !known:
		return api.CertificateCADropped
	case issuer.Phase != model.KeyActive:
		return api.CertificateCAReplaced
	}
	return api.CertificateActive
}

// signsNobody returns the refusal of everything about people in a cluster that makes no certificates.
func signsNobody() *model.Error {
	return model.Refuse(model.CodeNotSupported, "this cluster does not make certificates itself").
		WithHint("use the directory of your CA: outspan tls cert create --cli NAME; such a cluster can't revoke certificates")
}

func createCertificate(sign SignPerson) change[newCertificateInput, api.NewCertificateReply] {
	return change[newCertificateInput, api.NewCertificateReply]{
		prepare: func(r *reading, in *newCertificateInput) ([]fsm.Command, error) {
			switch {
			case sign == nil:
				return nil, signsNobody()
			case !r.Managed():
				return nil, noCAYet()
			}
			return in.sign(r, sign)
		},
		answer: func(o *outcome, in *newCertificateInput) (api.NewCertificateReply, error) {
			if o.commands == nil {
				if err := in.signAgain(o, sign); err != nil {
					return api.NewCertificateReply{}, err
				}
			}
			reply := api.NewCertificateReply{CertificateReply: o.certificateReply(in.name)}
			if !o.DryRun {
				reply.PEM, reply.CAPEM = certificatePEM(in.signed.Raw), certificatePEM(in.roots...)
			}
			return reply, nil
		},
	}
}

// sign signs the requested certificate, and returns the command that records it. Codes: invalid, forbidden, and those
// of SignPerson.
func (in *newCertificateInput) sign(r *reading, sign SignPerson) ([]fsm.Command, error) {
	request, err := in.request()
	if err != nil {
		return nil, err
	}
	ttl := defaultPersonTTL
	if in.Input.TTL != nil {
		ttl = *in.Input.TTL
	}
	if ttl < model.Second || ttl > maxPersonTTL {
		return nil, model.Refuse(model.CodeInvalid, "the certificate of a person lasts 1s to 365d, not %s", ttl).
			WithHint("give another --ttl")
	}
	request.AdmittedAt = r.MomentNumber()
	if in.signed, in.roots, err = sign(&r.State, request, time.Duration(ttl)*time.Millisecond); err != nil {
		return nil, err
	}
	return []fsm.Command{&fsm.PersonAdmit{Subject: personNamed(in.name), Key: request.KeyHash(),
		NotAfter: in.signed.NotAfter.UnixMilli(), Number: request.AdmittedAt}}, nil
}

// signAgain signs the certificate of an earlier request with the same id, whose answer may be lost. It has the same
// number and the same end. Code: conflict if that certificate was replaced or revoked, or has expired.
func (in *newCertificateInput) signAgain(o *outcome, sign SignPerson) error {
	request, err := in.request()
	if err != nil {
		return err
	}
	p, ok := o.People.Get(in.name)
	good := ok && p.IssuedIndex == o.Written.Index && bytes.Equal(p.Key, request.KeyHash()) && sign != nil
	if good {
		state := certificateOf(o.reading, p).State
		good = state == api.CertificateActive || state == api.CertificateExpired // the latter has its own refusal
	}
	if !good {
		return refusedAt(model.Refuse(model.CodeConflict,
			"the certificate of the earlier request with this id, or its CA, was replaced or revoked since").
			WithHint("make another one, with another request id"), o.Written.Index)
	}
	ttl := time.Until(time.UnixMilli(p.NotAfter))
	if ttl <= 0 {
		return refusedAt(model.Refuse(model.CodeConflict, "the certificate of the earlier request with this id has expired").
			WithHint("make another one, with another request id"), o.Written.Index)
	}
	request.AdmittedAt = p.Number
	in.signed, in.roots, err = sign(&o.State, request, ttl)
	return err
}

// request reads the request in the body, and notes the name. Codes: invalid, forbidden.
func (in *newCertificateInput) request() (pki.Request, error) {
	block, rest := pem.Decode([]byte(in.Input.Request))
	if block == nil || block.Type != requestPEM || len(bytes.TrimSpace(rest)) > 0 {
		return pki.Request{}, model.Refuse(model.CodeInvalid, "request is not one PEM block of the type %s", requestPEM).
			WithHint("use the command, which makes key and request: outspan cert create NAME")
	}
	request, err := pki.ParseRequest(block.Bytes, pki.RoleCLI)
	in.name = request.Name
	return request, err
}

const requestPEM = "CERTIFICATE REQUEST"

func certificatePEM(all ...[]byte) string {
	var text []byte
	for _, der := range all {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return string(text)
}

func revokeCertificate() change[certificateInput, api.CertificateReply] {
	return change[certificateInput, api.CertificateReply]{
		prepare: func(r *reading, in *certificateInput) ([]fsm.Command, error) {
			if !r.Managed() {
				return nil, signsNobody()
			}
			return []fsm.Command{&fsm.PersonRevoke{Subject: personNamed(in.Name), Reason: in.Input.Reason}}, nil
		},
		answer: func(o *outcome, in *certificateInput) (api.CertificateReply, error) {
			return o.certificateReply(in.Name), nil
		},
	}
}

func personNamed(name string) model.Subject {
	return model.Subject{Kind: model.SubjectCert, Name: name}
}

func (o *outcome) certificateReply(name string) api.CertificateReply {
	reply := api.CertificateReply{Written: o.Written}
	if p, ok := o.People.Get(name); ok {
		v := certificateOf(o.reading, p)
		reply.Certificate = &v
	}
	return reply
}
