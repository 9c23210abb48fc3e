package model

import (
	"fmt"
)

// ClassName is the name of a class. Classes are priorities.
type ClassName string

// The built-in classes, the most important first.
const (
	ClassSystem     ClassName = "system"
	ClassCritical   ClassName = "critical"
	ClassProduction ClassName = "production" // the default
	ClassBatch      ClassName = "batch"
)

// MaxDown is how many instances of a group may be down at once if its budget gives no number: Amount, but at least
// Floor. A percentage is rounded down.
type MaxDown struct {
	Amount Amount `cbor:"1,keyasint"`
	Floor  int    `cbor:"2,keyasint,omitempty"`
}

// Of returns how many instances of a group with this count may be down. The result is at most the count.
func (m MaxDown) Of(count int) int {
	return max(min(max(m.Amount.Of(count, false), m.Floor), count), 0)
}

// String returns m as people write it, such as "25%, at least 1".
func (m MaxDown) String() string {
	if m.Floor > 0 {
		return fmt.Sprintf("%s, at least %d", m.Amount, m.Floor)
	}
	return m.Amount.String()
}

// DefaultMaxDown returns the MaxDown of the class production. A class that an operator adds also has this MaxDown,
// unless the operator gives another one.
func DefaultMaxDown() MaxDown { return MaxDown{Amount: Amount{N: 25, Percent: true}, Floor: 1} }

// Quota limits the instances of a class: their memory, including the overhead, and their number. Stopped instances are
// ignored. A field that is 0 sets no limit.
type Quota struct {
	MemoryBytes int64 `json:"memory_bytes" cbor:"1,keyasint,omitempty"`
	Instances   int   `json:"instances" cbor:"2,keyasint,omitempty"`
}

// PreemptEqual says whether an instance that fits nowhere may preempt an instance of its own class.
type PreemptEqual string

// The values of PreemptEqual. PreemptFair allows a preemption only if the victim's job has the largest share of the
// class, and the preemptor's job stays below that share.
const (
	PreemptOff  PreemptEqual = "off"
	PreemptFair PreemptEqual = "fair"
)

// Valid reports whether p is one of these values.
func (p PreemptEqual) Valid() bool { return p == PreemptOff || p == PreemptFair }

// String implements fmt.Stringer.
func (p PreemptEqual) String() string { return string(p) }
