package cluster

import (
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A majority is more than half of all voters, not only of those that answer.
func TestComparisonResult(t *testing.T) {
	three, five := []model.ServerID{"a", "b", "c"}, []model.ServerID{"a", "b", "c", "d", "e"}
	type digests = map[model.ServerID]string
	for _, c := range []struct {
		name    string
		self    model.ServerID
		voters  []model.ServerID
		digests digests
		want    ComparisonResult
	}{
		{"all equal", "a", three, digests{"a": "x", "b": "x", "c": "x"}, StatesEqual},
		{"two of three are enough", "a", three, digests{"a": "x", "b": "x"}, StatesEqual},
		{"alone", "a", three, digests{"a": "x"}, NotCompared},
		{"two others agree", "a", three, digests{"a": "x", "b": "y", "c": "y"}, InMinority},
		{"another is wrong", "b", three, digests{"a": "x", "b": "y", "c": "y"}, OthersDiffer},
		{"one to one", "a", three, digests{"a": "x", "b": "y"}, StatesUndecided},
		{"one to one, the other side", "b", three, digests{"a": "x", "b": "y"}, StatesUndecided},
		{"three states", "a", three, digests{"a": "x", "b": "y", "c": "z"}, StatesUndecided},
		{"two of five agree against one", "a", five, digests{"a": "x", "b": "y", "c": "y"}, StatesUndecided},
		{"two of five are equal", "a", five, digests{"a": "x", "b": "x"}, NotCompared},
		{"three of five agree against two", "a", five, digests{"a": "x", "b": "x", "c": "y", "d": "y", "e": "y"}, InMinority},
		{"three of five, two of them gone", "c", five, digests{"c": "y", "d": "y", "e": "y"}, StatesEqual},
		{"two servers never decide", "a", []model.ServerID{"a", "b"}, digests{"a": "x", "b": "y"}, StatesUndecided},
		{"two servers agree", "a", []model.ServerID{"a", "b"}, digests{"a": "x", "b": "x"}, StatesEqual},
		{"without a vote, wrong", "n", three, digests{"n": "x", "a": "y", "b": "y", "c": "y"}, InMinority},
		{"without a vote, its word counts nothing", "n", three, digests{"n": "x", "a": "x", "b": "y"}, StatesUndecided},
		{"without a vote, right", "n", three, digests{"n": "y", "a": "y", "b": "y"}, StatesEqual},
		{"a server without a vote can't make a majority", "a", three, digests{"a": "x", "b": "y", "n": "y"}, StatesUndecided},
		{"this server could not read its own", "a", three, digests{"b": "y", "c": "y"}, NotCompared},
	} {
		got := Comparison{Self: c.self, Voters: c.voters, Digests: c.digests}.Result()
		if got != c.want || !got.Valid() {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// However the states differ, more than half of the voters continue.
func TestComparisonStopsOnlyMinorities(t *testing.T) {
	words := []string{"", "x", "y", "z"}
	voters := []model.ServerID{"a", "b", "c", "d", "e"}
	for n := 1; n <= len(voters); n++ {
		combinations := 1
		for range n {
			combinations *= len(words)
		}
		for i := range combinations {
			digests := map[model.ServerID]string{}
			for at, rest := 0, i; at < n; at, rest = at+1, rest/len(words) {
				if word := words[rest%len(words)]; word != "" {
					digests[voters[at]] = word
				}
			}
			stop := 0
			for id := range digests {
				if (Comparison{Self: id, Voters: voters[:n], Digests: digests}).Result() == InMinority {
					stop++
				}
			}
			if left := n - stop; 2*left <= n {
				t.Fatalf("%d of %d stop: %v", stop, n, digests)
			}
		}
	}
}

func TestCommonState(t *testing.T) {
	at := func(indexes ...uint64) (states []fsm.State, keys []stateKey) {
		for _, i := range indexes {
			s := fsm.NewState()
			s.Index = i
			states, keys = append(states, s), append(keys, keyOf(s))
		}
		return states, keys
	}
	own, _ := at(512, 1024, 1100)
	_, same := at(512, 1024, 1100)
	_, behind := at(512, 1024, 1090)
	_, far := at(512)
	restored := same[2]
	restored.Incarnation++
	for _, c := range []struct {
		name    string
		held    map[model.ServerID][]stateKey
		index   uint64
		holders int
	}{
		{"nobody answers", nil, 1100, 0},
		{"all are there", map[model.ServerID][]stateKey{"b": same, "c": same}, 1100, 2},
		{"one is a little behind", map[model.ServerID][]stateKey{"b": same, "c": behind}, 1024, 2},
		{"one is far behind", map[model.ServerID][]stateKey{"b": same, "c": far}, 512, 2},
		{"one has another history", map[model.ServerID][]stateKey{"b": same, "c": {restored}}, 1100, 1},
		{"nothing in common", map[model.ServerID][]stateKey{"b": {restored}}, 1100, 0},
	} {
		got, holders := commonState(own, c.held)
		if got.Index != c.index || holders != c.holders {
			t.Errorf("%s: index %d with %d others, want %d with %d", c.name, got.Index, holders, c.index, c.holders)
		}
	}
}
