package fsm

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"

	"github.com/outspan/outspan/model"
)

// DeriveInstanceID derives the id of a new instance from values that no other placement shares. at has the incarnation
// and the index of the state on which the placement was decided. attempt is the number of earlier placements of the
// group. lineage distinguishes two recoveries of one state, which go through the same indexes. The id is not random, so
// that deciding stays a pure function.
func DeriveInstanceID(at model.Seen, lineage string, group model.GroupID, slot int, attempt uint64) model.InstanceID {
	var room [160]byte // on the stack, which saves an allocation for each placement
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
