package cluster

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// stateKey names one state of the cluster's history. Correct servers have the same state under the same key. The index
// alone is not enough: a restored state can have an index that a state before the restore also had.
type stateKey struct {
	Index       uint64 `cbor:"1,keyasint"` // of the last entry in the state
	Incarnation uint64 `cbor:"2,keyasint"`
	Format      uint16 `cbor:"3,keyasint"` // of the state
	// Program is the newest format that the server's program knows. During an upgrade, programs of two formats may write a
	// row differently, so they are not compared.
	Program uint16 `cbor:"4,keyasint"`
}

func keyOf(s fsm.State) stateKey {
	return stateKey{s.Index, s.Incarnation, s.Format, model.CurrentFormat}
}

// Comparison is what is known of the servers' states under one key, as a value. The judgement depends on it alone.
type Comparison struct {
	Self    model.ServerID
	Voters  []model.ServerID
	Digests map[model.ServerID]string // of every server that has the state, Self included
}

// ComparisonResult is the result of a Comparison, one of a closed set.
type ComparisonResult string

// The results.
const (
	// StatesEqual: a majority of all voters has this server's state, and no server has another.
	StatesEqual ComparisonResult = "equal"
	// OthersDiffer: a majority has this server's state, and some server has another.
	OthersDiffer ComparisonResult = "others_differ"
	// InMinority: a majority of all voters agrees on another state than this server's, so this server must stop.
	InMinority ComparisonResult = "minority"
	// StatesUndecided: servers differ, and no state has a majority. Nobody can tell who is right.
	StatesUndecided ComparisonResult = "undecided"
	// NotCompared: fewer than a majority had the state, and their states were equal.
	NotCompared ComparisonResult = "incomplete"
)

// ComparisonResults lists the closed set.
func ComparisonResults() []ComparisonResult {
	return []ComparisonResult{StatesEqual, OthersDiffer, InMinority, StatesUndecided, NotCompared}
}

// Valid reports whether r is in the closed set.
func (r ComparisonResult) Valid() bool { return slices.Contains(ComparisonResults(), r) }

// String implements fmt.Stringer.
func (r ComparisonResult) String() string { return string(r) }

// Differs reports whether the result shows two different states.
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

// agreeing returns the voters with a digest, in the order of Voters.
func (c Comparison) agreeing(digest string) []model.ServerID {
	var out []model.ServerID
	for _, v := range c.Voters {
		if c.Digests[v] == digest {
			out = append(out, v)
		}
	}
	return out
}

// others returns the servers with another digest, in order of their ids.
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

// Result judges this server. Only a strict majority of all voters can call it wrong: of three servers two have to
// agree. So two servers that differ alone never stop, whichever of them is right. A server without a vote is judged in
// the same way, but its own digest doesn't count.
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

// commonState returns, of the states in own, the one that most other servers hold. Among equals it takes the newest.
// holders does not count this server.
func commonState(own []fsm.State, held map[model.ServerID][]stateKey) (s fsm.State, holders int) {
	holders = -1
	for _, state := range own { // oldest first
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
