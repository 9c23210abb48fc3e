package door

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"time"
)

// Trip is what a sign-in with a provider is bound to. Redirect is the address to which the provider sends the browser.
type Trip struct{ Redirect, State, Nonce, Verifier string }

// tripTime is how long somebody has to sign in at the provider.
const tripTime = 10 * time.Minute

// sealer puts trips into cookies that only this process can read. It is safe for concurrent use.
type sealer struct {
	aead cipher.AEAD
	now  func() time.Time
}

type sealedTrip struct {
	Trip
	Until time.Time
}

func newSealer(now func() time.Time) (*sealer, error) {
	var key [32]byte
	_, _ = rand.Read(key[:]) // it never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &sealer{aead, now}, err
}

func (s *sealer) seal(t Trip) (string, error) {
	text, err := json.Marshal(sealedTrip{t, s.now().Add(tripTime)})
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, nil)), nil
}

// open returns a trip. ok is false if this process has not sealed it, or too long ago.
func (s *sealer) open(cookie string) (t Trip, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil {
		return Trip{}, false
	}
	text, err := s.aead.Open(nil, nil, raw, nil)
	if err != nil {
		return Trip{}, false
	}
	var one sealedTrip
	if json.Unmarshal(text, &one) != nil || s.now().After(one.Until) {
		return Trip{}, false
	}
	return one.Trip, true
}
