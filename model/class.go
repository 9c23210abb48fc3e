package model

import (
	"fmt"
)

// ClassName is a named priority.
type ClassName string

// The built-in classes, from first to last.
const (
	ClassSystem     ClassName = "system"
	ClassCritical   ClassName = "critical"
	ClassProduction ClassName = "production" // the default
	ClassBatch      ClassName = "batch"
)

// MaxDown is how many instances of a group may be down by default: Amount, a percentage rounded down, and at least
// Floor.
type MaxDown struct {
	Amount Amount `cbor:"1,keyasint"`
	Floor  int    `cbor:"2,keyasint,omitempty"`
}

// Of is the number for a count; never more than it.
func (m MaxDown) Of(count int) int {
	return max(min(max(m.Amount.Of(count, false), m.Floor), count), 0)
}

// String writes it as people do: "25%, at least 1".
func (m MaxDown) String() string {
	if m.Floor > 0 {
		return fmt.Sprintf("%s, at least %d", m.Amount, m.Floor)
	}
	return m.Amount.String()
}

// DefaultMaxDown is that of production, and of a new class that is given none.
func DefaultMaxDown() MaxDown { return MaxDown{Amount: Amount{N: 25, Percent: true}, Floor: 1} }

// Quota limits a class: every instance that is not stopped counts, its memory with the overhead. Zero: no limit.
type Quota struct {
	MemoryBytes int64 `json:"memory_bytes" cbor:"1,keyasint,omitempty"`
	Instances   int   `json:"instances" cbor:"2,keyasint,omitempty"`
}

// PreemptEqual says whether an instance that fits nowhere may preempt one of its own class.
type PreemptEqual string

// The values of PreemptEqual. Fair: only where it strictly lowers the largest owner's share.
const (
	PreemptOff  PreemptEqual = "off"
	PreemptFair PreemptEqual = "fair"
)

// Valid reports whether p is in the closed set.
func (p PreemptEqual) Valid() bool { return p == PreemptOff || p == PreemptFair }

// String implements fmt.Stringer.
func (p PreemptEqual) String() string { return string(p) }
