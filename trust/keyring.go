package trust

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// keysReply is the answer to questionKeyring: the encoded keys of the answering server, its active one first.
type keysReply struct {
	Keys [][]byte `cbor:"1,keyasint" debug:"secret"`
}

// serverKeyring is the keyring of this server: its file, and its keys in memory. It gets keys that are missing from
// other servers, gives its own to them, and proves which it has. Engine.Run runs seek, and Engine passes it the
// questions of other servers. keyringRotation and founding reach the keyrings of others through it. Changes of the file
// hold the lock of dir. It is safe for concurrent use.
type serverKeyring struct {
	name    string // of this server
	path    string // of the file
	dir     transport.Managed
	store   Store
	servers Cluster
	peers   Asker
	log     hclog.Logger
	ring    atomic.Pointer[keyring.Ring] // nil while the file is missing; see get
}

// get returns the keyring of this server. Code: not_found while the file is missing.
func (k *serverKeyring) get() (*keyring.Ring, error) {
	if ring := k.ring.Load(); ring != nil {
		return ring, nil
	}
	return nil, model.Refuse(model.CodeNotFound, "keyring %s does not exist, so this server can't make certificates",
		k.path).
		WithHint("it is asked of the other servers; or run: outspan server keyring import")
}

// open opens the keyring, or opens it again after another process has changed it. A missing file is no error,
// because other servers may have the keys.
func (k *serverKeyring) open() error {
	ring, err := keyring.Open(k.path)
	switch old := k.ring.Load(); {
	case errors.Is(err, &model.Error{Code: model.CodeNotFound}):
		return nil
	case err != nil:
		return err
	case old == nil || !slices.Equal(old.IDs(), ring.IDs()):
		k.ring.Store(ring)
	}
	return nil
}

// lacks returns the keys that encrypt data keys of the state and are not in the keyring.
func (k *serverKeyring) lacks() (missing []keyring.ID) {
	var has []keyring.ID
	if ring := k.ring.Load(); ring != nil {
		has = ring.IDs()
	}
	return slices.DeleteFunc(needed(k.store.Current()), func(id keyring.ID) bool { return slices.Contains(has, id) })
}

