package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// canonical encodes specs so that equal specs have equal bytes.
var canonical = sync.OnceValue(func() cbor.EncMode {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(fmt.Sprintf("model: options of the CBOR library: %v", err))
	}
	return mode
})

// Digest returns a hash of the group's Template. Groups that differ only in what Template omits, such as count and
// budget, have the same digest.
func (g *GroupSpec) Digest() string {
	data, err := canonical().Marshal(g.Template())
	if err != nil {
		panic(fmt.Sprintf("model: a group's spec can't be encoded: %v", err)) // all of its fields can be encoded
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}
