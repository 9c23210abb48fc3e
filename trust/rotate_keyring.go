package trust

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// keyringRotation makes all servers use a new key of the keyring, and removes old ones. It owns the key of an attempt
// that failed. On the leader, the API begins a rotation with Engine.RotateKeyring and a pruning with
// Engine.PruneKeyring, and founding calls handOut. Other servers ask it which keys this server keeps. It is safe for
// concurrent use: a second rotation or pruning is refused while one runs.
type keyringRotation struct {
	keyring *serverKeyring
	running sync.Mutex // held by the rotation, by a pruning, and while another server's question about keys is answered
	next    keyring.ID // made by a rotation that has not succeeded yet, or ""; guarded by running
}

// RotateKeyring makes a new key-encryption key and gives it to every server of the configuration. Then it makes a new
// data key under it, and encrypts all keys of the state anew. The events name by, who asked for it. The
// key-encryption key before stays in the keyrings, because backups need it. A dry run only asks which servers could
// take part. If RotateKeyring fails before its commit, nothing has changed but keyrings that have a key which nothing
// uses. The next call on the same leader uses that key.
// It blocks for at most about 20 s. Codes: those of Keyring; busy while another rotation runs; conflict if a server
// does not answer or lacks a key; file_error; those of the log.
func (e *Engine) RotateKeyring(ctx context.Context, by model.Actor, dryRun bool) (api.KeyringRotation, error) {
	return e.rotation.rotate(ctx, by, dryRun)
}

func (r *keyringRotation) rotate(ctx context.Context, by model.Actor, dryRun bool) (api.KeyringRotation, error) {
	k := r.keyring
	ring, err := k.leading()
	if err != nil {
		return api.KeyringRotation{}, err
	}
	if !r.running.TryLock() {
		return api.KeyringRotation{}, rotating()
	}
	defer r.running.Unlock()
	before, _ := inUse(k.store.Current())
	reply := api.KeyringRotation{Before: string(before), DryRun: dryRun}
	all := k.standings(ctx, k.servers.Others(), needed(k.store.Current()))
	reply.Servers = k.shown(all)
	if dryRun {
		return reply, nil
	}
	if err := r.ready(all); err != nil {
		return reply, err
	}
	next, err := r.nextKey(ctx, ring)
	if err != nil {
		return reply, err
	}
	if err := r.handOut(ctx, next); err != nil {
		return reply, err
	}
	if err := r.useKey(ctx, next.ID(), by); err != nil {
		return reply, err
	}
	k.log.Info("the keyring has a new key, which encrypts the keys of the state now", "key", next.ID(), "before", before)
	r.next, reply.Key = "", string(next.ID())
	if err := k.activate(ctx); err != nil {
		k.log.Warn("the new key is not the active one of the file yet", "error", err) // seek tries again
	}
	return reply, nil
}

// ready refuses a rotation if a server does not answer or lacks a key. Code: conflict.
func (r *keyringRotation) ready(all []standing) error {
	if own := r.keyring.lacks(); len(own) > 0 {
		all = append([]standing{{server: transport.ServerInfo{Name: r.keyring.name}, lacks: own}}, all...)
	}
	var silent, lacking, reasons []string
	for _, one := range all {
		switch {
		case one.err != nil:
			silent = append(silent, one.server.Name)
			reasons = append(reasons, one.server.Name+": "+model.Reason(one.err))
		case len(one.lacks) > 0:
			lacking = append(lacking, one.server.Name)
		}
	}
	switch {
	case len(silent) > 0:
		return model.Refuse(model.CodeConflict, "every server must get the new key, and these don't answer: %s",
			strings.Join(reasons, "; ")).
			WithHint("bring them back; a server that is gone for good: outspan server remove %s", silent[0])
	case len(lacking) > 0:
		return model.Refuse(model.CodeConflict, "these servers lack keys of the keyring: %s", strings.Join(lacking, ", ")).
			WithHint("they ask the others for them; try again in a minute; see: outspan server keyring ls")
	}
	return nil
}

// nextKey returns the key of an earlier rotation that failed before its commit, or a new one. It is in this server's
// file. Codes: those of serverKeyring.edit and of keyring.Ring.Generate.
func (r *keyringRotation) nextKey(ctx context.Context, ring *keyring.Ring) (key keyring.Key, err error) {
	for _, k := range ring.Keys() {
		// If the outcome of that rotation was unknown, the state may use its key already.
		if k.ID() == r.next && !slices.Contains(needed(r.keyring.store.Current()), k.ID()) {
			return k, nil
		}
	}
	err = r.keyring.edit(ctx, func(ring *keyring.Ring) (err error) {
		key, err = ring.Generate()
		return err
	})
	if err == nil {
		r.next = key.ID()
	}
	return key, err
}

