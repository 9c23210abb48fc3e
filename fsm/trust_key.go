package fsm

import (
	"fmt"
	"strings"

	"github.com/outspan/outspan/model"
)

// Bounds of the rows of keys.
const (
	maxTrustKeys = 100
	maxSealed    = 4 << 10 // bytes of the encrypted key, and also of its certificate
	maxUnder     = 128     // bytes of the name of the key that encrypted it
	maxPassed    = 5000    // members that a rotation of the CA does not wait for
	maxKeyGrace  = 90 * 24 * model.Hour
)

// TrustKey is a key of the cluster, encrypted. The state never has the key itself. The leader encrypts it before it
// proposes the row, with the name and the version as associated data.
type TrustKey struct {
	Name    model.KeyName  `cbor:"1,keyasint"`
	Version uint64         `cbor:"2,keyasint"` // 1 for a new row; each change raises it by 1
	Phase   model.KeyPhase `cbor:"3,keyasint"`
	// Under names the key that encrypted Sealed. For a data key it is a key of the servers' keyrings, otherwise a KeyName
	// of a data key.
	Under        string     `cbor:"4,keyasint"`
	Sealed       []byte     `cbor:"5,keyasint" debug:"secret"`
	Public       []byte     `cbor:"6,keyasint,omitempty"` // of a CA: its certificate in DER
	CreatedIndex uint64     `cbor:"7,keyasint"`
	At           model.Time `cbor:"8,keyasint"` // cluster time at which the key entered its phase
	// Exported is the cluster time at which an export of a keyring with the key Under was last recorded; only for data
	// keys. 0 means that no export is known.
	Exported model.Time `cbor:"9,keyasint,omitempty"`
	// Passed are members, as Subject.String, that the rotation to this CA leaves behind. They are sorted.
	Passed []string `cbor:"10,keyasint,omitempty"`
	// Grace is how long the CA before stays trusted after this one has become active.
	Grace model.Duration `cbor:"11,keyasint,omitempty"`
	// ActiveIndex is the index at which an incoming key became active. It is 0 if the key began as the active one.
	ActiveIndex uint64 `cbor:"12,keyasint,omitempty"`
}

// number returns the number in the key's name. It is 0 if the name is invalid.
func (k *TrustKey) number() uint64 {
	_, n, _ := k.Name.Split()
	return n
}

// KeyPut writes the row of a key. Version must be 1 for a new row, and otherwise the version of the row plus 1. A new
// key needs a higher number than the other keys of its kind. A phase never goes back. To replace an active key, one
// group retires the old key first and then activates the new one. Codes: invalid; stale for another Version; conflict
// for a phase that goes back, a second active key, a number that is not higher, too many keys, or a missing or retired
// data key in Under.
type KeyPut struct {
	Name    model.KeyName  `cbor:"1,keyasint"`
	Version uint64         `cbor:"2,keyasint"`
	Phase   model.KeyPhase `cbor:"3,keyasint"`
	Under   string         `cbor:"4,keyasint"`
	Sealed  []byte         `cbor:"5,keyasint" debug:"secret"`
	Public  []byte         `cbor:"6,keyasint,omitempty"`
	Passed  []string       `cbor:"7,keyasint,omitempty"`
	Grace   model.Duration `cbor:"8,keyasint,omitempty"`
}

// KeyDrop removes a retired key. Codes: not_found; conflict if the key is not retired; in_use if the key encrypts
// another row, or if it is the last of its kind.
type KeyDrop struct {
	Name model.KeyName `cbor:"1,keyasint"`
}

// KeyringExported records that an export of a server's keyring has the key that encrypts a data key. Codes: not_found;
// stale if another key encrypts it now.
type KeyringExported struct {
	Name  model.KeyName `cbor:"1,keyasint"` // of the data key
	Under string        `cbor:"2,keyasint"` // the key in the export, as in TrustKey.Under
}

