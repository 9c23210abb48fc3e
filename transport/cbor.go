package transport

import (
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/model"
)

// agentCodec has the encoder and the decoder of the agents' protocol. Both are safe for concurrent use.
var agentCodec = newAgentCodec()

func newAgentCodec() (c struct {
	enc cbor.EncMode
	dec cbor.DecMode
}) {
	var encoder, decoder error
	c.enc, encoder = cbor.CoreDetEncOptions().EncMode()
	c.dec, decoder = cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, MaxNestedLevels: 32, MaxArrayElements: 131072, MaxMapPairs: 131072,
	}.DecMode()
	if err := errors.Join(encoder, decoder); err != nil {
		panic(fmt.Sprintf("transport: options of the CBOR library: %v", err))
	}
	return c
}

// EncodeCBOR encodes a message of the agents' protocol. Equal values get equal bytes (Core Deterministic Encoding).
func EncodeCBOR(v any) ([]byte, error) { return agentCodec.enc.Marshal(v) }

// DecodeCBOR decodes a message of the agents' protocol. It refuses unknown fields, duplicate keys, tags, indefinite
// lengths, and bytes after the value. It limits the nesting and the number of elements. Code: invalid.
func DecodeCBOR(data []byte, v any) error {
	if err := agentCodec.dec.Unmarshal(data, v); err != nil {
		return model.Refuse(model.CodeInvalid, "the message can't be decoded: %v", err).
			WithHint("compare the versions of the two processes with: outspan version")
	}
	return nil
}
