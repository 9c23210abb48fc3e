package trust

import (
	"crypto/x509"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// SignPerson signs a certificate for a person or script with the CA of a state. It is valid for ttl, but never longer
// than the CA. The caller sets the request's AdmittedAt, and hands the certificate out only after a PersonAdmit for it
// is committed. roots are the certificates of all CAs, as DER. SignPerson does not block. Codes: busy if there is no CA
// yet; invalid; certificate_invalid if the CA has expired; those of the keyring.
func (e *Engine) SignPerson(state *fsm.State, r pki.Request, ttl time.Duration) (cert *x509.Certificate, all [][]byte,
	err error) {
	ring, err := e.keyring.get()
	if err != nil {
		return nil, nil, err
	}
	ca, err := authority(ring, state)
	if err != nil {
		return nil, nil, err
	}
	if cert, err = ca.SignAt(e.cfg.Credentials.Now(), r, ttl); err != nil {
		return nil, nil, err
	}
	return cert, roots(state), nil
}

// admitPerson refuses a certificate of a person that is void. One without a row counts too: it was made with files.
func admitPerson(state *fsm.State, name string, leaf *x509.Certificate) error {
	if !state.PersonVoid(name, pki.AdmittedAt(leaf)) {
		return nil
	}
	return model.Refuse(model.CodeMemberRevoked, "this certificate of %s was revoked, or is older than a recovery of the "+
		"servers", name).
		WithHint("make another one on a server: outspan cert create %s", name)
}
