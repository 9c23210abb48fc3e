package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Input is everything that a decision depends on.
type Input struct {
	State fsm.State
	Live  map[model.NodeID]fsm.Liveness // the leader's evidence about nodes; only looked up by key
	Now   model.Time                    // cluster time
	Term  uint64                        // of the leader; its entries carry it

	// Cache may be passed from one decision to the next within one goroutine. If it is nil, everything is computed again.
	Cache *Cache

	Rebalance bool // an operator asks for moves of the rescheduler now, even if it is off
	StayPut   bool // the rescheduler begins nothing in this decision
}

// pass is the working memory of one Decide. It belongs to one goroutine and is gone when Decide returns.
type pass struct {
	in       Input
	plan     planner
	kills    []model.InstanceID        // draining instances
	marked   []model.InstanceID        // instances whose eviction is requested
	groups   []*groupView              // those that may need something, in the order in which they are served
	nodes    *nodeTable                // what placement knows of nodes; made at first use
	wanted   map[model.InstanceID]bool // instances whose stop was wanted in this pass
	reasons  reasons                   // why things wait, for explanations
	moves    []fsm.Move                // what the rescheduler would do
	preempts preempting
	seen     *Cache
	places   *nodeIndex     // of the nodes; looked up at first use
	troubled []model.NodeID // nodes that their own agents report as degraded, in order
	duty     []bool         // by node position; see inService

	gone map[model.InstanceID]bool // instances that a plan takes to have left their nodes
}

// passes lists everything that is decided, in order. A later pass sees what the earlier ones did.
var passes = [...]func(*pass){
	(*pass).watchNodes,      // which nodes are reachable, and is it safe to write that
	(*pass).adopt,           // instances that a restore lost from the state
	(*pass).takeTurns,       // which nodes of which drains may begin
	(*pass).findGroups,      // which groups may need something
	(*pass).killOverdue,     // instances whose grace is over (P15)
	(*pass).markEvictions,   // instances that have to leave their node
	(*pass).stepTransfers,   // volumes that are being moved
	(*pass).viewGroups,      // slots, holders, successors
	(*pass).stopSurplus,     // instances that are not wanted any more
	(*pass).place,           // missing instances, by class
	(*pass).rebalance,       // instances that would be better elsewhere
	(*pass).stopEvicted,     // evicted instances that can leave now
	(*pass).stopInPlace,     // members that stop and keep their copies
	(*pass).stopRolled,      // instances that a new version has replaced
	(*pass).releaseUnwanted, // prepared stops that are not wanted any more
	(*pass).endDrains,       // drains that are over (P11, B9, B10)
	(*pass).stepDeployments, // rollouts that are over
}

// Decide returns what to do next. It is pure: it uses no clock, no randomness and no map order. It keeps reusable
// results in Input.Cache for the next decision, but the plan is the same without them. It does not block.
func Decide(in Input) Plan {
	p := decide(in)
	return p.plan.finish(p.in)
}

func newPass(in Input) *pass {
	in.Now = max(in.Now, in.State.Now)
	p := &pass{in: in, plan: newPlanner(in), reasons: newReasons(), wanted: map[model.InstanceID]bool{}, seen: in.Cache}
	if p.seen == nil {
		p.seen = &Cache{}
	}
	return p
}

func decide(in Input) *pass {
	p := newPass(in)
	for _, step := range passes {
		step(p)
	}
	p.seen.note(p.plan.draft.Written()) // cached instance lists may hold tried rows, and a plan may never be applied
	p.seen.end(p.groups, p.state())
	return p
}

// state returns the draft as it is now. Rows and iterators taken from it show the state before the next accepted
// command, so never iterate over it while trying commands.
func (p *pass) state() *fsm.State { return p.plan.draft.State() }

// instance returns the present row of an instance; nil if there is none.
func (p *pass) instance(id model.InstanceID) *fsm.Instance {
	inst, _ := p.state().Instances.Get(id)
	return inst
}

// node returns the present row of a node; nil if it was forgotten.
func (p *pass) node(id model.NodeID) *fsm.Node {
	n, _ := p.state().Nodes.Get(id)
	return n
}

// reached reports whether t has come. If not, it asks for the next decision at t.
func (p *pass) reached(t model.Time) bool {
	if t <= p.in.Now {
		return true
	}
	p.plan.wakeAt(t)
	return false
}
