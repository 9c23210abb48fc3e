package trust

import (
	"context"
	"slices"
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
)

// givenKey gives a server a new key of the keyring.
type givenKey struct {
	Key []byte `cbor:"1,keyasint" debug:"secret"`
}

// Keyring returns the keys of the keyring, and which of them each server has. Only the leader answers. It asks all
// other servers, and blocks for at most about 5 s. Codes: no_leader; busy while the state has no CA; not_found if this
// server has no keyring.
func (e *Engine) Keyring(ctx context.Context) (api.Keyring, error) { return e.keyring.list(ctx) }

func (k *serverKeyring) list(ctx context.Context) (api.Keyring, error) {
	ring, err := k.leading()
	if err != nil {
		return api.Keyring{}, err
	}
	state := k.store.Current()
	active, _ := inUse(state)
	ids := needed(state)
	var list api.Keyring
	for _, k := range ring.Keys() {
		list.Keys = append(list.Keys, api.KeyringKey{ID: string(k.ID()), Active: k.ID() == active,
			Needed: slices.Contains(ids, k.ID()), Exported: exported(state, k.ID()), Created: k.Created()})
	}
	for _, id := range k.lacks() {
		list.Keys = append(list.Keys, api.KeyringKey{ID: string(id), Active: id == active, Needed: true,
			Exported: exported(state, id)})
	}
	list.Servers = k.shown(k.standings(ctx, k.servers.Others(), ids))
	return list, nil
}

// exported reports whether a state knows an export with a key.
func exported(state *fsm.State, id keyring.ID) bool {
	return slices.ContainsFunc(state.KeysOf(model.KeyData), func(row *fsm.TrustKey) bool {
		return keyring.ID(row.Under) == id && row.Exported != 0
	})
}

// leading returns the keyring if this server leads, and the state has a CA. Codes: no_leader, busy, not_found.
func (k *serverKeyring) leading() (*keyring.Ring, error) {
	if _, self, _ := k.servers.Leader(); !self {
		return nil, noLeader()
	}
	if !k.store.Current().Managed() {
		return nil, model.Refuse(model.CodeBusy, "the cluster has no CA yet").WithHint("try again in a moment")
	}
	return k.get()
}

// shown returns the servers as the API shows them, this server first.
func (k *serverKeyring) shown(all []standing) []api.KeyringServer {
	own := k.lacks()
	list := []api.KeyringServer{{Name: k.name, Answers: true, Complete: len(own) == 0, Lacks: texts(own)}}
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

// take adds a key of the leader to the keyring, or makes a keyring of it. Codes: forbidden, member_revoked, invalid,
// those of edit and of keyring.Ring.Add.
func (k *serverKeyring) take(ctx context.Context, q givenKey) error {
	who, err := askingServer(ctx, k.store)
	if err != nil {
		return err
	}
	key, err := keyring.ParseKey(q.Key)
	if err != nil {
		return err
	}
	if err := k.open(); err != nil {
		return err
	}
	switch ring := k.ring.Load(); {
	case ring == nil: // the cluster gets its first keys
		err = k.add(ctx, []keyring.Key{key})
	case slices.Contains(ring.IDs(), key.ID()):
		return nil
	default:
		err = k.edit(ctx, func(ring *keyring.Ring) error { return ring.Add(key) })
	}
	if err != nil {
		return err
	}
	k.log.Info("the keyring has another key", "key", key.ID(), "from", who.Name)
	return nil
}
