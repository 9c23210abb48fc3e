package cluster

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// stateKey identifies a state. Correct servers have the same state under the same key. The index alone is not enough,
// because after a restore the same index may belong to another state.
type stateKey struct {
	Index       uint64 `cbor:"1,keyasint"` // of the last entry in the state
	Incarnation uint64 `cbor:"2,keyasint"`
	Format      uint16 `cbor:"3,keyasint"` // of the state
	// Program is the newest format that the server's program knows. During an upgrade, programs of two formats may write a
	// row differently, so their states are not compared.
	Program uint16 `cbor:"4,keyasint"`
}

func keyOf(s fsm.State) stateKey {
	return stateKey{s.Index, s.Incarnation, s.Format, model.CurrentFormat}
}

// Comparison contains the digests that servers reported for their states under one key. Result uses nothing else.
type Comparison struct {
	Self    model.ServerID
	Voters  []model.ServerID
	Digests map[model.ServerID]string // by server; servers that reported no digest are missing
}

// ComparisonResult is the result of a Comparison, one of a closed set.
type ComparisonResult string

// The results.
const (
	// StatesEqual means that a majority of all voters has this server's state, and that no server reported another.
	StatesEqual ComparisonResult = "equal"
	// OthersDiffer means that a majority of all voters has this server's state, and that some server has another.
	OthersDiffer ComparisonResult = "others_differ"
	// InMinority means that a majority of all voters has one state, and this server another. This server must stop.
	InMinority ComparisonResult = "minority"
	// StatesUndecided means that servers differ, and that no state has a majority. Nobody knows which state is right.
	StatesUndecided ComparisonResult = "undecided"
	// NotCompared means that the reported states are equal but are no majority, or that this server's digest is missing.
	NotCompared ComparisonResult = "incomplete"
)

// ComparisonResults returns all results.
func ComparisonResults() []ComparisonResult {
	return []ComparisonResult{StatesEqual, OthersDiffer, InMinority, StatesUndecided, NotCompared}
}

// Valid reports whether r is one of ComparisonResults.
func (r ComparisonResult) Valid() bool { return slices.Contains(ComparisonResults(), r) }

// String implements fmt.Stringer.
func (r ComparisonResult) String() string { return string(r) }

// Differs reports whether r means that two servers have different states.
func (r ComparisonResult) Differs() bool {
	return r == OthersDiffer || r == InMinority || r == StatesUndecided
}

// Majority returns the digest that more than half of all voters have. A voter that did not answer counts in the total.
// ok is false if no digest has a majority.
func (c Comparison) Majority() (digest string, ok bool) {
	for _, candidate := range c.Voters {
		digest = c.Digests[candidate]
		if digest != "" && 2*len(c.agreeing(digest)) > len(c.Voters) {
			return digest, true
		}
	}
	return "", false
}

// agreeing returns the voters that have the given digest, in the order of Voters.
func (c Comparison) agreeing(digest string) []model.ServerID {
	var out []model.ServerID
	for _, v := range c.Voters {
		if c.Digests[v] == digest {
			out = append(out, v)
		}
	}
	return out
}

// others returns the servers that have a digest other than the given one, in order of id.
func (c Comparison) others(digest string) []model.ServerID {
	var out []model.ServerID
	for id, d := range c.Digests {
		if d != digest {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// Result judges this server's state. It returns InMinority only if more than half of all voters agree on another state.
// So if only two of three voters answer and they differ, neither of the two stops. A server without a vote is judged in
// the same way, but its own digest is not counted.
func (c Comparison) Result() ComparisonResult {
	own := c.Digests[c.Self]
	differ := len(c.others(own)) > 0
	right, decided := c.Majority()
	switch {
	case own == "":
		return NotCompared
	case decided && right != own:
		return InMinority
	case decided && differ:
		return OthersDiffer
	case decided:
		return StatesEqual
	case differ:
		return StatesUndecided
	}
	return NotCompared
}

// commonState returns the state in own that most other servers have. If several states are equally common, it returns
// the newest of them. holders is the number of other servers that have the state. own must be sorted, oldest first.
func commonState(own []fsm.State, held map[model.ServerID][]stateKey) (s fsm.State, holders int) {
	holders = -1
	for _, state := range own {
		n := 0
		for _, keys := range held {
			if slices.Contains(keys, keyOf(state)) {
				n++
			}
		}
		if n >= holders {
			s, holders = state, n
		}
	}
	return s, holders
}
