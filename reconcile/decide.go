package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Input is everything that a decision depends on.
type Input struct {
	State fsm.State
	Live  map[model.NodeID]fsm.Liveness // the leader's evidence about nodes; read by key only, never iterated
	Now   model.Time                    // cluster time
	Term  uint64                        // the leader's term, which every planned entry carries

	// Cache may be shared by consecutive decisions of one goroutine. If it is nil, nothing is reused.
	Cache *Cache

	Rebalance bool // an operator asked the rescheduler to move instances now, even if it is turned off
	StayPut   bool // the rescheduler begins no move in this decision
}

// pass is the working memory of one decision. It belongs to one goroutine.
type pass struct {
	in             Input
	plan           planner
	kills          []model.InstanceID        // draining instances, which are killed when their grace is over
	marked         []model.InstanceID        // instances whose eviction was requested before this decision
	groups         []*groupView              // groups that may need something, in the order in which they are served
	nodes          *nodeTable                // nodes as placement sees them; made at first use
	wanted         map[model.InstanceID]bool // instances that this pass tried to stop, if the stop needs preparation
	reasons        reasons                   // why instances and slots wait; shown in explanations
	moves          []fsm.Move                // moves that the rescheduler makes, or that a blocker prevents
	preempts       preempting
	seen           *Cache
	places         *nodeIndex     // positions of the nodes; looked up at first use
	troubled       []model.NodeID // nodes whose agents report troubles, in order of id
	nodesInService []bool         // by position of the node: whether it is neither cordoned, draining nor disabled

	gone map[model.InstanceID]bool // instances that the preview of a job assumes to have left their nodes
}

// passes lists the steps of a decision, in order. A later step sees what the earlier steps did.
var passes = [...]func(*pass){
	(*pass).watchNodes,      // changes of nodes' health, and HOLD
	(*pass).adopt,           // instances that a restore lost from the state
	(*pass).takeTurns,       // nodes whose turn in a drain begins
	(*pass).findGroups,      // groups that may need something
	(*pass).killOverdue,     // instances whose grace is over (P15)
	(*pass).markEvictions,   // instances that have to leave their node
	(*pass).stepTransfers,   // volumes that are being moved
	(*pass).viewGroups,      // fills in the views of the groups found above
	(*pass).reviewPulls,     // images that nothing needs any more, or that can't be pulled
	(*pass).stopSurplus,     // instances that are not wanted any more
	(*pass).place,           // missing instances, by class
	(*pass).rebalance,       // instances that would be better elsewhere
	(*pass).stopEvicted,     // evicted instances that can leave now
	(*pass).stopInPlace,     // members that stop and keep their copies
	(*pass).stopRolled,      // instances that a new version has replaced
	(*pass).releaseUnwanted, // prepared stops that are no longer wanted
	(*pass).endDrains,       // drains that are over (P11, B9, B10)
	(*pass).stepDeployments, // rollouts that start or end
}

// Decide returns what to do next. It is a pure function of its input: it uses no clock, no randomness and no map order.
// It keeps results in Input.Cache for the next decision, but they never change a plan. It does not block.
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
	p.seen.note(p.plan.draft.Written()) // cached lists may contain rows of this draft, whose plan may never be applied
	p.seen.end(p.groups, p.state())
	return p
}

// state returns the present state of the draft. Rows and iterators taken from it don't see later commands, so don't
// iterate over the state while trying commands.
func (p *pass) state() *fsm.State { return p.plan.draft.State() }

// instance returns the present row of an instance, or nil.
func (p *pass) instance(id model.InstanceID) *fsm.Instance {
	inst, _ := p.state().Instances.Get(id)
	return inst
}

// node returns the present row of a node, or nil if the node was forgotten.
func (p *pass) node(id model.NodeID) *fsm.Node {
	n, _ := p.state().Nodes.Get(id)
	return n
}

// reached reports whether t is now or earlier. Otherwise it asks for a decision at t.
func (p *pass) reached(t model.Time) bool {
	if t <= p.in.Now {
		return true
	}
	p.plan.wakeAt(t)
	return false
}
