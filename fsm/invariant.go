package fsm

import (
	"fmt"
	"slices"
	"strings"
)

// Invariant is the id of a rule in the table of docs/proof.md. The empty id stands for the rules without a number:
// sums, indexes and references must be right.
type Invariant string

// The rules that always hold.
const (
	S1  Invariant = "S1"  // memory and ports of a machine are never allocated twice
	S2  Invariant = "S2"  // an exclusive volume has one holder at a time
	S3  Invariant = "S3"  // no voluntary stop exceeds a budget or its rate
	S4  Invariant = "S4"  // an acknowledged write is in the state exactly once, a refused write never
	S5  Invariant = "S5"  // servers at the same index have the same state
	S6  Invariant = "S6"  // no member with data is stopped without a reason that still holds
	S7  Invariant = "S7"  // a group never has more instances than its count and surge allow, even when a machine returns
	S8  Invariant = "S8"  // states change only along declared edges; indexes, epochs and time never go back
	S9  Invariant = "S9"  // what was deleted does not come back
	S10 Invariant = "S10" // a decision is applied only in the term in which it was made
	S11 Invariant = "S11" // preemption stops only instances that State.MayTakeFrom allows, and all of its victims or none
	S12 Invariant = "S12" // during a HOLD no node is marked offline, no lost instance replaced, nothing moved or preempted
	S13 Invariant = "S13" // a machine that a majority has just heard is never marked offline
	S14 Invariant = "S14" // an instance that should run runs, or the state says why not
	S15 Invariant = "S15" // an agent's report changes only what the agent saw on its own node
	S16 Invariant = "S16" // the last copy of a volume is never removed or left behind
	S17 Invariant = "S17" // no instance is stopped because servers can't be heard, unless the instance has a lease
	S18 Invariant = "S18" // a write changes only the object that it names
	S19 Invariant = "S19" // a revoked member, a spent or revoked join token and a replaced key never count again
	S20 Invariant = "S20" // a rotation drops no CA as long as it waits for a member with a certificate of it
	S21 Invariant = "S21" // a container is placed only where the image of its version's digest is
)

// The rules that hold some time after the last fault and the last request.
const (
	L1 Invariant = "L1" // there is a leader soon after a majority is connected again
	L2 Invariant = "L2" // every drain ends
	L3 Invariant = "L3" // a settled cluster writes nothing
	L4 Invariant = "L4" // a dead machine is detected
	L5 Invariant = "L5" // the log accepts every plan
	L6 Invariant = "L6" // a new version that works reaches every node on which it may run
)

// Invariants lists the numbered rules, in the order of docs/proof.md.
func Invariants() []Invariant {
	return []Invariant{
		S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11, S12, S13, S14, S15, S16, S17, S18, S19, S20, S21,
		L1, L2, L3, L4, L5, L6,
	}
}

// Valid reports whether i is a numbered rule.
func (i Invariant) Valid() bool { return slices.Contains(Invariants(), i) }

// String returns the id. It is empty for a rule without a number.
func (i Invariant) String() string { return string(i) }

// Finding is one violation of an invariant.
type Finding struct {
	Invariant Invariant
	Text      string // without the invariant's id
}

// String returns the id of the invariant, if the invariant has one, and the text.
func (f Finding) String() string {
	if f.Invariant == "" {
		return f.Text
	}
	return string(f.Invariant) + ": " + f.Text
}

// Findings is an error that lists at least one finding. Check and CheckStep return it.
type Findings []Finding

// Error returns one line for each finding.
func (f Findings) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// Add appends a finding.
func (f *Findings) Add(rule Invariant, format string, args ...any) {
	*f = append(*f, Finding{rule, fmt.Sprintf(format, args...)})
}

// Err returns the findings as an error, or nil if there are none.
func (f Findings) Err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// First returns the first numbered rule among the findings, or "" if there is none.
func (f Findings) First() Invariant {
	for _, one := range f {
		if one.Invariant != "" {
			return one.Invariant
		}
	}
	return ""
}
