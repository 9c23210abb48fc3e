package reach

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/outspan/outspan/model"
)

// Explain converts an error of crypto/tls or crypto/x509 about a connection to addr to a *model.Error with a hint. If
// err wraps a *model.Error already, Explain returns that *model.Error. It returns nil and all other errors unchanged.
//
// In TLS 1.3 our handshake succeeds before the other end has checked our certificate. A refusal may therefore appear
// only at the first read. So the error of a read must be passed to Explain too. HTTPTransport passes it.
func Explain(addr string, err error) error {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*model.Error](err); ok {
		return own
	}
	if e := explainVerify(addr, err); e != nil {
		return e
	}
	if e := explainAlert(addr, err); e != nil {
		return e
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return model.Refuse(model.CodeNotTLS, "%s does not speak TLS", addr).
			WithHint("check that the address and port are those of an outspan server")
	}
	return err
}

// explainVerify explains why this end refused the other end's certificate. It returns nil if err has another reason.
func explainVerify(addr string, err error) *model.Error {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return model.Refuse(model.CodeCertificateRefused, "the certificate of %s is signed by another CA", addr).
			WithHint("check that both ends use the same CA file (tls.ca_file, OUTSPAN_CACERT); if the cluster has replaced " +
				"its CA, take tls/ca.pem from the data directory of a server")
	}
	if host, ok := errors.AsType[x509.HostnameError](err); ok {
		return model.Refuse(model.CodeCertificateRefused, "the certificate of %s is not valid for the name %s",
			addr, host.Host).
			WithHint("it has the wrong role, or was not made by: outspan tls cert create --server NAME")
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return explainTime(addr, invalid)
		}
		return model.Refuse(model.CodeCertificateRefused, "the certificate of %s is not usable: %v", addr, invalid).
			WithHint("issue a new one with: outspan tls cert create")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return model.Refuse(model.CodeCertificateRefused, "the certificate of %s can't be verified: %v", addr, err).
			WithHint("issue a new one with: outspan tls cert create")
	}
	return nil
}

// explainTime explains why a certificate is not valid now. A wrong clock is a likely reason, and the certificate has
// times by the clock of the other end: so the error names these, the time here, and the difference.
func explainTime(addr string, invalid x509.CertificateInvalidError) *model.Error {
	now := judgedAt(invalid)
	from, until := invalid.Cert.NotBefore, invalid.Cert.NotAfter
	wrong := fmt.Sprintf("expired at %s; the clock here says %s, which is %s later", stamp(until), stamp(now),
		model.Duration(now.Sub(until).Milliseconds()))
	if now.Before(from) {
		wrong = fmt.Sprintf("is not valid before %s; the clock here says %s, which is %s earlier", stamp(from), stamp(now),
			model.Duration(from.Sub(now).Milliseconds()))
	}
	return model.Refuse(model.CodeCertificateRefused, "the certificate of %s %s", addr, wrong).
		WithHint("run date -u on both machines, and set the clock that is wrong; if both are right, renew the certificate " +
			"there, without tls { managed = true } with: outspan tls cert create")
}

// judgedAt returns the time at which crypto/x509 judged a certificate. That may be another time than that of this
// machine's clock. Only the text of the error has it.
func judgedAt(invalid x509.CertificateInvalidError) time.Time {
	var text string
	if _, err := fmt.Sscanf(invalid.Detail, "current time %s is", &text); err == nil {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return at
		}
	}
	return time.Now().Truncate(time.Second)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// explainAlert explains why the other end refused the connection or our certificate. It returns nil if err has another
// reason. crypto/tls exports no type for a received alert, so explainAlert compares the operation name and the message.
func explainAlert(addr string, err error) *model.Error {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return nil
	}
	switch op.Err.Error() {
	case "tls: unknown certificate authority":
		return model.Refuse(model.CodeCertificateRefused, "%s refused this certificate: it is signed by another CA", addr).
			WithHint("use a certificate made with the CA of that cluster")
	case "tls: expired certificate":
		return model.Refuse(model.CodeCertificateRefused,
			"%s refused this certificate: it is expired or not yet valid there; the clock here says %s", addr,
			stamp(time.Now())).
			WithHint("run date -u on both machines, and set the clock that is wrong; the log there names both times. If both " +
				"are right, renew the certificate here, without tls { managed = true } with: outspan tls cert create")
	case "tls: certificate required":
		return model.Refuse(model.CodeCertificateRefused, "%s wants a client certificate", addr).
			WithHint("set OUTSPAN_CLIENT_CERT and OUTSPAN_CLIENT_KEY; make one on a server with: outspan cert create " +
				"NAME; without tls { managed = true }: outspan tls cert create --cli NAME. An access token needs " +
				"auth { tokens = true } in the configuration of the server")
	case "tls: bad certificate", "tls: unsupported certificate", "tls: unknown certificate", "tls: access denied",
		"tls: handshake failure":
		return model.Refuse(model.CodeCertificateRefused, "%s refused this certificate", addr).
			WithHint("it was revoked or replaced, is of another cluster, or its role is not allowed there; the server's log " +
				"says which")
	case "tls: protocol version not supported":
		return model.Refuse(model.CodeNotTLS, "%s does not accept this TLS version", addr).
			WithHint("outspan speaks TLS 1.3 only")
	case "tls: no application protocol":
		return model.Refuse(model.CodeNotTLS, "%s does not speak the protocol asked for", addr).
			WithHint("check that the address and port are those of an outspan server")
	}
	return nil
}
