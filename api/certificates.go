package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Certificate is the newest certificate of a person or script in a cluster that makes its certificates itself.
type Certificate struct {
	Name         string           `json:"name"`
	Key          string           `json:"key" doc:"SHA-256 of its public key (SPKI), in hexadecimal; empty if the name was revoked and never had one from the cluster"`
	CreatedBy    model.Actor      `json:"created_by"`
	IssuedIndex  uint64           `json:"issued_index" doc:"the log entry of the newest certificate; 0 if there was none"`
	NotAfter     *time.Time       `json:"not_after" doc:"when the newest certificate expires; null if there was none"`
	State        CertificateState `json:"state" enum:"active,expired,revoked,ca_replaced,ca_dropped" doc:"ca_replaced: good until the CA that signed it is dropped; ca_dropped: refused, because that CA was dropped. A name that was revoked and has no certificate is revoked"`
	Revoked      bool             `json:"revoked" doc:"by an operator, or by a recovery of the servers"`
	RevokedIndex uint64           `json:"revoked_index,omitempty" doc:"the log entry of the revocation by an operator"`
	Reason       string           `json:"reason,omitempty" doc:"why it was revoked"`
}

// CertificateState says whether the servers accept a person's certificate.
type CertificateState string

// The states of certificates. The servers accept those that are active or of a CA that was replaced.
const (
	CertificateActive     CertificateState = "active"
	CertificateExpired    CertificateState = "expired"
	CertificateRevoked    CertificateState = "revoked"
	CertificateCAReplaced CertificateState = "ca_replaced" // accepted until its CA is dropped
	CertificateCADropped  CertificateState = "ca_dropped"
)

// CertificateBody asks for a certificate of a person or script.
type CertificateBody struct {
	Request string          `json:"request" maxLength:"16384" doc:"PKCS#10 request in PEM, for an ECDSA key on P-256 and the subject CN=cli/NAME"`
	TTL     *model.Duration `json:"ttl,omitempty" doc:"1s to 365 days; default 90 days. It never outlives the CA"`
}

// CertificateReply is the answer to a change of a person's certificates.
type CertificateReply struct {
	Written
	Certificate *Certificate `json:"certificate,omitempty" doc:"absent when its row was dropped since"`
}

// NewCertificateReply is the answer to the request for a person's certificate.
type NewCertificateReply struct {
	CertificateReply
	PEM   string `json:"pem,omitempty" doc:"the certificate; absent in a dry run"`
	CAPEM string `json:"ca_pem,omitempty" doc:"the certificates of the cluster's CAs; absent in a dry run"`
}
