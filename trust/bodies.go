package trust

import (
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
)

// labelBodies names the use of the keys that hash request bodies; see keyring.Ring.MACKey.
const labelBodies = "bodies"

// HashBody returns the hash of a request's body as the state stores it: the id of a key of the keyring, a dot, and
// the first half of the HMAC. Without the keyring nobody can find out by trying whether a state or a log has a
// certain body. The argument like is the stored hash that the result is compared with, so the HMAC is by the same
// key. If like is empty, the request is new, and the key is the one that the state uses. The state must have keys.
// HashBody does not block.
//
// If the keyring lacks the key, the hash of a new request is random, and otherwise empty. So a repetition gets a
// conflict, and is not carried out twice.
func (e *Engine) HashBody(state *fsm.State, like string, body []byte) string {
	id, _ := inUse(state)
	if like != "" {
		name, _, _ := strings.Cut(like, ".")
		id = keyring.ID(name)
	}
	ring, err := e.keyring.get()
	if err == nil {
		var key keyring.MACKey
		if key, err = ring.MACKey(id, labelBodies); err == nil {
			return string(id) + "." + base64.RawURLEncoding.EncodeToString(key.Sum(body)[:16])
		}
	}
	if like != "" {
		return ""
	}
	return "." + rand.Text()
}
