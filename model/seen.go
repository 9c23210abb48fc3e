package model

// Seen is a moment in the history of the state: a higher incarnation is newer, then a higher index.
type Seen struct {
	Incarnation uint64 `cbor:"1,keyasint"`
	Index       uint64 `cbor:"2,keyasint"`
}

// Before reports whether s is older than t.
func (s Seen) Before(t Seen) bool {
	return s.Incarnation < t.Incarnation || s.Incarnation == t.Incarnation && s.Index < t.Index
}