func (c *KeyPut) apply(s *State) error {
	old, exists := s.TrustKeys.Get(c.Name)
	if refusal := c.check(s, old); refusal != nil {
		return refusal
	}
	next := TrustKey{Name: c.Name, Version: c.Version, Phase: c.Phase, Under: c.Under, Sealed: c.Sealed, Public: c.Public,
		CreatedIndex: s.Index, At: s.Now, Passed: c.Passed, Grace: c.Grace}
	var before model.KeyPhase
	if exists {
		before, next.CreatedIndex, next.ActiveIndex = old.Phase, old.CreatedIndex, old.ActiveIndex
		switch {
		case old.Phase == c.Phase:
			next.At = old.At
		case c.Phase == model.KeyActive:
			next.ActiveIndex = s.Index
		}
		if old.Under == c.Under {
			next.Exported = old.Exported
		}
	}
	s.putTrustKey(&next)
	s.touch("keys")
	if before != next.Phase {
		s.emitKey(c.Name, string(before), string(next.Phase))
	}
	return nil
}

func (s *State) emitKey(name model.KeyName, before, after string) {
	s.emit(Event{Type: model.EventKey, Subject: "key/" + string(name), Before: before, After: after})
}

// check refuses the command if it is invalid or if the state does not allow it. old is the present row, or nil.
func (c *KeyPut) check(s *State, old *TrustKey) *model.Error {
	if refusal := c.checkBounds(); refusal != nil {
		return refusal
	}
	kind, n, _ := c.Name.Split()
	var present uint64
	if old != nil {
		present = old.Version
	}
	if c.Version != present+1 {
		return model.Refuse(model.CodeStale, "key %s is at version %d, so the next is %d, not %d", c.Name, present,
			present+1, c.Version).
			WithHint("read the key again, then try again")
	}
	if old != nil && c.Phase.Before(old.Phase) {
		return model.Refuse(model.CodeConflict, "key %s is %s, it can't be %s again", c.Name, old.Phase, c.Phase).
			WithHint("make a new key")
	}
	if active, ok := s.ActiveKey(kind); ok && c.Phase == model.KeyActive && active.Name != c.Name {
		return model.Refuse(model.CodeConflict, "key %s can't be active, because key %s is", c.Name, active.Name).
			WithHint("retire %s in the same group of commands, before this one", active.Name)
	}
	if old == nil {
		if refusal := s.mayAddKey(kind, n); refusal != nil {
			return refusal
		}
	}
	if kind == model.KeyData {
		return nil
	}
	if under, ok := s.TrustKeys.Get(model.KeyName(c.Under)); !ok || under.Phase == model.KeyRetired {
		return model.Refuse(model.CodeConflict, "key %s is encrypted under %s, which is missing or retired", c.Name, c.Under).
			WithHint("encrypt it under the active data key")
	}
	return nil
}

func (c *KeyPut) checkBounds() *model.Error {
	kind, _, ok := c.Name.Split()
	switch {
	case !ok:
		return model.Refuse(model.CodeInvalid, "%q is no name of a key", model.ClipText(string(c.Name), 100)).
			WithHint("write data/N, ca/N or gossip/N with a number from 1")
	case !c.Phase.Valid():
		return model.Refuse(model.CodeInvalid, "key %s: the phase is %q; it must be incoming, active or retired", c.Name,
			model.ClipText(string(c.Phase), 100))
	case len(c.Sealed) == 0 || len(c.Sealed) > maxSealed:
		return model.Refuse(model.CodeInvalid, "key %s has %d encrypted bytes; 1 to %d are allowed", c.Name,
			len(c.Sealed), maxSealed)
	case (kind == model.KeyCA) != (len(c.Public) > 0):
		return model.Refuse(model.CodeInvalid, "key %s has a certificate of %d bytes; a CA needs one, other keys have none",
			c.Name, len(c.Public))
	case len(c.Public) > maxSealed:
		return model.Refuse(model.CodeInvalid, "key %s has a certificate of %d bytes, at most %d are allowed", c.Name,
			len(c.Public), maxSealed)
	case kind == model.KeyData && c.Under == "" || len(c.Under) > maxUnder:
		return model.Refuse(model.CodeInvalid, "key %s: the name of the key that encrypts it has %d bytes; 1 to %d are "+
			"allowed", c.Name, len(c.Under), maxUnder)
	case (len(c.Passed) > 0 || c.Grace != 0) && kind != model.KeyCA:
		return model.Refuse(model.CodeInvalid, "key %s is no CA, so it leaves no members behind and has no grace", c.Name)
	case c.Grace < 0 || c.Grace > maxKeyGrace:
		return model.Refuse(model.CodeInvalid, "key %s: the grace is %s; 0s to %s are allowed", c.Name, c.Grace, maxKeyGrace)
	case len(c.Passed) > maxPassed:
		return model.Refuse(model.CodeInvalid, "key %s leaves %d members behind; at most %d are allowed", c.Name,
			len(c.Passed), maxPassed).WithHint("revoke machines that are gone for good: outspan node revoke")
	case !validPassed(c.Passed):
		return model.Refuse(model.CodeInvalid, "key %s: the %d members that it leaves behind are not sorted or no members",
			c.Name, len(c.Passed))
	case kind != model.KeyData && model.KeyName(c.Under).Kind() != model.KeyData:
		return model.Refuse(model.CodeInvalid, "key %s is encrypted under %q, which names no data key", c.Name, c.Under)
	}
	return nil
}

