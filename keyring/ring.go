package keyring

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/outspan/outspan/model"
)

// Ring is the KEKs in a keyring file. It is safe for concurrent use. Only one process may change a file, so the caller
// must hold the lock of the data directory. Methods that change the file block until the change is on disk, and other
// changes wait for them; reading never waits. A change first reads the file, so it may also fail with the codes of
// Open. After file_error a change is not in the Ring, but may be in the file: open the file again, because further
// changes may be refused.
type Ring struct {
	path string
	keys atomic.Pointer[[]Key] // the active one first; the slice never changes

	mu   sync.Mutex        // held by a change
	disk [sha256.Size]byte // sum of the file's content as this Ring has read or written it
}

// Open reads a keyring file. Codes: not_found if there is none; keyring_invalid if others than the owner can use it, if
// it is no regular file, if it is damaged, or if its format is unknown; file_error if it can't be read.
func Open(path string) (*Ring, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, err
	}
	keys, refusal := parseFile(b)
	if refusal != nil {
		refusal.Message = "keyring " + path + " " + refusal.Message
		return nil, refusal
	}
	return newRing(path, keys, b), nil
}

// Create writes a keyring file with mode 0600, and never replaces one. It has the given keys, which come from Keys of
// another server or from Import; the first one is active. Without keys it gets a new one. The directory must exist.
// Codes: file_exists, invalid, too_large, file_error.
func Create(path string, keys ...Key) (*Ring, error) {
	if len(keys) == 0 {
		keys = []Key{generateKey()}
	}
	keys, err := merge(nil, keys)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, model.Refuse(model.CodeFileExists, "%s exists already", path).
			WithHint("the state can't be read without its keys; move the file away only if no state needs them")
	}
	b := encodeFile(keys)
	if err := writeFile(path, b); err != nil {
		return nil, err
	}
	return newRing(path, keys, b), nil
}

func newRing(path string, keys []Key, content []byte) *Ring {
	r := &Ring{path: path, disk: sha256.Sum256(content)}
	r.keys.Store(&keys)
	return r
}

// Keys returns all keys, the active one first, then in the order in which they were added.
func (r *Ring) Keys() []Key { return slices.Clone(*r.keys.Load()) }

// IDs returns the names of all keys, in the order of Keys.
func (r *Ring) IDs() []ID {
	var ids []ID
	for _, k := range *r.keys.Load() {
		ids = append(ids, k.id)
	}
	return ids
}

// Active returns the name of the key that wraps new data keys.
func (r *Ring) Active() ID { return r.active().id }

func (r *Ring) active() Key { return (*r.keys.Load())[0] }

// key returns the key with this id. Code: not_found.
func (r *Ring) key(id ID) (Key, error) {
	keys := *r.keys.Load()
	i := find(keys, id)
	if i < 0 {
		return Key{}, model.Refuse(model.CodeNotFound, "keyring %s lacks the key %q", r.path, model.Clip(string(id))).
			WithHint("add it from another server or from an export")
	}
	return keys[i], nil
}

// Generate adds a new key that is not active. Activate it once every server has it. Codes: too_large, conflict,
// file_error.
func (r *Ring) Generate() (Key, error) {
	k := generateKey()
	return k, r.Add(k)
}

// Rotate adds a new key and makes it active at once. It is for a cluster with one server: others can't read what the
// new key wraps until they have it. Codes: too_large, conflict, file_error.
func (r *Ring) Rotate() (ID, error) {
	k := generateKey()
	return k.id, r.change(func(keys []Key) ([]Key, error) { return merge([]Key{k}, keys) })
}

// Add adds keys of another server or of an export. None of them becomes active. It ignores keys that are there already.
// Codes: invalid for a zero key; too_large for more than MaxKeys; conflict if the file was changed by another process;
// file_error.
func (r *Ring) Add(keys ...Key) error {
	return r.change(func(own []Key) ([]Key, error) { return merge(own, keys) })
}

// Activate makes a key active. Codes: not_found, conflict, file_error.
func (r *Ring) Activate(id ID) error {
	return r.change(func(keys []Key) ([]Key, error) {
		k, err := r.key(id)
		if err != nil {
			return nil, err
		}
		return merge([]Key{k}, keys)
	})
}

// Remove removes a key for good. What only this key can unwrap is lost, so the caller must know that nothing needs it.
// Codes: in_use for the active key; not_found, conflict, file_error.
func (r *Ring) Remove(id ID) error {
	return r.change(func(keys []Key) ([]Key, error) {
		if _, err := r.key(id); err != nil {
			return nil, err
		}
		if keys[0].id == id {
			return nil, model.Refuse(model.CodeInUse, "key %s is the active one of keyring %s", id, r.path).
				WithHint("make another key active first")
		}
		return slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { return k.id == id }), nil
	})
}

// change writes the keys that edit makes of the current ones, unless they are the same.
func (r *Ring) change(edit func([]Key) ([]Key, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys, err := edit(*r.keys.Load())
	if err != nil {
		return err
	}
	b := encodeFile(keys)
	sum := sha256.Sum256(b)
	if sum == r.disk {
		return nil
	}
	// Without this check, a change would drop the keys that another process has added.
	if old, err := readFile(r.path); err != nil {
		return err
	} else if sha256.Sum256(old) != r.disk {
		return model.Refuse(model.CodeConflict, "keyring %s was changed by another process", r.path).
			WithHint("restart the server, so that it reads the file again")
	}
	if err := writeFile(r.path, b); err != nil {
		return err
	}
	r.disk = sum
	r.keys.Store(&keys)
	return nil
}

// merge returns a new list of the keys in own, followed by the keys in more that are not in own. Codes: invalid,
// too_large.
func merge(own, more []Key) ([]Key, error) {
	keys := slices.Clone(own)
	for _, k := range more {
		if k.secret == nil {
			return nil, model.Refuse(model.CodeInvalid, "a zero value was given as a key").
				WithHint("use the keys of Keys, Import or ParseKey")
		}
		if find(keys, k.id) < 0 {
			keys = append(keys, k)
		}
	}
	if len(keys) > MaxKeys {
		return nil, model.Refuse(model.CodeTooLarge, "a keyring can't have %d keys, at most %d", len(keys), MaxKeys).
			WithHint("remove keys that nothing needs any more")
	}
	return keys, nil
}

// WrapNew returns a new data key, and the same key wrapped by the active KEK.
func (r *Ring) WrapNew() (DEK, Wrapped) {
	d := DEK{newSecret()}
	return d, d.wrap(r.active())
}

// Unwrap returns a data key. Codes: not_found if the keyring lacks the KEK; integrity_check_failed if w is damaged or
// was wrapped by another KEK.
func (r *Ring) Unwrap(w Wrapped) (DEK, error) {
	k, err := r.key(w.KEK)
	if err != nil {
		return DEK{}, err
	}
	return w.open(k)
}

// Rewrap returns the same data key wrapped by the KEK id, which need not be active. Codes: as Unwrap, and not_found if
// the keyring lacks id.
func (r *Ring) Rewrap(w Wrapped, id ID) (Wrapped, error) {
	d, err := r.Unwrap(w)
	if err != nil {
		return Wrapped{}, err
	}
	k, err := r.key(id)
	if err != nil {
		return Wrapped{}, err
	}
	return d.wrap(k), nil
}

// String names the file and the active key, and hides the keys.
func (r *Ring) String() string {
	keys := *r.keys.Load()
	return fmt.Sprintf("[keyring %s: %d keys, %s is active]", r.path, len(keys), keys[0].id)
}

// GoString is String.
func (r *Ring) GoString() string { return r.String() }
