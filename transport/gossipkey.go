package transport

import (
	"context"
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

// GossipKey is the key that encrypts gossip: 16, 24 or 32 bytes. Gossip trusts everyone who has the key, so String and
// GoString hide it.
type GossipKey []byte

// String hides the key.
func (GossipKey) String() string { return "[gossip key]" }

// GoString hides the key.
func (GossipKey) GoString() string { return "[gossip key]" }

// Encode returns the key in base64, as in a key file but without the newline.
func (k GossipKey) Encode() string { return base64.StdEncoding.EncodeToString(k) }

func (k GossipKey) encode() []byte { return []byte(k.Encode() + "\n") }

// NewGossipKey makes a key of 32 random bytes.
func NewGossipKey() GossipKey {
	k := make(GossipKey, 32)
	rand.Read(k) // never fails: without randomness, the runtime ends the process
	return k
}

// CreateGossipKey writes a new key to path (mode 0600), and creates missing directories (mode 0700). It replaces an
// existing file only if force is true. Errors: file_exists, file_error.
func CreateGossipKey(path string, force bool) (GossipKey, error) {
	dir := filepath.Dir(path)
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	key := NewGossipKey()
	err := locked(context.Background(), dir, func() error {
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

// maxGossipKeys is how many keys a key file may have.
const maxGossipKeys = 16

// LoadGossipKeys reads a key file. It has one key on each line: the first encrypts, all decrypt. Errors:
// gossip_key_invalid.
func LoadGossipKeys(path string) ([]GossipKey, error) {
	b, err := pki.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, model.Refuse(model.CodeGossipKeyInvalid, "gossip key file %s does not exist", path).
			WithHint("make one with: outspan gossip key create, and copy it to every server and agent")
	}
	if err != nil {
		return nil, model.Refuse(model.CodeGossipKeyInvalid, "can't read gossip key file %s: %s", path, bareError(err))
	}
	keys, err := parseGossipKeys(string(b))
	if err != nil {
		return nil, model.Refuse(model.CodeGossipKeyInvalid, "gossip key file %s: %s", path, model.Reason(err)).
			WithHint("make a new one with: outspan gossip key create")
	}
	return keys, nil
}

// parseGossipKeys decodes one key on each line, and ignores empty lines. A text without a key is one empty key.
func parseGossipKeys(text string) (keys []GossipKey, err error) {
	lines := strings.Fields(text)
	if len(lines) == 0 {
		lines = []string{""}
	}
	if len(lines) > maxGossipKeys {
		return nil, model.Refuse(model.CodeGossipKeyInvalid, "it has %d lines, at most %d are allowed", len(lines),
			maxGossipKeys)
	}
	for _, line := range lines {
		key, err := ParseGossipKey(line)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// encodeGossipKeys returns the content of a key file.
func encodeGossipKeys(keys [][]byte) []byte {
	var text []byte
	for _, key := range keys {
		text = append(text, GossipKey(key).encode()...)
	}
	return text
}

// ParseGossipKey decodes a key in base64. It ignores white space around the key. Its error never contains the input,
// which may be secret. Errors: gossip_key_invalid.
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
