package keyring

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/outspan/outspan/model"
)

// keyBytes is the length of every KEK, data key and derived key.
const keyBytes = 32

// secret returns the bytes of a key, which must not be changed. It is a function because package fmt prints no more of
// a function than its address. It prints the bytes behind a pointer if the verb does not fit, as %s in
// struct{ p *[32]byte }.
type secret func() []byte

// keep returns a copy of b, which has keyBytes bytes, as a secret.
func keep(b []byte) secret {
	own := [keyBytes]byte(b)
	return func() []byte { return own[:] }
}

func newSecret() secret {
	b := make([]byte, keyBytes)
	rand.Read(b) // never fails: without randomness, the runtime ends the process
	return keep(b)
}

// ID names a KEK: 16 hexadecimal digits that are derived from the key. So a name never stands for two keys, and all
// servers use the same name for a key. An ID is not secret.
type ID string

// String returns the id as files and messages have it.
func (id ID) String() string { return string(id) }

// The purposes of derived keys. A KEK is used only to derive keys. No two purposes get the same derived key.
const (
	purposeID    = "id"
	purposeWrap  = "wrap"
	purposeProve = "prove"
	purposeMAC   = "mac/" // a label of the caller follows
)

// Key is a KEK. The zero value is no key. A Key never changes, so it is safe for concurrent use.
type Key struct {
	id      ID
	created int64 // seconds since 1970
	secret  secret
}

// encodedKey is the length of a Key that is encoded: its time of creation (8 bytes, big endian) and its secret.
const encodedKey = 8 + keyBytes

func makeKey(created int64, s secret) Key {
	id := derive(s, purposeID)()
	return Key{ID(hex.EncodeToString(id[:8])), created, s}
}

func generateKey() Key { return makeKey(time.Now().Unix(), newSecret()) }

// ID returns the name of the key.
func (k Key) ID() ID { return k.id }

// Created returns when the key was made, by the clock of the server that made it, in UTC.
func (k Key) Created() time.Time { return time.Unix(k.created, 0).UTC() }

// String names the key and hides its bytes.
func (k Key) String() string { return "[key " + string(k.id) + "]" }

// GoString is String.
func (k Key) GoString() string { return k.String() }

// Encode returns the key as bytes for another server's ParseKey. The bytes are secret: send them only to a server whose
// certificate has been verified. The key must not be the zero value.
func (k Key) Encode() []byte { return k.appendTo(make([]byte, 0, encodedKey)) }

func (k Key) appendTo(b []byte) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(k.created)), k.secret()...)
}

// ParseKey reads what Encode returned. It accepts no other length, no time before 1970 and no key of zeros. Its errors
// don't contain the input. Code: invalid.
func ParseKey(b []byte) (Key, error) {
	if len(b) != encodedKey {
		return Key{}, model.Refuse(model.CodeInvalid, "an encoded key has %d bytes, not %d", len(b), encodedKey).
			WithHint("both servers must run versions of outspan that know the same format of keys")
	}
	created := int64(binary.BigEndian.Uint64(b))
	if created < 0 || bytes.Count(b[8:], []byte{0}) == keyBytes {
		return Key{}, model.Refuse(model.CodeInvalid, "an encoded key has an impossible time, or is all zeros").
			WithHint("get the key again from a server whose keyring is good")
	}
	return makeKey(created, keep(b[8:])), nil
}

// derive returns the key for a purpose by HKDF with SHA-256.
func derive(s secret, purpose string) secret {
	b, err := hkdf.Key(sha256.New, s(), nil, "outspan keyring 1: "+purpose, keyBytes)
	if err != nil {
		panic("keyring: derive a key: " + err.Error()) // can't happen: both lengths are constant and allowed
	}
	return keep(b)
}

// newGCM returns AES-256-GCM with a random nonce of 96 bits, which it puts before the ciphertext.
func newGCM(s secret) cipher.AEAD {
	block, err := aes.NewCipher(s())
	if err != nil {
		panic("keyring: AES: " + err.Error()) // can't happen: the key has 32 bytes
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic("keyring: GCM: " + err.Error()) // can't happen: the block is of AES
	}
	return aead
}
