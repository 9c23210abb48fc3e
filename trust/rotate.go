package trust

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// givenKey gives a server a new key of the keyring.
type givenKey struct {
	Key []byte `cbor:"1,keyasint" debug:"secret"`
}

// Keyring returns the keys of the keyring, and which of them each server has. Only the leader answers. It asks all
// other servers, and blocks for at most about 5 s. Codes: no_leader; busy while the state has no CA; not_found if this
// server has no keyring.
func (e *Engine) Keyring(ctx context.Context) (api.Keyring, error) {
	ring, err := e.leading()
	if err != nil {
		return api.Keyring{}, err
	}
	state := e.cfg.Store.Current()
	active, _ := inUse(state)
	ids := needed(state)
	var list api.Keyring
	for _, k := range ring.Keys() {
		list.Keys = append(list.Keys, api.KeyringKey{ID: string(k.ID()), Active: k.ID() == active,
			Needed: slices.Contains(ids, k.ID()), Exported: exported(state, k.ID()), Created: k.Created()})
	}
	for _, id := range e.lacks() {
		list.Keys = append(list.Keys, api.KeyringKey{ID: string(id), Active: id == active, Needed: true,
			Exported: exported(state, id)})
	}
	list.Servers = e.shown(e.standings(ctx, e.cfg.Servers.Others(), ids))
	return list, nil
}

// exported reports whether a state knows an export with a key.
func exported(state *fsm.State, id keyring.ID) bool {
	return slices.ContainsFunc(state.KeysOf(model.KeyData), func(row *fsm.TrustKey) bool {
		return keyring.ID(row.Under) == id && row.Exported != 0
	})
}

// leading returns the keyring if this server leads, and the state has a CA. Codes: no_leader, busy, not_found.
func (e *Engine) leading() (*keyring.Ring, error) {
	if _, self, _ := e.cfg.Servers.Leader(); !self {
		return nil, noLeader()
	}
	if !e.cfg.Store.Current().Managed() {
		return nil, model.Refuse(model.CodeBusy, "the cluster has no CA yet").WithHint("try again in a moment")
	}
	return e.keyring()
}

