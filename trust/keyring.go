package trust

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

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
		WithHint("it is asked of the other servers; or stop this server and run: outspan server keyring import")
}

func (e *Engine) keyringPath() string { return filepath.Join(e.cfg.DataDir, keyring.FileName) }

// openKeyring opens the keyring. A missing file is no error, because other servers may have the keys.
func (e *Engine) openKeyring() error {
	ring, err := keyring.Open(e.keyringPath())
	if errors.Is(err, &model.Error{Code: model.CodeNotFound}) {
		e.log.Error("the keyring is missing: until it is there, this server admits no newcomers and renews no certificates",
			"error", err)
		return nil
	}
	if err != nil {
		return err
	}
	e.ring.Store(ring)
	return nil
}

// seekKeyring gets a missing keyring from other servers. It returns once it is there, or when ctx ends.
func (e *Engine) seekKeyring(ctx context.Context) {
	retry := backoff{first: time.Second, last: time.Minute}
	for ctx.Err() == nil && e.ring.Load() == nil {
		err := e.fetchKeyring(ctx)
		if err == nil {
			e.log.Warn("the keyring was missing, and other servers gave its keys", "file", e.keyringPath())
			return
		}
		wait := retry.after()
		e.log.Warn("the keyring is still missing", "retry_in", wait, "error", err)
		sleep(ctx, wait)
	}
}

// fetchKeyring asks the leader, and then every other server.
func (e *Engine) fetchKeyring(ctx context.Context) error {
	addresses, _ := e.cfg.Servers.Addresses()
	if leader, self, ok := e.cfg.Servers.Leader(); ok && !self {
		addresses = slices.Insert(slices.DeleteFunc(addresses, func(a string) bool { return a == leader.APIAddress }), 0,
			leader.APIAddress)
	}
	var failed error
	for _, address := range addresses {
		keys, err := e.askKeys(ctx, address)
		if err == nil {
			ring, err := keyring.Create(e.keyringPath(), keys...)
			if err != nil {
				return err
			}
			e.ring.Store(ring)
			return nil
		}
		failed = errors.Join(failed, err)
	}
	if failed == nil {
		failed = model.Refuse(model.CodeNotFound, "there is no other server").WithHint("%s",
			"put the keys of an export there: outspan server keyring import")
	}
	return failed
}

func (e *Engine) askKeys(ctx context.Context, address string) ([]keyring.Key, error) {
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

// giveKeys answers a server that has lost its keyring. Every server gets the keys when it joins.
func (e *Engine) giveKeys(ctx context.Context) (keysReply, error) {
	who, _ := transport.SubjectFrom(ctx)
	if who.Kind != model.SubjectServer {
		return keysReply{}, model.Refuse(model.CodeForbidden, "%s is no server", who)
	}
	if row, ok := e.cfg.Store.Current().TrustMemberOf(who); ok && row.RevokedIndex != 0 {
		return keysReply{}, revoked(who)
	}
	ring, err := e.keyring()
	if err != nil {
		return keysReply{}, err
	}
	e.log.Warn("a server that lost its keyring gets the keys", "server", who.Name)
	return keysReply{encodedKeys(ring)}, nil
}

func encodedKeys(ring *keyring.Ring) (keys [][]byte) {
	for _, key := range ring.Keys() {
		keys = append(keys, key.Encode())
	}
	return keys
}
