// Package sim drives fsm.Apply and reconcile.Decide through whole histories of a cluster, from a seed alone.
//
// One goroutine, one queue of events and one clock that jumps from event to event: a seed gives the same history bit
// for bit, every time and everywhere. What is real: the commands, the codec, Apply on three replicas, snapshots, Decide
// and its explanations. What is a model: the log (order, loss of what is not committed, terms), the network, the
// evidence that a leader has of nodes, and the agents with their programs. A model knows the truth, so the judges ask
// it, and not the state, whether two instances of an exclusive slot ran at once or a node was heard.
//
// A history is a schedule of actions (what people do, and faults) that the seed draws before anything runs. Each action
// carries its own number, from which it makes its choices when its time comes, so a failing history can be replayed
// with actions left out: Shrink does that until little is left.
//
// After every entry fsm.Check, fsm.CheckStep and the judges of the rules S1 to S15 look at the state; then the faults
// end, drains end or are canceled, and the liveness rules (L2 to L4) are judged. A failure names the
// rule that was broken.
package sim
