package pki

import (
	"crypto/x509"
	"strconv"
)

// AdmittedAt returns the fsm.State.MomentNumber of the state by whose members the certificate was issued. A certificate
// that a server makes for itself has the number of the one before it, so a revoked server can't get a higher number
// without joining again. The result is 0 if the certificate has no number, like those that outspan up makes.
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
