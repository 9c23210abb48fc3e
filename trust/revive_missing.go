package trust

import (
	"context"
	"crypto/tls"
	"path/filepath"

	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// makeMissing makes all files of the directory tls for a server that has none, from its state and its keyring. A server
// that was recovered from a snapshot has only those. It does nothing if the state has no CA, because then the machine
// has never been a member. Codes: keyring_invalid, not_found (no keyring), member_revoked, file_error.
func (r Revival) makeMissing(ctx context.Context, dir transport.Managed) error {
	state, err := r.State(ctx)
	if err != nil || !state.Managed() {
		return nil // what needs the certificate says which file is missing
	}
	who, _ := memberOf(pki.Identity{Role: pki.RoleServer, Name: r.Name})
	if row, ok := state.TrustMemberOf(who); ok && row.RevokedIndex != 0 {
		return revoked(who)
	}
	ring, err := keyring.Open(filepath.Join(r.DataDir, keyring.FileName))
	if err != nil {
		return err
	}
	ca, err := authority(ring, &state)
	if err != nil {
		return err
	}
	gossip, err := gossipKeys(ring, &state)
	if err != nil {
		return err
	}
	der, key, err := pki.NewRequest(pki.RoleServer, r.Name, nil)
	if err != nil {
		return err
	}
	request, err := pki.ParseRequest(der, pki.RoleServer)
	if err != nil {
		return err
	}
	request.AdmittedAt = state.MomentNumber() // this state does not revoke the server
	cert, err := ca.Sign(request, r.lifetime())
	if err != nil {
		return err
	}
	pair := tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
	if err := write(ctx, dir, pki.RoleServer, pair, roots(&state), gossip); err != nil {
		return err
	}
	r.Logger.Warn("the certificate of this server was missing, and was made from its state", "directory", dir.Path(),
		"expires", pki.Stamp(cert.NotAfter))
	return nil
}
