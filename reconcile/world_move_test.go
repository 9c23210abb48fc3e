package reconcile_test

import (
	"fmt"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/reconcile"
)

// movesText describes the moves that the rescheduler would make.
func (w *world) movesText(moves []fsm.Move) string {
	var out strings.Builder
	for _, m := range moves {
		fmt.Fprintf(&out, "%s from %s to %s (%s, gain %d)", m.Instance, m.From, m.To, m.Cause, m.Gain)
		if m.Blocker != nil {
			fmt.Fprintf(&out, " waits: %s: %s", m.Blocker.Code, m.Blocker.Message)
		}
		out.WriteString("\n")
	}
	return w.words(out.String())
}

// cmdRebalance carries out an operator's request to rebalance. It commits the moves that can begin at once, and prints
// all moves.
func (w *world) cmdRebalance([]string) string {
	moves, begin := reconcile.Moves(w.input())
	for _, group := range begin {
		if refusal := w.apply("cli:ann", group...); refusal != nil {
			w.t.Fatalf("%s: the log refused what was planned: %v", w.at, refusal)
		}
	}
	return w.movesText(moves)
}
