package keyring

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"

	"github.com/outspan/outspan/model"
)

// Challenge is a random value that a proof answers. It is not secret. Each proof needs a new one, so that an old proof
// can't be used again.
type Challenge [32]byte

// Proof is the HMAC-SHA256 of a challenge and the name of the server that answers it. It is not secret.
type Proof [sha256.Size]byte

// NewChallenge returns a random challenge.
func NewChallenge() Challenge {
	var c Challenge
	rand.Read(c[:]) // never fails: without randomness, the runtime ends the process
	return c
}

// Prove returns the proof that the server with this name has the key id. The proof contains the name. So a server
// without the key can't pass on the challenge to another server and use its answer. Code: not_found.
func (r *Ring) Prove(id ID, server string, c Challenge) (Proof, error) {
	k, err := r.key(id)
	if err != nil {
		return Proof{}, err
	}
	return prove(k, server, c), nil
}

func prove(k Key, server string, c Challenge) Proof {
	m := MACKey{derive(k.secret, purposeProve)}
	return Proof(m.Sum(c[:], []byte(server)))
}

// Check checks the proof of the server with this name. The challenge must be one that the caller has sent to this
// server and has not used before. Codes: not_found if this keyring lacks the key; forbidden if the proof is wrong.
func (r *Ring) Check(id ID, server string, c Challenge, p Proof) error {
	k, err := r.key(id)
	if err != nil {
		return err
	}
	if want := prove(k, server, c); !hmac.Equal(want[:], p[:]) {
		return model.Refuse(model.CodeForbidden, "server %s did not prove that it has the key %s", server, id).
			WithHint("add the key to the keyring of that server")
	}
	return nil
}

// MACKey is a key for HMAC-SHA256. The zero value is no key. A MACKey never changes, so it is safe for concurrent use.
type MACKey struct{ secret secret }

// MACKey returns the key that is derived from the KEK id for one use, which label names. All servers get the same key.
// Keys of different labels tell nothing about each other. Code: not_found.
func (r *Ring) MACKey(id ID, label string) (MACKey, error) {
	k, err := r.key(id)
	if err != nil {
		return MACKey{}, err
	}
	return MACKey{derive(k.secret, purposeMAC+label)}, nil
}

// Sum returns the HMAC of a message: 32 bytes. A sum of several parts contains the length of each part, so that parts
// that are cut in another way have another sum. Compare sums that others send with hmac.Equal.
func (m MACKey) Sum(parts ...[]byte) []byte {
	h := hmac.New(sha256.New, m.secret())
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write(p)
	}
	return h.Sum(nil)
}

// String hides the key.
func (MACKey) String() string { return "[MAC key]" }

// GoString hides the key.
func (MACKey) GoString() string { return "[MAC key]" }
