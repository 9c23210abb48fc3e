package pki

import (
	"crypto/x509"
	"strconv"
)

// AdmittedAt returns the number (fsm.State.MomentNumber) of the state in which the issuer looked up that the holder may
// have the certificate. A server that makes a certificate for itself keeps the number of the one before. So a revoked
// server gets a higher number only by joining again. The result is 0 if the certificate has no number, like those that
// `outspan up` makes.
func AdmittedAt(cert *x509.Certificate) uint64 {
	n, err := strconv.ParseUint(cert.Subject.SerialNumber, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// SubjectSerial returns the serial number in the subject of a certificate with this AdmittedAt, "" for 0.
func SubjectSerial(admittedAt uint64) string {
	if admittedAt == 0 {
		return ""
	}
	return strconv.FormatUint(admittedAt, 10)
}
