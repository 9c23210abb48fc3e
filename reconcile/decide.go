package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Input is all that a decision rests on.
type Input struct {
	State fsm.State
	Live  map[model.NodeID]fsm.Liveness // the leader's evidence about nodes; only looked up by key
	Now   model.Time                    // cluster time
	Term  uint64                        // of the leader; its entries carry it

	// Seen may be given from one decision to the next of the same goroutine; nil: all is worked out again.
	Seen *Seen

	Rebalance bool // an operator asks for moves of the rescheduler now, whether it is on or not
	StayPut   bool // the rescheduler waits for a later decision
}

// pass is the working memory of one Decide. It belongs to one goroutine and is gone when Decide returns.
type pass struct {
	in       Input
	plan     planner
	kills    []model.InstanceID        // draining instances
	marked   []model.InstanceID        // those whose eviction is wished for
	groups   []*groupView              // those that may need something, in the order in which they are served
	nodes    *nodeTable                // what placement knows of nodes; made at first use
	wanted   map[model.InstanceID]bool // whose stop was wanted in this pass
	reasons  reasons                   // why things wait, for whoever asks
	moves    []fsm.Move                // what the rescheduler would do
	preempts preempting
	seen     *Seen
	places   *places        // of the nodes; found at first use
	troubled []model.NodeID // those that are degraded by their own agents' word, in order
	duty     []bool         // by place of the node; see onDuty

	gone map[model.InstanceID]bool // instances that a plan takes to have left their nodes
}

// passes is everything that is decided, in order. A later pass sees what an earlier one did.
var passes = [...]func(*pass){
	(*pass).watchNodes,      // who is reachable, and is it safe to say so
	(*pass).adopt,           // what a restore has lost from the state
	(*pass).takeTurns,       // which nodes of which drains go on
	(*pass).survey,          // what may need something
	(*pass).killOverdue,     // whose grace is over (P15)
	(*pass).markEvictions,   // what has to leave its node
	(*pass).stepTransfers,   // volumes on the move
	(*pass).viewGroups,      // slots, holders, successors
	(*pass).stopSurplus,     // what nobody wants any more
	(*pass).place,           // what is missing, by class
	(*pass).rebalance,       // what would be better elsewhere
	(*pass).stopEvicted,     // what can leave now
	(*pass).stopInPlace,     // which members stop and keep their copies
	(*pass).stopRolled,      // what a new version replaced
	(*pass).releaseUnwanted, // which stops are not wanted any more
	(*pass).endDrains,       // which drains are over (P11, B9, B10)
	(*pass).stepDeployments, // which rollouts are over
}

// Decide returns what to do next. It is pure: no clock, no chance, no map order. Input.Seen keeps what saves work for
// the next decision; the plan is the same without it.
func Decide(in Input) Plan {
	p := decide(in)
	return p.plan.finish(p.in)
}

func newPass(in Input) *pass {
	in.Now = max(in.Now, in.State.Now)
	p := &pass{in: in, plan: newPlanner(in), reasons: newReasons(), wanted: map[model.InstanceID]bool{}, seen: in.Seen}
	if p.seen == nil {
		p.seen = &Seen{}
	}
	return p
}

func decide(in Input) *pass {
	p := newPass(in)
	for _, step := range passes {
		step(p)
	}
	p.seen.note(p.plan.draft.Written()) // rosters may have been read before and after, and what was tried need not be done
	p.seen.end(p.groups, p.state())
	return p
}

// state is the draft as it is now. Rows and iterators taken from it are from before the next accepted command: never
// iterate over it while commands are tried.
func (p *pass) state() *fsm.State { return p.plan.draft.State() }

// instance returns the present row of an instance.
func (p *pass) instance(id model.InstanceID) *fsm.Instance {
	inst, _ := p.state().Instances.Get(id)
	return inst
}

// node returns the present row of a node; nil if it was forgotten.
func (p *pass) node(id model.NodeID) *fsm.Node {
	n, _ := p.state().Nodes.Get(id)
	return n
}

// past reports whether t has come, and otherwise asks to be woken then.
func (p *pass) past(t model.Time) bool {
	if t <= p.in.Now {
		return true
	}
	p.plan.wakeAt(t)
	return false
}
