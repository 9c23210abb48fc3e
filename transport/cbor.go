package transport

import (
	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/fsm"
)

// EncodeCBOR writes a value of the agents' protocol: core deterministic, integer keys.
func EncodeCBOR(v any) ([]byte, error) {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		return nil, err
	}
	return mode.Marshal(v)
}

// DecodeCBOR reads one. It is strict: unknown fields, keys given twice, indefinite lengths and bytes after the value are
// refused, and nesting is bounded. Code: invalid.
func DecodeCBOR(data []byte, v any) error {
	mode, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, MaxNestedLevels: 32, MaxArrayElements: 131072, MaxMapPairs: 131072,
	}.DecMode()
	if err != nil {
		return err
	}
	if err := mode.Unmarshal(data, v); err != nil {
		return fsm.Refuse(fsm.CodeInvalid, "the message can't be decoded: %v", err).
			WithHint("compare the versions of the two processes with: outspan version")
	}
	return nil
}
