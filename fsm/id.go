package fsm

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"

	"github.com/outspan/outspan/model"
)

// DeriveInstanceID derives the id of a new instance from values that no other placement shares: the moment of the state
// on which the placement was decided, the group, the slot, and attempt, the number of earlier placements of the group.
// The lineage is included too, because two recoveries of one state go through the same indexes. An id that is derived
// and not drawn at random keeps deciding a pure function.
func DeriveInstanceID(at model.Seen, lineage string, group model.GroupID, slot int, attempt uint64) model.InstanceID {
	var room [160]byte // on the stack, because every placement needs an id
	text := append(strconv.AppendUint(room[:0], momentNumber(at), 10), 0)
	if lineage != "" {
		text = append(append(text, lineage...), 0)
	}
	text = append(append(text, group...), 0)
	text = append(strconv.AppendInt(text, int64(slot), 10), 0)
	sum := sha256.Sum256(strconv.AppendUint(text, attempt, 10))
	var id [16]byte
	base32.HexEncoding.Encode(id[:], sum[:10])
	for i, c := range id {
		if c >= 'A' {
			id[i] = c + 'a' - 'A'
		}
	}
	return model.InstanceID(id[:])
}
