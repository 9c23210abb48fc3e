package trust

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"path/filepath"

	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// lacking returns why the directory tls is of no use to a server: its certificate, the key of that, the roots or the
// gossip key are missing or damaged. found and pairErr are the results of dir.Pair. It returns nil if nothing is
// missing.
func lacking(dir transport.Managed, found bool, pairErr error) error {
	if pairErr != nil || !found {
		return cmp.Or(pairErr, errors.New("there is no certificate"))
	}
	roots, err := dir.Roots()
	if err != nil || len(roots) == 0 {
		return cmp.Or(err, errors.New("there are no roots"))
	}
	_, err = dir.GossipKeys()
	return err
}

// makeMissing makes all files of the directory tls for a server that lacks some, from its state and its keyring. A
// server that was recovered from a snapshot has only those. It does nothing if the state has no CA, because then the
// machine has never been a member. old is the certificate that is there, or nil; why is what is wrong with the files.
// Codes: keyring_invalid, not_found (no keyring), member_revoked, file_error, and those of State.
func (r Revival) makeMissing(ctx context.Context, dir transport.Managed, old *x509.Certificate, why error) error {
	state, err := r.State(ctx)
	if err != nil && !neverStarted(err) {
		return err
	}
	if err != nil || !state.Managed() {
		return nil // what needs the files says which one is missing
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
	var hosts []string
	if old != nil {
		hosts = hostsOf(old)
	}
	der, key, err := pki.NewRequest(pki.RoleServer, r.Name, hosts)
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
	files := transport.ManagedFiles{Roots: roots(&state), GossipKeys: gossip,
		Pairs: map[pki.Role]tls.Certificate{pki.RoleServer: pair}}
	if err := dir.Lock(ctx, func() error { return dir.Write(files) }); err != nil {
		return err
	}
	r.Logger.Warn("files of this server were missing, and were made from its state", "directory", dir.Path(),
		"expires", pki.Stamp(cert.NotAfter), "because", model.Reason(why))
	return nil
}
