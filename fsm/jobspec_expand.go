package fsm

import (
	"bytes"
)

// sameEncoding reports whether two values would be stored as the same bytes. A nil field equals an empty one.
func sameEncoding(a, b any) bool {
	var left, right bytes.Buffer
	if wire.enc.MarshalToBuffer(a, &left) != nil || wire.enc.MarshalToBuffer(b, &right) != nil {
		return false
	}
	return bytes.Equal(left.Bytes(), right.Bytes())
}
