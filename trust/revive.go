package trust

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
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
	Agent   bool   // the process of the server runs an agent too
	DataDir string // of the server
	// State reads the state that the stopped server has on its disk.
	State    func(context.Context) (fsm.State, error)
	Lifetime time.Duration // default transport.MemberTTL
	Logger   hclog.Logger
}

// Revive gives a server whose certificate has expired while it was off, or that lacks a file of the directory tls, new
// files before the server starts. It also renews an expired certificate of the agent of the same process. It needs no
// other server: the state on the disk has the CA's key, and the keyring decrypts it. An expired certificate is renewed
// for the same key, so the other servers need no new row. It does nothing while the certificates are valid, nor while
// they are not valid yet: then the clock is behind, and a new certificate would end by that clock. It blocks while it
// reads the state.
//
// If the server's certificate can't be written, for example because the disk is full, Revive returns it as unwritten.
// If there is none for the agent, it only logs why, because the server can start without its agent. Codes:
// certificate_invalid, member_revoked, those of keyring.Open, and those of State.
func Revive(ctx context.Context, r Revival) (unwritten *tls.Certificate, err error) {
	source := &revivalSource{of: r, dir: transport.ManagedDir(r.DataDir)}
	if unwritten, err = source.revive(ctx, pki.RoleServer); err != nil || !r.Agent {
		return unwritten, err
	}
	if _, err := source.revive(ctx, pki.RoleAgent); err != nil {
		r.Logger.Error("the certificate of this machine's agent was not renewed", "error", err)
	}
	return unwritten, nil
}

// revivalSource has the CA of a Revival, after the first certificate that needs it.
type revivalSource struct {
	of     Revival
	dir    transport.Managed
	ca     *transport.Authority
	state  fsm.State
	gossip [][]byte // the keys of the gossip pool in the state
}

func (s *revivalSource) revive(ctx context.Context, role pki.Role) (inMemory *tls.Certificate, err error) {
	pair, found, err := s.dir.Pair(role)
	if role == pki.RoleServer {
		if why := lacking(s.dir, found, err); why != nil {
			return nil, s.of.makeMissing(ctx, s.dir, pair.Leaf, why)
		}
	}
	if err != nil || !found || time.Now().Before(pair.Leaf.NotAfter) {
		return nil, err
	}
	if s.ca == nil {
		if err = s.open(ctx); err != nil {
			return nil, s.refuse(role, pair.Leaf, err)
		}
	}
	who, _ := memberOf(pki.Identity{Role: role, Name: s.of.Name})
	if row, ok := s.state.TrustMemberOf(who); ok && row.RevokedIndex != 0 {
		return nil, revoked(who)
	}
	cert, err := signAgain(s.ca, role, s.of.Name, pair.Leaf, s.of.lifetime())
	if err != nil {
		return nil, err
	}
	old := pair.Leaf
	pair.Certificate, pair.Leaf = [][]byte{cert.Raw}, cert
	log := s.of.Logger.With("role", role, "expires", pki.Stamp(cert.NotAfter))
	next := unwritten{pair: pair, roots: roots(&s.state), gossip: s.gossip, at: s.state.MomentNumber()}
	err = next.write(ctx, s.dir, role)
	switch {
	case refusedAs(err, model.CodeFile):
		log.Error("an expired certificate was renewed before the start, but can't be written", "error", err)
		return &pair, nil
	case refusedAs(err, model.CodeCertificateInvalid): // the state is older than the files, and its CA was dropped
		return nil, s.refuse(role, old, err)
	case err == nil:
		log.Warn("an expired certificate was renewed before the start")
	}
	return nil, err
}

// refuse says why an expired certificate is not renewed.
func (s *revivalSource) refuse(role pki.Role, expired *x509.Certificate, why error) error {
	return model.Refuse(model.CodeCertificateInvalid, "the certificate %s expired at %s, and this server can't make a "+
		"new one: %s", s.dir.CertFile(role), pki.Stamp(expired.NotAfter), model.Reason(why)).
		WithHint("mend that first. If the clock of this machine is right and the state is too old or can't be read, " +
			"replace this server: outspan server remove NAME, outspan server revoke NAME, then let it join with an empty data " +
			"directory")
}

// open gets the CA, from the file of a cluster that never had a leader, or from the state with its gossip keys.
func (s *revivalSource) open(ctx context.Context) error {
	state, err := s.of.State(ctx)
	if err != nil && !neverStarted(err) {
		return err
	}
	s.state = state
	if !state.Managed() {
		ca, found, fileErr := s.dir.Authority()
		if found || fileErr != nil {
			s.ca = ca
			return fileErr
		}
		if err != nil {
			return err
		}
	}
	ring, err := keyring.Open(filepath.Join(s.of.DataDir, keyring.FileName))
	if err != nil {
		return err
	}
	if s.gossip, err = gossipKeys(ring, &state); err != nil {
		return err
	}
	s.ca, err = authority(ring, &state)
	return err
}

// neverStarted reports whether an error of Revival.State says that the server has no state yet.
func neverStarted(err error) bool { return refusedAs(err, model.CodeInvalid, model.CodeNotFound) }

// signAgain issues a certificate like an expired one, for the same key.
func signAgain(ca *transport.Authority, role pki.Role, name string, old *x509.Certificate,
	lifetime time.Duration) (*x509.Certificate, error) {
	key, ok := old.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return nil, model.Refuse(model.CodeCertificateInvalid, "the key of the %s is of a kind that outspan does not make",
			role)
	}
	return ca.Sign(pki.Request{Role: role, Name: name, Hosts: hostsOf(old), PublicKey: key,
		AdmittedAt: pki.AdmittedAt(old)}, lifetime)
}

func (r Revival) lifetime() time.Duration {
	if r.Lifetime <= 0 {
		return transport.MemberTTL
	}
	return r.Lifetime
}
