// Package sim drives fsm.State.Apply and reconcile.Decide through whole histories of a cluster, from a seed alone.
//
// There is one goroutine, one queue of events and one clock that jumps from event to event. So a seed gives the same
// history bit for bit, on every run and every machine. These parts are real: the commands, the codec, Apply on three
// replicas, snapshots, Decide and its explanations. These are models: the log (order, loss of uncommitted entries,
// terms), the network, the leader's evidence about nodes, and the agents with their programs. The models know the
// truth. When the judges check whether two instances of an exclusive slot ran at once, or whether a node was heard,
// they ask the models and not the state.
//
// A history is a schedule of actions (what people do, and faults) that is drawn from the seed before anything runs.
// Each action has a seed of its own (Action.Number), from which its choices are drawn when it happens. So a failing
// history can be replayed without some of its actions. Shrink removes actions until few remain.
//
// After every entry fsm.Check, fsm.CheckStep and the judges check the state by the rules S1 to S15. When all actions
// are done, the faults are removed, drains end or are canceled, and the liveness rules (L1 to L4) are judged. A failure
// names the broken rule.
package sim
