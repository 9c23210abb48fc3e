package trust

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Revival is what Revive needs. All fields are required, except Lifetime.
type Revival struct {
	Name    string // of the server and of the agent of its machine
	DataDir string // of the server
	// State reads the state that the stopped server has on its disk.
	State    func(context.Context) (fsm.State, error)
	Lifetime time.Duration // default transport.MemberTTL
	Logger   hclog.Logger
}

// Revive gives a server whose certificate has expired while it was off, or that has none, a new one before the server
// starts. It does the same for an expired certificate of the agent of its machine. It needs no other server: the
// state on the disk has the CA's key, and the keyring decrypts it. The key of an expired certificate stays the same,
// so the other servers need no new row. It does nothing while all certificates are good. It blocks while it reads the
// state. Codes: certificate_invalid, member_revoked, those of keyring.Open, and those of State.
func Revive(ctx context.Context, r Revival) error {
	dir := transport.ManagedDir(r.DataDir)
	var ca *transport.Authority
	var state fsm.State
	for _, role := range [...]pki.Role{pki.RoleServer, pki.RoleAgent} {
		pair, found, err := dir.Pair(role)
		if err != nil {
			return err
		}
		if !found && role == pki.RoleServer {
			if err := r.makeMissing(ctx, dir); err != nil {
				return err
			}
			continue
		}
		if !found || time.Now().Before(pair.Leaf.NotAfter) {
			continue
		}
		if ca == nil {
			if ca, state, err = r.authority(ctx, dir); err != nil {
				return model.Refuse(model.CodeCertificateInvalid, "the certificate %s expired at %s, and this server can't "+
					"make a new one: %s", dir.CertFile(role), pki.Stamp(pair.Leaf.NotAfter), model.Reason(err)).
					WithHint("let this machine join again with a token: outspan join")
			}
		}
		who, _ := memberOf(pki.Identity{Role: role, Name: r.Name})
		if row, ok := state.TrustMemberOf(who); ok && row.RevokedIndex != 0 {
			return revoked(who)
		}
		cert, err := r.again(ca, role, pair.Leaf)
		if err != nil {
			return err
		}
		pair.Certificate, pair.Leaf = [][]byte{cert.Raw}, cert
		if err := write(dir, role, pair, nil, nil); err != nil {
			return err
		}
		r.Logger.Warn("an expired certificate was renewed before the start", "role", role, "expires",
			pki.Stamp(cert.NotAfter))
	}
	return nil
}

// authority returns the CA, from the file of a cluster that never had a leader, or from the state.
func (r Revival) authority(ctx context.Context, dir transport.Managed) (*transport.Authority, fsm.State, error) {
	state, err := r.State(ctx)
	refusal, known := errors.AsType[*model.Error](err)
	fresh := known && (refusal.Code == model.CodeInvalid || refusal.Code == model.CodeNotFound)
	if err != nil && !fresh {
		return nil, fsm.State{}, err
	}
	if !state.Managed() {
		ca, found, fileErr := dir.Authority()
		if found || fileErr != nil {
			return ca, state, fileErr
		}
		if err != nil {
			return nil, fsm.State{}, err
		}
	}
	ring, err := keyring.Open(filepath.Join(r.DataDir, keyring.FileName))
	if err != nil {
		return nil, fsm.State{}, err
	}
	ca, err := authority(ring, &state)
	return ca, state, err
}

// again issues a certificate like an expired one, for the same key.
func (r Revival) again(ca *transport.Authority, role pki.Role, old *x509.Certificate) (*x509.Certificate, error) {
	key, ok := old.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return nil, model.Refuse(model.CodeCertificateInvalid, "the key of the %s is of a kind that outspan does not make",
			role)
	}
	return ca.Sign(pki.Request{Role: role, Name: r.Name, Hosts: hostsOf(old), PublicKey: key}, r.lifetime())
}

func (r Revival) lifetime() time.Duration {
	if r.Lifetime <= 0 {
		return transport.MemberTTL
	}
	return r.Lifetime
}