// shown returns the servers as the API shows them, this server first.
func (e *Engine) shown(all []standing) []api.KeyringServer {
	own := e.lacks()
	list := []api.KeyringServer{{Name: e.cfg.Name, Answers: true, Complete: len(own) == 0, Lacks: texts(own)}}
	for _, one := range all {
		s := api.KeyringServer{Name: one.server.Name, Answers: one.err == nil, Lacks: texts(one.lacks),
			Complete: one.err == nil && len(one.lacks) == 0}
		if one.err != nil {
			s.Error = model.Reason(one.err)
		}
		list = append(list, s)
	}
	slices.SortStableFunc(list[1:], func(a, b api.KeyringServer) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func texts(ids []keyring.ID) []string {
	list := []string{}
	for _, id := range ids {
		list = append(list, string(id))
	}
	return list
}

// RotateKeyring makes a new key-encryption key, gives it to every server of the configuration, and encrypts the data
// keys of the state under it. The key before stays in the keyrings, because backups need it. A dry run only asks which
// servers could take part. If RotateKeyring fails before its commit, nothing has changed but keyrings that have a key
// which nothing uses. The next call on the same leader uses that key. It blocks for at most about 20 s. Codes: those of
// Keyring; busy while another rotation runs; conflict if a server does not answer or lacks a key; file_error; those of
// the log.
func (e *Engine) RotateKeyring(ctx context.Context, dryRun bool) (api.KeyringRotation, error) {
	ring, err := e.leading()
	if err != nil {
		return api.KeyringRotation{}, err
	}
	if !e.rotating.TryLock() {
		return api.KeyringRotation{}, model.Refuse(model.CodeBusy, "the keyring is being rotated").
			WithHint("look at the outcome with: outspan server keyring ls")
	}
	defer e.rotating.Unlock()
	before, _ := inUse(e.cfg.Store.Current())
	reply := api.KeyringRotation{Before: string(before), DryRun: dryRun}
	all := e.standings(ctx, e.cfg.Servers.Others(), needed(e.cfg.Store.Current()))
	reply.Servers = e.shown(all)
	if dryRun {
		return reply, nil
	}
	if err := e.ready(all); err != nil {
		return reply, err
	}
	next, err := e.nextKey(ctx, ring)
	if err != nil {
		return reply, err
	}
	if err := e.handOut(ctx, next); err != nil {
		return reply, err
	}
	group, err := rewrapped(e.ring.Load(), e.cfg.Store.Current(), next.ID())
	if err != nil {
		return reply, err
	}
	if err := e.cfg.Servers.Submit(ctx, group); err != nil {
		return reply, err
	}
	e.log.Info("the keyring has a new key, which encrypts the keys of the state now", "key", next.ID(), "before", before)
	e.next, reply.Key = "", string(next.ID())
	if err := e.activate(ctx); err != nil {
		e.log.Warn("the new key is not the active one of the file yet", "error", err) // seekKeyring tries again
	}
	return reply, nil
}

// ready refuses a rotation if a server does not answer or lacks a key. Code: conflict.
func (e *Engine) ready(all []standing) error {
	if own := e.lacks(); len(own) > 0 {
		all = append([]standing{{server: transport.ServerInfo{Name: e.cfg.Name}, lacks: own}}, all...)
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
// file. Codes: those of editKeyring and of keyring.Ring.Generate.
func (e *Engine) nextKey(ctx context.Context, ring *keyring.Ring) (key keyring.Key, err error) {
	for _, k := range ring.Keys() {
		// If the outcome of that rotation was unknown, the state may use its key already.
		if k.ID() == e.next && !slices.Contains(needed(e.cfg.Store.Current()), k.ID()) {
			return k, nil
		}
	}
	err = e.editKeyring(ctx, func(ring *keyring.Ring) (err error) {
		key, err = ring.Generate()
		return err
	})
	if err == nil {
		e.next = key.ID()
	}
	return key, err
}

// maxHandOuts is how often handOut looks for servers that have become members since its last look.
const maxHandOuts = 3

// handOut gives a key to every server of the configuration, and has each prove that it has the key. Codes: conflict if
// a server does not, or if servers keep being added.
func (e *Engine) handOut(ctx context.Context, key keyring.Key) error {
	have := map[model.ServerID]bool{}
	for range maxHandOuts {
		servers := slices.DeleteFunc(e.cfg.Servers.Others(), func(s transport.ServerInfo) bool { return have[s.ID] })
		if len(servers) == 0 {
			return nil
		}
		failures := make([]error, len(servers))
		var wg sync.WaitGroup
		for i, server := range servers {
			wg.Go(func() { failures[i] = e.giveKey(ctx, server, key) })
		}
		wg.Wait()
		all := e.standings(ctx, servers, []keyring.ID{key.ID()})
		for i := range all {
			if all[i].err == nil && len(all[i].lacks) > 0 && failures[i] != nil {
				all[i].err = failures[i]
			}
			have[all[i].server.ID] = true
		}
		if err := e.ready(all); err != nil {
			return err
		}
	}
	return model.Refuse(model.CodeConflict, "servers were added while the keyring was rotated").
		WithHint("try again when no server joins")
}

func (e *Engine) giveKey(ctx context.Context, server transport.ServerInfo, key keyring.Key) error {
	ctx, cancel := context.WithTimeout(ctx, keyTime)
	defer cancel()
	return e.ask(ctx, server, questionTakeKey, givenKey{key.Encode()}, &struct{}{})
}

// takeKey adds a key of the leader to the keyring, or makes a keyring of it. Codes: forbidden, member_revoked, invalid,
// those of editKeyring and of keyring.Ring.Add.
func (e *Engine) takeKey(ctx context.Context, q givenKey) error {
	who, err := e.askingServer(ctx)
	if err != nil {
		return err
	}
	key, err := keyring.ParseKey(q.Key)
	if err != nil {
		return err
	}
	if err := e.openKeyring(); err != nil {
		return err
	}
	switch ring := e.ring.Load(); {
	case ring == nil: // the cluster gets its first keys
		err = e.addKeys(ctx, []keyring.Key{key})
	case slices.Contains(ring.IDs(), key.ID()):
		return nil
	default:
		err = e.editKeyring(ctx, func(ring *keyring.Ring) error { return ring.Add(key) })
	}
	if err != nil {
		return err
	}
	e.log.Info("the keyring has another key", "key", key.ID(), "from", who.Name)
	return nil
}

// rewrapped returns the commands that encrypt every data key of a state under one key of the keyring.
func rewrapped(ring *keyring.Ring, state *fsm.State, by keyring.ID) (group []fsm.Command, err error) {
	for _, row := range state.KeysOf(model.KeyData) {
		w, err := ring.Rewrap(keyring.Wrapped{KEK: keyring.ID(row.Under), Bytes: row.Sealed}, by)
		if err != nil {
			return nil, err
		}
		group = append(group, &fsm.KeyPut{Name: row.Name, Version: row.Version + 1, Phase: row.Phase, Under: string(by),
			Sealed: w.Bytes})
	}
	return group, nil
}
