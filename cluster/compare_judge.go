package cluster

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// stateKey names one state of the cluster's history. Servers that do what they must have the same state under the
// same key. The index alone would not do: a restore takes an index that a last write of the old state may have had.
type stateKey struct {
	Index       uint64 `cbor:"1,keyasint"` // of the last entry in it
	Incarnation uint64 `cbor:"2,keyasint"`
	Format      uint16 `cbor:"3,keyasint"` // of the state
	// Program is the newest format that the server's program knows. While a cluster is upgraded, programs of two
	// formats need not write a row alike, so they are not compared.
	Program uint16 `cbor:"4,keyasint"`
}

func keyOf(s fsm.State) stateKey {
	return stateKey{s.Index, s.Incarnation, s.Format, model.CurrentFormat}
}

// Comparison is what is known of the servers' states under one key, as a value. Judging it is a function of it alone.
type Comparison struct {
	Self    model.ServerID
	Voters  []model.ServerID
	Digests map[model.ServerID]string // of every server that has the state, Self included
}

// ComparisonResult is what comes of a Comparison, in a closed set.
type ComparisonResult string

// The results.
const (
	// StatesEqual: a majority of all voters has this server's state, and nobody another.
	StatesEqual ComparisonResult = "equal"
	// OthersDiffer: a majority has this server's state, and some server another.
	OthersDiffer ComparisonResult = "others_differ"
	// InMinority: a majority of all voters agrees on a state that is not this server's, which must stop.
	InMinority ComparisonResult = "minority"
	// StatesUndecided: servers differ, and no state has a majority. Nobody can tell who is right.
	StatesUndecided ComparisonResult = "undecided"
	// NotCompared: fewer than a majority had the state, and those were equal.
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

// Differs reports whether it shows two states where there should be one.
func (r ComparisonResult) Differs() bool {
	return r == OthersDiffer || r == InMinority || r == StatesUndecided
}

// Majority is the digest that more than half of all voters have, those that did not answer counted too. ok is false
// if there is none.
func (c Comparison) Majority() (digest string, ok bool) {
	for _, candidate := range c.Voters {
		digest = c.Digests[candidate]
		if digest != "" && 2*len(c.agreeing(digest)) > len(c.Voters) {
			return digest, true
		}
	}
	return "", false
}

// agreeing are the voters that have a digest, in the order of Voters.
func (c Comparison) agreeing(digest string) []model.ServerID {
	var out []model.ServerID
	for _, v := range c.Voters {
		if c.Digests[v] == digest {
			out = append(out, v)
		}
	}
	return out
}

// others are the servers whose state is not the one with the digest, in order of their ids.
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

// Result judges this server: only a strict majority of all voters can call it wrong, so of three servers two have
// to agree, and a server alone with one other never stops, whoever of them is right. A server without a vote is
// judged in the same way, but has no say.
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

// commonState is the state that most of the servers hold among those that this server holds, and of these the
// newest. holders does not count this server.
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