// maxHandOuts is how often handOut looks for servers that have become members since its last look.
const maxHandOuts = 3

// handOut gives a key to every server of the configuration, and has each prove that it has the key. Codes: conflict if
// a server does not, or if servers keep being added.
func (r *keyringRotation) handOut(ctx context.Context, key keyring.Key) error {
	have := map[model.ServerID]bool{}
	for range maxHandOuts {
		servers := slices.DeleteFunc(r.keyring.servers.Others(), func(s transport.ServerInfo) bool { return have[s.ID] })
		if len(servers) == 0 {
			return nil
		}
		failures := make([]error, len(servers))
		var wg sync.WaitGroup
		for i, server := range servers {
			wg.Go(func() { failures[i] = r.giveKey(ctx, server, key) })
		}
		wg.Wait()
		all := r.keyring.standings(ctx, servers, []keyring.ID{key.ID()})
		for i := range all {
			if all[i].err == nil && len(all[i].lacks) > 0 && failures[i] != nil {
				all[i].err = failures[i]
			}
			have[all[i].server.ID] = true
		}
		if err := r.ready(all); err != nil {
			return err
		}
	}
	return model.Refuse(model.CodeConflict, "servers were added while the keyring was rotated").
		WithHint("try again when no server joins")
}

func (r *keyringRotation) giveKey(ctx context.Context, server transport.ServerInfo, key keyring.Key) error {
	ctx, cancel := context.WithTimeout(ctx, keyTime)
	defer cancel()
	return ask(ctx, r.keyring.peers, server, questionTakeKey, givenKey{key.Encode()}, &struct{}{})
}

// useKey commits the group that encrypts all keys of the state anew. Another rotation may change a row meanwhile, or
// add one under the old data key. Then the group is refused, and useKey makes another one, twice at most. Codes: those
// of reencrypted and of the log.
func (r *keyringRotation) useKey(ctx context.Context, next keyring.ID, by model.Actor) error {
	for try := 1; ; try++ {
		group, err := reencrypted(r.keyring.ring.Load(), r.keyring.store.Current(), next)
		if err != nil {
			return err
		}
		err = r.keyring.servers.SubmitBy(ctx, by, group)
		refusal, _ := errors.AsType[*model.Error](err)
		if refusal == nil || try == 3 || refusal.Code != model.CodeStale && refusal.Code != model.CodeInUse {
			return err
		}
	}
}

// reencrypted returns the commands that replace the data keys of a state by a new one, which the key by of the keyring
// encrypts, and that encrypt all other keys under it. Whoever knows the old data key can't open the new rows. Codes:
// those of openKey and keyring.Ring.Rewrap.
func reencrypted(ring *keyring.Ring, state *fsm.State, by keyring.ID) (group []fsm.Command, err error) {
	data, wrapped := ring.WrapNew()
	if wrapped, err = ring.Rewrap(wrapped, by); err != nil {
		return nil, err
	}
	old := state.KeysOf(model.KeyData)
	_, last, _ := old[len(old)-1].Name.Split()
	name := model.NewKeyName(model.KeyData, last+1)
	for _, row := range old {
		group = append(group, &fsm.KeyPut{Name: row.Name, Version: row.Version + 1, Phase: model.KeyRetired,
			Under: row.Under, Sealed: row.Sealed})
	}
	group = append(group, &fsm.KeyPut{Name: name, Version: 1, Phase: model.KeyActive, Under: string(wrapped.KEK),
		Sealed: wrapped.Bytes})
	for _, row := range state.TrustKeys.All() {
		if row.Name.Kind() == model.KeyData {
			continue
		}
		plain, err := openKey(ring, state, row)
		if err != nil {
			return nil, err
		}
		put := rowOf(row)
		if put.Sealed, err = data.Seal(string(put.Name), put.Version, plain); err != nil {
			return nil, err
		}
		put.Under = string(name)
		group = append(group, &put)
	}
	for _, row := range old {
		group = append(group, &fsm.KeyDrop{Name: row.Name})
	}
	return group, nil
}
