package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// canonical is the encoding of specs in which equal ones have equal bytes.
var canonical = sync.OnceValue(func() cbor.EncMode {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(fmt.Sprintf("model: options of the CBOR library: %v", err))
	}
	return mode
})

// Digest tells apart what instances run by: a count or a budget that was changed makes no difference.
func (g *GroupSpec) Digest() string {
	data, err := canonical().Marshal(g.Template())
	if err != nil {
		panic(fmt.Sprintf("model: a group's spec can't be encoded: %v", err)) // all its fields can
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}
