// Package sim drives fsm.Apply and reconcile.Decide through whole histories of a cluster, from a seed alone.
//
// There is one goroutine, one queue of events and one clock that jumps from event to event. So a seed gives the same
// history bit for bit, every time and everywhere. Real are the commands, the codec, Apply on three replicas, snapshots,
// Decide and its explanations. Models are the log (order, loss of uncommitted entries, terms), the network, the
// evidence that a leader has about nodes, and the agents with their programs. The models know the truth. The judges ask
// them, not the state, whether two instances of an exclusive slot ran at once or whether a node was heard.
//
// A history is a schedule of actions (what people do, and faults) that the seed draws before anything runs. Each action
// has its own number, from which it draws its choices when it happens. So a failing history can be replayed with
// actions left out; Shrink does that until little is left.
//
// After every entry fsm.Check, fsm.CheckStep and the judges of the rules S1 to S15 check the state. Then the faults
// end, drains end or are canceled, and the liveness rules (L2 to L4) are judged. A failure names the rule that was
// broken.
package sim
