package trust

import (
	"bytes"
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// foundTime limits one attempt to put the first keys into the state.
const foundTime = 40 * time.Second

// founding puts the first keys of a cluster into its state. They come from the files of outspan up or outspan ca adopt;
// it has no state of its own. On the leader, Engine.Lead runs it until the state has the keys. On each server,
// Engine.Run runs dropCAKey, and Engine passes it the question of the leader for the CA's key. It is safe for
// concurrent use: the state refuses a second group of first keys as stale.
type founding struct {
	name    string // of this server
	dir     transport.Managed
	store   Store
	servers Cluster
	peers   Asker
	keyring *serverKeyring
	handOut func(context.Context, keyring.Key) error // keyringRotation.handOut
	log     hclog.Logger
}

// run puts the first keys of the cluster into the state, if this machine has them. It blocks until the state
// has them, or until ctx ends.
func (f *founding) run(ctx context.Context) {
	retry := backoff{first: 200 * time.Millisecond, last: 10 * time.Second}
	for ctx.Err() == nil {
		err := f.found(ctx)
		if err == nil {
			return
		}
		f.log.Error("the CA's key is not in the state yet, so nobody can join", "error", err)
		sleep(ctx, retry.after())
	}
}

// found puts the data key, the CA's key and the gossip key into the state. It also enters this server, the agent of
// the same machine, and the agents of the nodes that the state has, as members. All of it is one group of commands, so
// a crash leaves either everything or nothing. Each other server of the configuration must have the key of the keyring
// that encrypts the data key: otherwise the loss of this machine could lose the CA.
func (f *founding) found(ctx context.Context) error {
	if f.store.Current().Managed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, foundTime)
	defer cancel()
	if err := f.shareFirstKey(ctx); err != nil {
		return err
	}
	ca, err := f.firstCA(ctx)
	if err != nil {
		return err
	}
	key, err := ca.KeyDER()
	if err != nil {
		return err
	}
	gossip, err := f.dir.GossipKeys()
	if err != nil {
		return err
	}
	ring, err := f.keyring.get()
	if err != nil {
		return err
	}
	data, wrapped := ring.WrapNew()
	name := func(kind model.KeyKind) model.KeyName { return model.NewKeyName(kind, 1) }
	group := []fsm.Command{&fsm.KeyPut{Name: name(model.KeyData), Version: 1, Phase: model.KeyActive,
		Under: string(wrapped.KEK), Sealed: wrapped.Bytes}}
	for _, one := range [...]struct {
		kind          model.KeyKind
		plain, public []byte
	}{{model.KeyCA, key, ca.Root().Raw}, {model.KeyGossip, gossip[0], nil}} {
		sealed, err := data.Seal(string(name(one.kind)), 1, one.plain)
		if err != nil {
			return err
		}
		group = append(group, &fsm.KeyPut{Name: name(one.kind), Version: 1, Phase: model.KeyActive,
			Under: string(name(model.KeyData)), Sealed: sealed, Public: one.public})
	}
	for _, role := range [...]pki.Role{pki.RoleServer, pki.RoleAgent} {
		pair, found, err := f.dir.Pair(role)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		who, _ := memberOf(pki.Identity{Role: role, Name: f.name})
		if _, known := f.store.Current().TrustMemberOf(who); known {
			continue // it joined by a token, with a certificate of the operator's CA
		}
		group = append(group, &fsm.MemberFound{Subject: who, Key: pki.KeyHash(pair.Leaf),
			NotAfter: pair.Leaf.NotAfter.UnixMilli()})
	}
	group = append(group, &fsm.AgentsFound{NotAfter: ca.NotAfter().UnixMilli()})
	if err := f.servers.Submit(ctx, group); err != nil {
		return err
	}
	f.log.Info("the keys of the cluster are in its state now, encrypted by the keyring", "keyring", ring.Active())
	return nil
}

// dropCAKey removes the file with the CA's key once the state has that key. A published state is committed, so the key
// is then on the disks of a majority. If the file can't be removed, it tries again, with pauses from 1 s to 10 min.
func (f *founding) dropCAKey(ctx context.Context) {
	retry := backoff{first: time.Second, last: 10 * time.Minute}
	for ctx.Err() == nil {
		woken, cancel := f.store.WatchTopic("keys")
		wait := lookAgain // ca adopt may write the file although the state has the key
		if err := f.dropCAKeyNow(); err != nil {
			wait = retry.after()
			f.log.Error("the file with the CA's key is still there: who reads it can make any certificate", "file",
				f.dir.CAKeyFile(), "retry_in", wait, "error", err)
		} else {
			retry.reset()
		}
		timer := time.NewTimer(wait)
		select {
		case <-woken:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		cancel()
	}
}

func (f *founding) dropCAKeyNow() error {
	state := f.store.Current()
	if !state.Managed() {
		return nil
	}
	ca, found, err := f.dir.Authority()
	if !found || err != nil {
		return err
	}
	key, err := ca.KeyDER()
	if err != nil {
		return err
	}
	ring, err := f.keyring.get()
	if err != nil {
		return err
	}
	for _, row := range state.KeysOf(model.KeyCA) {
		if !bytes.Equal(row.Public, ca.Root().Raw) {
			continue
		}
		kept, err := openKey(ring, state, row)
		if err != nil {
			return err
		}
		if bytes.Equal(kept, key) {
			return f.dir.DropCAKey()
		}
	}
	return model.Refuse(model.CodeConflict, "the state has the key of another CA").
		WithHint("move the file away if nothing needs it")
}