// needed returns the keys of the keyring that encrypt data keys of a state, without doubles.
func needed(state *fsm.State) (ids []keyring.ID) {
	for _, row := range state.KeysOf(model.KeyData) {
		if id := keyring.ID(row.Under); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// complete reports whether the keyring is there, and has each key that the state needs.
func (k *serverKeyring) complete() bool { return k.ring.Load() != nil && len(k.lacks()) == 0 }

// seek gets the keys that the keyring lacks, until ctx ends: from the file if another process has written it,
// and otherwise from other servers. It also makes the key that the state uses the active one of the file.
func (k *serverKeyring) seek(ctx context.Context) {
	onTopic(ctx, k.store, "keys", func() {
		retry := backoff{first: time.Second, last: time.Minute}
		for ctx.Err() == nil {
			lacked := !k.complete()
			err := k.fill(ctx)
			if err == nil {
				err = k.activate(ctx)
			}
			if lacked && k.complete() {
				k.log.Warn("the keyring lacked keys, and has them now", "file", k.path)
			}
			if err == nil {
				return
			}
			wait := retry.after()
			k.log.Warn("the keyring is not as the state needs it yet", "lacks", k.lacks(), "retry_in", wait, "error", err)
			sleep(ctx, wait)
		}
	})
}

// inUse returns the key of the keyring that encrypts the active data key. ok is false if the state has no data key.
func inUse(state *fsm.State) (id keyring.ID, ok bool) {
	row, ok := state.ActiveKey(model.KeyData)
	if !ok {
		return "", false
	}
	return keyring.ID(row.Under), true
}

// activate makes the key in use the active one of the file. Codes: those of keyring.Ring.Activate and Managed.Lock.
func (k *serverKeyring) activate(ctx context.Context) error {
	id, ok := inUse(k.store.Current())
	if ring := k.ring.Load(); !ok || ring == nil || ring.Active() == id {
		return nil
	}
	return k.edit(ctx, func(ring *keyring.Ring) error { return ring.Activate(id) })
}

// edit calls edit with the keyring as it is on the disk, while no other part of this process and no command
// changes it. Codes: not_found if the file is missing; those of keyring.Open and Managed.Lock; and those of edit.
func (k *serverKeyring) edit(ctx context.Context, edit func(*keyring.Ring) error) error {
	return k.dir.Lock(ctx, func() error {
		if err := k.open(); err != nil {
			return err
		}
		ring, err := k.get()
		if err != nil {
			return err
		}
		return edit(ring)
	})
}

// fill gets the keys that the keyring lacks, from the file or from other servers. Codes: those of open and fetch.
func (k *serverKeyring) fill(ctx context.Context) error {
	if k.complete() {
		return nil
	}
	if err := k.open(); err != nil || k.complete() {
		return err
	}
	return k.fetch(ctx)
}

// Bounds of the search for keys.
const (
	maxKeyServers = 32              // how many servers are asked, at the same time
	keyTime       = 5 * time.Second // for an answer
)

// fetch asks the leader and other servers for the keys that are missing.
func (k *serverKeyring) fetch(ctx context.Context) error {
	addresses, _ := k.servers.Addresses()
	if leader, self, ok := k.servers.Leader(); ok && !self {
		addresses = slices.Insert(slices.DeleteFunc(addresses, func(a string) bool { return a == leader.APIAddress }), 0,
			leader.APIAddress)
	}
	addresses = addresses[:min(len(addresses), maxKeyServers)]
	answers, failures := make([][]keyring.Key, len(addresses)), make([]error, len(addresses))
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() { answers[i], failures[i] = k.askKeys(ctx, address) })
	}
	wg.Wait()
	for i := range answers {
		if failures[i] == nil && !k.complete() {
			failures[i] = k.add(ctx, answers[i])
		}
	}
	if k.complete() {
		return nil
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return model.Refuse(model.CodeNotFound, "no other server has the keys").WithHint("%s",
		"put the keys of an export there: outspan server keyring import")
}

// add makes the keyring from the keys of another server, or adds those that are missing.
func (k *serverKeyring) add(ctx context.Context, keys []keyring.Key) error {
	if k.ring.Load() != nil {
		missing := k.lacks()
		return k.edit(ctx, func(ring *keyring.Ring) error {
			return ring.Add(slices.DeleteFunc(keys, func(k keyring.Key) bool { return !slices.Contains(missing, k.ID()) })...)
		})
	}
	return k.dir.Lock(ctx, func() error {
		ring, err := keyring.Create(k.path, keys...)
		if err != nil {
			return err
		}
		k.ring.Store(ring)
		return nil
	})
}

func (k *serverKeyring) askKeys(ctx context.Context, address string) ([]keyring.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, keyTime)
	defer cancel()
	var reply keysReply
	server := transport.ServerInfo{APIAddress: address}
	if err := ask(ctx, k.peers, server, questionKeyring, struct{}{}, &reply); err != nil {
		return nil, err
	}
	var keys []keyring.Key
	for _, b := range reply.Keys {
		key, err := keyring.ParseKey(b)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 { // Create would make a new key
		return nil, model.Refuse(model.CodeInvalid, "%s has no keys", address)
	}
	return keys, nil
}

// give answers a server that lacks keys of its keyring. Every server gets the keys when it joins.
func (k *serverKeyring) give(ctx context.Context) (keysReply, error) {
	who, err := askingServer(ctx, k.store)
	if err != nil {
		return keysReply{}, err
	}
	ring, err := k.get()
	if err != nil {
		return keysReply{}, err
	}
	k.log.Warn("a server that lacks keys of the keyring gets them", "server", who.Name)
	return keysReply{encodedKeys(ring)}, nil
}

// askingServer returns the server that asks. Codes: forbidden if the subject is no server; member_revoked.
func askingServer(ctx context.Context, store Store) (model.Subject, error) {
	who, _ := transport.SubjectFrom(ctx)
	if who.Kind != model.SubjectServer {
		return who, model.Refuse(model.CodeForbidden, "%s is no server", who)
	}
	if row, ok := store.Current().TrustMemberOf(who); ok && row.RevokedIndex != 0 {
		return who, revoked(who)
	}
	return who, nil
}

func encodedKeys(ring *keyring.Ring) (keys [][]byte) {
	for _, key := range ring.Keys() {
		keys = append(keys, key.Encode())
	}
	return keys
}
