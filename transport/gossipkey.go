package transport

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// GossipKey encrypts gossip: 16, 24 or 32 bytes. Gossip trusts everyone who has it, so its String methods hide it.
type GossipKey []byte

// String hides the key.
func (GossipKey) String() string { return "[gossip key]" }

// GoString hides the key.
func (GossipKey) GoString() string { return "[gossip key]" }

// Encode returns the key as in a key file: base64, without the newline.
func (k GossipKey) Encode() string { return base64.StdEncoding.EncodeToString(k) }

func (k GossipKey) encode() []byte { return []byte(k.Encode() + "\n") }

// NewGossipKey makes a key of 32 random bytes.
func NewGossipKey() GossipKey {
	k := make(GossipKey, 32)
	rand.Read(k) // never fails: the runtime ends the process if there is no randomness
	return k
}

// CreateGossipKey writes a new key to path (0600). An existing file is replaced only with force. Errors:
// file_exists, file_error.
func CreateGossipKey(path string, force bool) (GossipKey, error) {
	dir := filepath.Dir(path)
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	key := NewGossipKey()
	err := locked(dir, func() error {
		if _, err := os.Lstat(path); err == nil && !force {
			return model.Refuse(model.CodeFileExists, "%s exists already", path).
				WithHint("every server and agent must have the same key; replace it only if all of them get the new one")
		}
		return writeFile(path, key.encode(), 0o600)
	})
	if err != nil {
		return nil, err
	}
	return key, nil
}

// LoadGossipKey reads a key file. Errors: gossip_key_invalid.
func LoadGossipKey(path string) (GossipKey, error) {
	b, err := pki.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, model.Refuse(model.CodeGossipKeyInvalid, "gossip key file %s does not exist", path).
			WithHint("make one with: outspan gossip key create, and copy it to every server and agent")
	}
	if err != nil {
		return nil, model.Refuse(model.CodeGossipKeyInvalid, "can't read gossip key file %s: %s", path, bareError(err))
	}
	key, err := ParseGossipKey(string(b))
	if err != nil {
		return nil, model.Refuse(model.CodeGossipKeyInvalid, "gossip key file %s: %s", path, model.Reason(err)).
			WithHint("make a new one with: outspan gossip key create")
	}
	return key, nil
}

// ParseGossipKey decodes a key; white space around it is ignored. The error never repeats the input. Errors:
// gossip_key_invalid.
func ParseGossipKey(s string) (GossipKey, error) {
	k, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(s))
	if err != nil {
		return nil, model.Refuse(model.CodeGossipKeyInvalid, "it is not base64")
	}
	switch len(k) {
	case 16, 24, 32:
		return k, nil
	}
	return nil, model.Refuse(model.CodeGossipKeyInvalid, "it holds %d bytes, not 16, 24 or 32", len(k))
}
