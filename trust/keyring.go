package trust

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// keysReply is the answer to questionKeyring: the encoded keys of the answering server, its active one first.
type keysReply struct {
	Keys [][]byte `cbor:"1,keyasint" debug:"secret"`
}

// keyring returns the keyring of this server. Code: not_found while the file is missing.
func (e *Engine) keyring() (*keyring.Ring, error) {
	if ring := e.ring.Load(); ring != nil {
		return ring, nil
	}
	return nil, model.Refuse(model.CodeNotFound, "keyring %s does not exist, so this server can't make certificates",
		e.keyringPath()).
		WithHint("it is asked of the other servers; or run: outspan server keyring import")
}

func (e *Engine) keyringPath() string { return filepath.Join(e.cfg.DataDir, keyring.FileName) }

// openKeyring opens the keyring, or opens it again after another process has changed it. A missing file is no error,
// because other servers may have the keys.
func (e *Engine) openKeyring() error {
	ring, err := keyring.Open(e.keyringPath())
	switch old := e.ring.Load(); {
	case errors.Is(err, &model.Error{Code: model.CodeNotFound}):
		return nil
	case err != nil:
		return err
	case old == nil || !slices.Equal(old.IDs(), ring.IDs()):
		e.ring.Store(ring)
	}
	return nil
}

// lacks returns the keys that encrypt data keys of the state and are not in the keyring.
func (e *Engine) lacks() (missing []keyring.ID) {
	var has []keyring.ID
	if ring := e.ring.Load(); ring != nil {
		has = ring.IDs()
	}
	return slices.DeleteFunc(needed(e.cfg.Store.Current()), func(id keyring.ID) bool { return slices.Contains(has, id) })
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

func (e *Engine) complete() bool { return e.ring.Load() != nil && len(e.lacks()) == 0 }

// seekKeyring gets the keys that the keyring lacks, until ctx ends: from the file if another process has written it,
// and otherwise from other servers. It also makes the key that the state uses the active one of the file.
func (e *Engine) seekKeyring(ctx context.Context) {
	e.onTopic(ctx, "keys", func() {
		retry := backoff{first: time.Second, last: time.Minute}
		for ctx.Err() == nil {
			lacked := !e.complete()
			err := e.completeKeyring(ctx)
			if err == nil {
				err = e.activate(ctx)
			}
			if lacked && e.complete() {
				e.log.Warn("the keyring lacked keys, and has them now", "file", e.keyringPath())
			}
			if err == nil {
				return
			}
			wait := retry.after()
			e.log.Warn("the keyring is not as the state needs it yet", "lacks", e.lacks(), "retry_in", wait, "error", err)
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
func (e *Engine) activate(ctx context.Context) error {
	id, ok := inUse(e.cfg.Store.Current())
	if ring := e.ring.Load(); !ok || ring == nil || ring.Active() == id {
		return nil
	}
	return e.editKeyring(ctx, func(ring *keyring.Ring) error { return ring.Activate(id) })
}

// editKeyring calls edit with the keyring as it is on the disk, while no other part of this process and no command
// changes it. Codes: not_found if the file is missing; those of keyring.Open and Managed.Lock; and those of edit.
func (e *Engine) editKeyring(ctx context.Context, edit func(*keyring.Ring) error) error {
	return e.dir.Lock(ctx, func() error {
		if err := e.openKeyring(); err != nil {
			return err
		}
		ring, err := e.keyring()
		if err != nil {
			return err
		}
		return edit(ring)
	})
}

func (e *Engine) completeKeyring(ctx context.Context) error {
	if e.complete() {
		return nil
	}
	if err := e.openKeyring(); err != nil || e.complete() {
		return err
	}
	return e.fetchKeyring(ctx)
}

// Bounds of the search for keys.
const (
	maxKeyServers = 32              // how many servers are asked, at the same time
	keyTime       = 5 * time.Second // for an answer
)

// fetchKeyring asks the leader and other servers for the keys that are missing.
func (e *Engine) fetchKeyring(ctx context.Context) error {
	addresses, _ := e.cfg.Servers.Addresses()
	if leader, self, ok := e.cfg.Servers.Leader(); ok && !self {
		addresses = slices.Insert(slices.DeleteFunc(addresses, func(a string) bool { return a == leader.APIAddress }), 0,
			leader.APIAddress)
	}
	addresses = addresses[:min(len(addresses), maxKeyServers)]
	answers, failures := make([][]keyring.Key, len(addresses)), make([]error, len(addresses))
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() { answers[i], failures[i] = e.askKeys(ctx, address) })
	}
	wg.Wait()
	for i := range answers {
		if failures[i] == nil && !e.complete() {
			failures[i] = e.addKeys(ctx, answers[i])
		}
	}
	if e.complete() {
		return nil
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return model.Refuse(model.CodeNotFound, "no other server has the keys").WithHint("%s",
		"put the keys of an export there: outspan server keyring import")
}

// addKeys makes the keyring from the keys of another server, or adds those that are missing.
func (e *Engine) addKeys(ctx context.Context, keys []keyring.Key) error {
	if e.ring.Load() != nil {
		missing := e.lacks()
		return e.editKeyring(ctx, func(ring *keyring.Ring) error {
			return ring.Add(slices.DeleteFunc(keys, func(k keyring.Key) bool { return !slices.Contains(missing, k.ID()) })...)
		})
	}
	return e.dir.Lock(ctx, func() error {
		ring, err := keyring.Create(e.keyringPath(), keys...)
		if err != nil {
			return err
		}
		e.ring.Store(ring)
		return nil
	})
}

func (e *Engine) askKeys(ctx context.Context, address string) ([]keyring.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, keyTime)
	defer cancel()
	var reply keysReply
	if err := e.ask(ctx, transport.ServerInfo{APIAddress: address}, questionKeyring, struct{}{}, &reply); err != nil {
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

// giveKeys answers a server that lacks keys of its keyring. Every server gets the keys when it joins.
func (e *Engine) giveKeys(ctx context.Context) (keysReply, error) {
	who, err := e.askingServer(ctx)
	if err != nil {
		return keysReply{}, err
	}
	ring, err := e.keyring()
	if err != nil {
		return keysReply{}, err
	}
	e.log.Warn("a server that lacks keys of the keyring gets them", "server", who.Name)
	return keysReply{encodedKeys(ring)}, nil
}

// askingServer returns the server that asks. Codes: forbidden if the subject is no server; member_revoked.
func (e *Engine) askingServer(ctx context.Context) (model.Subject, error) {
	who, _ := transport.SubjectFrom(ctx)
	if who.Kind != model.SubjectServer {
		return who, model.Refuse(model.CodeForbidden, "%s is no server", who)
	}
	if row, ok := e.cfg.Store.Current().TrustMemberOf(who); ok && row.RevokedIndex != 0 {
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