// validPassed reports whether a list of members is sorted and without duplicates.
func validPassed(passed []string) bool {
	for i, text := range passed {
		kind, name, _ := strings.Cut(text, ":")
		if checkMember(model.Subject{Kind: model.SubjectKind(kind), Name: name}, 1) != nil || i > 0 && text <= passed[i-1] {
			return false
		}
	}
	return true
}

// mayAddKey refuses a new key if there are too many, or if its number is not above those of the other keys of its kind.
func (s *State) mayAddKey(kind model.KeyKind, n uint64) *model.Error {
	if s.TrustKeys.Len() >= maxTrustKeys {
		return model.Refuse(model.CodeConflict, "there are %d keys already", s.TrustKeys.Len()).
			WithHint("drop retired keys first")
	}
	if keys := s.KeysOf(kind); len(keys) > 0 {
		if newest := keys[len(keys)-1]; n <= newest.number() {
			return model.Refuse(model.CodeConflict, "key %s/%d is not newer than %s", kind, n, newest.Name).
				WithHint("give it a higher number")
		}
	}
	return nil
}

func (c *KeyDrop) apply(s *State) error {
	k, ok := s.TrustKeys.Get(c.Name)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no key %q", model.ClipText(string(c.Name), 100)).
			WithHint("it may have been dropped already")
	case k.Phase != model.KeyRetired:
		return model.Refuse(model.CodeConflict, "key %s is %s; only a retired key can be dropped", c.Name, k.Phase).
			WithHint("retire it first")
	case len(s.KeysOf(c.Name.Kind())) == 1:
		return model.Refuse(model.CodeInUse, "key %s is the last of its kind", c.Name).WithHint("make a new key first")
	}
	for name, other := range s.TrustKeys.All() {
		if other.Under == string(c.Name) {
			return model.Refuse(model.CodeInUse, "key %s encrypts key %s", c.Name, name).
				WithHint("encrypt %s under the active data key first", name)
		}
	}
	s.delTrustKey(c.Name)
	s.touch("keys")
	s.emitKey(c.Name, fmt.Sprint(k.Phase), "dropped")
	return nil
}

func (c *KeyringExported) apply(s *State) error {
	k, ok := s.TrustKeys.Get(c.Name)
	switch {
	case !ok || c.Name.Kind() != model.KeyData:
		return model.Refuse(model.CodeNotFound, "there is no data key %q", model.ClipText(string(c.Name), 100)).
			WithHint("it may have been dropped")
	case k.Under != c.Under:
		return model.Refuse(model.CodeStale, "key %s is encrypted under key %s now, which the export lacks", c.Name, k.Under).
			WithHint("export the keyring again")
	}
	next := *k
	next.Version, next.Exported = k.Version+1, max(s.Now, 1)
	s.putTrustKey(&next)
	s.touch("keys")
	s.emitKey(c.Name, string(k.Phase), "exported")
	return nil
}
