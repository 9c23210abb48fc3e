package cluster

import (
	"bytes"
	"crypto/cipher"
	"errors"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"

	"github.com/outspan/outspan/model"
)

// poolKeys are the keys of a Pool: those with which memberlist encrypts and decrypts, and those of the screen. They are
// safe for concurrent use.
type poolKeys struct {
	ring   *memberlist.Keyring
	screen *screen
	mu     sync.Mutex // is held during a change of both
}

func newPoolKeys(keys [][]byte) (*poolKeys, error) {
	looks, err := newScreen(keys...)
	if err != nil {
		return nil, err
	}
	ring, err := memberlist.NewKeyring(keys, keys[0])
	if err != nil {
		return nil, err
	}
	return &poolKeys{ring: ring, screen: looks}, nil
}

func checkKeys(keys [][]byte) error {
	if len(keys) == 0 {
		return model.Refuse(model.CodeGossipKeyInvalid, "gossip needs a key").
			WithHint("make one with: outspan gossip key create")
	}
	for _, key := range keys {
		if memberlist.ValidateKey(key) != nil {
			return model.Refuse(model.CodeGossipKeyInvalid, "the gossip key has %d bytes, not 16, 24 or 32", len(key)).
				WithHint("make one with: outspan gossip key create")
		}
	}
	return nil
}

// SetKeys replaces the keys of the pool at once. The first key encrypts what this member sends, and all decrypt what it
// receives. If a key is invalid, nothing changes. It does not block. Code: gossip_key_invalid.
func (p *Pool) SetKeys(keys [][]byte) error {
	if err := checkKeys(keys); err != nil {
		return err
	}
	return p.keys.set(keys)
}

// Keys returns the keys of the pool, the one that encrypts first.
func (p *Pool) Keys() [][]byte { return p.keys.ring.GetKeys() }

// set makes the ring and the screen use the keys. The screen knows all keys of the ring at any moment, because it
// refuses streams of other keys.
func (k *poolKeys) set(keys [][]byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.ring.GetKeys()
	if err := k.screen.use(append(slices.Clone(before), keys...)); err != nil {
		return err
	}
	for _, key := range keys {
		if err := k.ring.AddKey(key); err != nil {
			return err
		}
	}
	if err := k.ring.UseKey(keys[0]); err != nil {
		return err
	}
	for _, old := range before {
		if slices.ContainsFunc(keys, func(key []byte) bool { return bytes.Equal(key, old) }) {
			continue
		}
		if err := k.ring.RemoveKey(old); err != nil {
			return err
		}
	}
	return k.screen.use(keys)
}

// use replaces the keys of the screen.
func (s *screen) use(keys [][]byte) error {
	blocks, err := ciphers(keys)
	if err == nil {
		s.keys.Store(&blocks)
	}
	return err
}

// each returns why one of the keys shows that the message must not pass, and nil if none does. look gets a key, and
// returns errKind if the message looks as if it had another key. If it looks so under all keys, each returns errKind.
// With n keys, a good message is refused once in about 256/(n-1) times, because under a wrong key its first byte may be
// that of a compressed message. Gossip repeats what is lost.
func (s *screen) each(look func(cipher.Block) error) error {
	passes := false
	for _, key := range *s.keys.Load() {
		switch err := look(key); {
		case err == nil:
			passes = true
		case !errors.Is(err, errKind):
			return err
		}
	}
	if passes {
		return nil
	}
	return errKind
}
