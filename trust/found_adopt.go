package trust

import (
	"bytes"
	"context"
	"crypto/x509"
	"slices"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// shareFirstKey gives the key of the keyring that will encrypt the first data key to the other servers of the
// configuration, and has each prove that it has the key. In a cluster that outspan up began, there are none. Codes:
// not_found if no server has a keyring; conflict while a server does not answer, or is not managed yet.
func (f *founding) shareFirstKey(ctx context.Context) error {
	if err := f.keyring.fill(ctx); err != nil {
		return model.Refuse(model.CodeNotFound, "there is no keyring: %s", model.Reason(err)).
			WithHint("if the cluster had certificates of files before, run on one server: outspan ca adopt --ca-key FILE; " +
				"otherwise: outspan server keyring import")
	}
	ring, err := f.keyring.get()
	if err != nil {
		return err
	}
	if err := f.handOut(ctx, ring.Keys()[0]); err != nil {
		return model.Refuse(model.CodeConflict, "the cluster gets its CA when each server is managed: %s",
			model.Reason(err)).
			WithHint("on each server that is not: outspan ca adopt, then restart its process; a server that is gone for good: " +
				"outspan server remove NAME")
	}
	return nil
}

// caReply has a CA and its key, as DER.
type caReply struct {
	Cert []byte `cbor:"1,keyasint"`
	Key  []byte `cbor:"2,keyasint" debug:"secret"`
}

// firstCA returns the CA with its key from the file of this machine, or else from that of another server. Codes:
// not_found if no server has the file; conflict if it is of a CA that this server does not trust; certificate_invalid.
func (f *founding) firstCA(ctx context.Context) (*transport.Authority, error) {
	ca, found, err := f.dir.Authority()
	for _, other := range f.servers.Others() {
		if err != nil || found {
			break
		}
		ca, found, err = f.askCA(ctx, other)
	}
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, model.Refuse(model.CodeNotFound, "neither the state nor %s has the key of the CA", f.dir.CAKeyFile()).
			WithHint("if the cluster had certificates of files before, run on one server: outspan ca adopt --ca-key FILE; if " +
				"a state from before outspan up was restored, put the file back from a backup")
	}
	roots, err := f.dir.Roots()
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(roots, func(root *x509.Certificate) bool { return bytes.Equal(root.Raw, ca.Root().Raw) }) {
		return nil, model.Refuse(model.CodeConflict, "a server has the key of another CA than that in %s",
			f.dir.RootsFile()).
			WithHint("see that ca.pem is the same on each server, and give its key: outspan ca adopt --ca-key FILE")
	}
	return ca, nil
}

// askCA asks a server for the CA and its key. found is false if it has no file with the key.
func (f *founding) askCA(ctx context.Context, server transport.ServerInfo) (ca *transport.Authority, found bool,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, keyTime)
	defer cancel()
	var reply caReply
	if err := ask(ctx, f.peers, server, questionCA, struct{}{}, &reply); err != nil || len(reply.Key) == 0 {
		return nil, false, err
	}
	ca, err = transport.LoadAuthority(reply.Cert, reply.Key)
	return ca, true, err
}

// giveCA answers the leader, which puts the first CA into the state. The reply is empty if this server has no file with
// the key. Every server gets the key with the state anyway. Codes: forbidden for others than the leader;
// member_revoked; certificate_invalid; conflict if the state has a CA.
func (f *founding) giveCA(ctx context.Context) (caReply, error) {
	who, err := askingServer(ctx, f.store)
	if err != nil {
		return caReply{}, err
	}
	leader, _, ok := f.servers.Leader()
	if !ok || leader.Name != who.Name || !f.servers.Includes(who.Name) {
		return caReply{}, model.Refuse(model.CodeForbidden, "%s does not lead, and only the leader needs the CA's key", who)
	}
	if f.store.Current().Managed() {
		return caReply{}, model.Refuse(model.CodeConflict, "the state has a CA already").WithHint("try again in a moment")
	}
	ca, found, err := f.dir.Authority()
	if err != nil || !found {
		return caReply{}, err
	}
	key, err := ca.KeyDER()
	if err != nil {
		return caReply{}, err
	}
	f.log.Warn("the leader gets the CA's key, to put it into the state", "server", who.Name)
	return caReply{ca.Root().Raw, key}, nil
}
