package trust

import (
	"bytes"
	"context"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// foundTime limits one attempt to put the first keys into the state.
const foundTime = 40 * time.Second

// keepFounding puts the first keys of the cluster into the state, if this machine has them. It blocks until the state
// has them, or until ctx ends.
func (e *Engine) keepFounding(ctx context.Context) {
	retry := backoff{first: 200 * time.Millisecond, last: 10 * time.Second}
	for ctx.Err() == nil {
		err := e.found(ctx)
		if err == nil {
			return
		}
		e.log.Error("the CA's key is not in the state yet, so nobody can join", "error", err)
		sleep(ctx, retry.after())
	}
}

// found puts the data key, the CA's key and the gossip key into the state. It also enters this server, the agent of
// the same machine, and the agents of the nodes that the state has, as members. All of it is one group of commands, so
// a crash leaves either everything or nothing. Each other server of the configuration must have the key of the keyring
// that encrypts the data key: otherwise the loss of this machine could lose the CA.
func (e *Engine) found(ctx context.Context) error {
	if e.cfg.Store.Current().Managed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, foundTime)
	defer cancel()
	if err := e.shareFirstKey(ctx); err != nil {
		return err
	}
	ca, err := e.firstCA(ctx)
	if err != nil {
		return err
	}
	key, err := ca.KeyDER()
	if err != nil {
		return err
	}
	gossip, err := e.dir.GossipKeys()
	if err != nil {
		return err
	}
	ring, err := e.keyring()
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
		pair, found, err := e.dir.Pair(role)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		who, _ := memberOf(pki.Identity{Role: role, Name: e.cfg.Name})
		if _, known := e.cfg.Store.Current().TrustMemberOf(who); known {
			continue // it joined by a token, with a certificate of the operator's CA
		}
		group = append(group, &fsm.MemberFound{Subject: who, Key: pki.KeyHash(pair.Leaf),
			NotAfter: pair.Leaf.NotAfter.UnixMilli()})
	}
	group = append(group, &fsm.AgentsFound{NotAfter: ca.NotAfter().UnixMilli()})
	if err := e.cfg.Servers.Submit(ctx, group); err != nil {
		return err
	}
	e.log.Info("the keys of the cluster are in its state now, encrypted by the keyring", "keyring", ring.Active())
	return nil
}

// dropCAKey removes the file with the CA's key once the state has that key. A published state is committed, so the key
// is then on the disks of a majority. If the file can't be removed, it tries again, with pauses from 1 s to 10 min.
func (e *Engine) dropCAKey(ctx context.Context) {
	retry := backoff{first: time.Second, last: 10 * time.Minute}
	for ctx.Err() == nil {
		woken, cancel := e.cfg.Store.WatchTopic("keys")
		wait := lookAgain // ca adopt may write the file although the state has the key
		if err := e.dropCAKeyNow(); err != nil {
			wait = retry.after()
			e.log.Error("the file with the CA's key is still there: who reads it can make any certificate", "file",
				e.dir.CAKeyFile(), "retry_in", wait, "error", err)
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

func (e *Engine) dropCAKeyNow() error {
	state := e.cfg.Store.Current()
	if !state.Managed() {
		return nil
	}
	ca, found, err := e.dir.Authority()
	if !found || err != nil {
		return err
	}
	key, err := ca.KeyDER()
	if err != nil {
		return err
	}
	ring, err := e.keyring()
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
			return e.dir.DropCAKey()
		}
	}
	return model.Refuse(model.CodeConflict, "the state has the key of another CA").
		WithHint("move the file away if nothing needs it")
}
