package reconcile

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	overMean    = 15 * point // a node is overused if its memory use is more than this above the mean
	point       = full / 100 // one percent of use
	targetsSeen = 8          // number of best nodes that are considered as targets for a group
	groupsSeen  = 32         // upper bound of groups examined for one move off a node, and for all moves for preferences
	movesShown  = 100        // an operator sees up to this many moves, even if no more may begin
)

// balancer is the rescheduler's part of one decision. It moves ready instances of groups at rest to better nodes. It
// has two objectives: to relieve overused nodes, and to meet more of the groups' preferences.
//
// Its moves come to an end. A move for preferences raises the sum of the preferences met. A move off an overused node
// does not lower that sum, and it lowers the sum of the squared uses. So no state repeats, whatever the order of moves.
type balancer struct {
	p      *pass
	rules  model.Rescheduling
	loads  []*load                // possible targets, in order of id
	all    []load                 // every node, in the order of nodeTable.views
	mean   int64                  // mean use of the nodes in loads
	busy   map[model.GroupID]bool // groups with other changes going on, or whose instances can't be moved
	views  map[model.GroupID]*groupView
	values map[string]map[string]bool // for each spread attribute: its values on the nodes in loads

	began int // number of moves begun in this decision
	going int // number of moves from earlier decisions that still need a stop
}

// load is the use of a node after all leaving instances have left.
type load struct {
	view        *nodeView
	memory, cpu int64
	eligible    bool
}

// move is a possible move of one instance that gains enough.
type move struct {
	inst *fsm.Instance
	to   *load
	out  fsm.Move
	wait *model.Error // why the move has to wait; nil if it may begin
	at   model.Time   // when the wait ends, if that is known
}

// rebalance plans the moves of the rescheduler. It is the last pass that places instances. It does nothing during a
// hold or if there are fewer than two possible targets. Without an operator's order, it also does nothing if the
// rescheduler is off, if Input.StayPut is set, or if this decision has planned other commands, because another decision
// follows those. With the algorithm binpack, it moves instances only for preferences.
func (p *pass) rebalance() {
	rules := p.in.State.Settings.Rescheduling()
	if p.state().Hold.Active || !p.in.Rebalance && (!rules.On || p.in.StayPut || len(p.plan.accepted) > 0) {
		return
	}
	b := &balancer{p: p, rules: rules, busy: map[model.GroupID]bool{}, views: map[model.GroupID]*groupView{},
		values: map[string]map[string]bool{}}
	for _, g := range p.groups {
		b.busy[g.id] = true
	}
	for _, id := range p.marked {
		if inst := p.instance(id); inst.Desired == model.DesiredRunning && inst.Eviction.Cause.IsMove() {
			b.going++
		}
	}
	if b.weigh(); len(b.loads) < 2 {
		return
	}
	tallies := b.tallies()
	if p.in.State.Settings.Algorithm != "binpack" && !b.unloadOverused() {
		return
	}
	b.improvePreferences(tallies)
}

// limit returns nil if one more move may begin now. Otherwise it returns why not, and when one may. For moves that an
// operator asked for, the limit is their number. Other moves are limited by the window and by the number of moves in a
// cycle. All moves are limited by the rate of stops that no operator ordered. Moves in progress use up part of that
// rate, because each still needs a stop.
func (b *balancer) limit() (*model.Error, model.Time) {
	p, s := b.p, b.p.state()
	if p.in.Rebalance {
		if b.began >= b.rules.Moves {
			return model.Refuse(model.CodeActorRate, "an order begins at most %d moves", b.rules.Moves).
				WithHint("ask again when they have ended"), model.Never
		}
	} else {
		if open, next := p.windowOpen(b.rules.Window); !open {
			return model.Refuse(model.CodeActorRate, "the window of the rescheduler is closed: %s", b.rules.Window), next
		}
		if room, next := s.MoveRoom(); room == 0 {
			return model.Refuse(model.CodeActorRate, "at most %d moves begin in %s", b.rules.Moves, b.rules.Cycle), next
		}
	}
	if room, next := s.RailRoom(); room-b.going-b.began <= 0 {
		return model.Refuse(model.CodeActorRate, "at most %d instances are stopped in a minute without an order",
			s.RailLimit()), next
	}
	return nil, 0
}

// movable reports whether a group's policy allows its instances to move. During a move, an instance and its successor
// run at the same time, on different nodes.
func movable(spec *model.GroupSpec) bool {
	return len(spec.Volumes) == 0 && !spec.OneHolder() && spec.Eviction.Mode != model.ModeNever &&
		spec.Eviction.Order == model.OrderSurge
}

// use returns how full a node's memory would be with this many more bytes, in hundredths of a percent.
func (l *load) use(more int64) int64 {
	return (l.memory + more) / max(l.view.node.Allocatable().MemoryBytes/full, 1)
}

// unloadOverused moves instances off overused nodes, the fullest node first. It continues with the next node when a
// node is no longer overused, or when no further move off the node may begin. It returns false if no more moves may
// begin anywhere.
func (b *balancer) unloadOverused() bool {
	var over []*load
	for _, l := range b.loads {
		if l.use(0) > b.mean+overMean {
			over = append(over, l)
		}
	}
	slices.SortStableFunc(over, func(x, y *load) int { return cmp.Compare(y.use(0), x.use(0)) })
	for _, from := range over {
		for from.use(0) > b.mean+overMean {
			m := b.bestOff(from)
			if m == nil {
				break
			}
			if !b.begin(m) {
				return false
			}
			if m.wait != nil {
				break
			}
		}
	}
	return true
}

// bestOff returns the move that relieves a node best; nil if there is none. It prefers instances of the least important
// class, and the largest of them. A move that must wait is returned only if there is no other.
func (b *balancer) bestOff(from *load) *move {
	p := b.p
	var all []*fsm.Instance
	for inst := range p.state().InstancesOn(from.view.node.ID) {
		if inst.Ready() && !inst.Eviction.Requested && b.view(inst.Group) != nil {
			all = append(all, inst)
		}
	}
	slices.SortStableFunc(all, func(x, y *fsm.Instance) int {
		return cmp.Or(
			cmp.Compare(b.view(y.Group).class, b.view(x.Group).class),
			cmp.Compare(y.Claims.Resources.MemoryBytes, x.Claims.Resources.MemoryBytes),
			cmp.Compare(hash(string(x.ID), string(x.Node)), hash(string(y.ID), string(y.Node))),
		)
	})
	var later *move
	seen := map[model.GroupID]bool{}
	for _, inst := range all {
		if seen[inst.Group] = true; len(seen) > groupsSeen {
			break
		}
		m := b.off(inst, from)
		switch {
		case m == nil:
		case m.wait == nil:
			return m
		case later == nil:
			later = m
		}
	}
	return later
}

// off returns the best move of one instance off an overused node; nil if there is none. The move must gain enough and
// give the instance a less loaded node. It must neither make the target overused nor meet the group's preferences less
// well.
func (b *balancer) off(inst *fsm.Instance, from *load) *move {
	g := b.view(inst.Group)
	f := b.p.fieldOf(g, inst.Version)
	if f == nil || inst.Version != g.row.Version {
		return nil
	}
	counts := b.count(g)
	size := inst.Claims.Resources.MemoryBytes
	var best *move
	b.eachTarget(f, func(to *load) bool {
		after := to.use(size)
		gain := from.use(0) - after
		room := from.view.node.Allocatable().MemoryBytes
		there := to.view.node.Allocatable().MemoryBytes
		// The sum of squared uses, each weighted by the size of its node, falls if 2 gain > size/room - size/there.
		falls := 2*gain > size/max(room/full, 1)-size/max(there/full, 1)
		if after > b.mean+overMean || gain < int64(b.rules.Gain)*point || !falls || b.preference(f, counts, from, to) < 0 ||
			b.loadGain(f, inst, from, to) <= 0 ||
			to == from || f.repeats(to.view.node, from.view.node) {
			return true
		}
		best = b.checkMove(&move{inst: inst, to: to, out: b.show(inst, to, model.CauseRebalance, gain/point)})
		return false
	})
	return best
}

// show returns a move in the form that is shown to people, without a blocker.
func (b *balancer) show(inst *fsm.Instance, to *load, cause model.Cause, gain int64) fsm.Move {
	return fsm.Move{Instance: inst.ID, Group: inst.Group, From: inst.Node, To: to.view.node.ID,
		Cause: cause, Gain: int(gain)}
}

// view returns the view of a group at rest; nil if other changes go on in the group, or if its instances can't be
// moved.
func (b *balancer) view(id model.GroupID) *groupView {
	if b.busy[id] {
		return nil
	}
	if g, ok := b.views[id]; ok {
		return g
	}
	s := b.p.state()
	row, ok := s.Groups.Get(id)
	name, _ := id.Split()
	job, known := s.Jobs.Get(name)
	spec, has := s.Policy(id)
	if !ok || !known || !has || row.Role == model.RoleSystem || !movable(spec) {
		b.busy[id] = true
		return nil
	}
	g := &groupView{id: id, row: row, spec: spec, job: job, class: s.ClassRank(job.Class)}
	g.deploy, _ = s.Deployments.Get(job.Deployment)
	b.p.viewSlots(g)
	b.views[id] = g
	b.p.wakeForgotten(g)
	return g
}

// eachTarget visits the nodes that placement would choose for one more instance of the group, the best first, until
// visit returns false. It takes at most targetsSeen nodes, and skips those that the group must avoid or that lack its
// image.
func (b *balancer) eachTarget(f *field, visit func(*load) bool) {
	var back []*nodeView
	for len(back) < targetsSeen {
		v := f.take()
		if v == nil {
			break
		}
		back = append(back, v)
		_, avoided := v.node.Avoids(f.group.id, f.version, b.p.in.Now)
		if !avoided && !v.node.LacksImage(f.spec) && !visit(&b.all[v.at]) {
			break
		}
	}
	for _, v := range back {
		f.putBack(v)
	}
}

// checkMove records in a move what the move has to wait for, and returns the move.
func (b *balancer) checkMove(m *move) *move {
	s := b.p.state()
	if refusal := s.MayMove(m.inst, m.out.Cause); refusal != nil {
		m.wait = refusal
		if _, next := s.CheckBudget(m.inst, m.out.Cause); next > b.p.in.Now {
			m.at = next
		}
		// Moves may use only part of a rate. That part grows when an earlier stop leaves the rate's window.
		if refusal.Code == model.CodeBudgetRate {
			b.p.wakeForRate(m.inst.Group)
		}
	} else if refusal, at := s.MoveWaits(m.inst, true); refusal != nil {
		m.wait, m.at = refusal, at
	}
	if m.at > b.p.in.Now && m.at != model.Never { // the caller may show another move, whose wait has no known end
		b.p.plan.wakeAt(m.at)
	}
	return m
}

// begin plans a move, or records what the move waits for. It returns false if a limit allows no other move now. But
// during an operator's order, it returns true until movesShown moves are listed, so that the operator sees more of
// them.
func (b *balancer) begin(m *move) bool {
	p := b.p
	b.busy[m.inst.Group] = true
	delete(b.views, m.inst.Group)
	limited := false
	if m.wait == nil {
		m.wait, m.at = b.limit()
		limited = m.wait != nil
	}
	if m.wait == nil {
		m.wait = b.try(m)
	}
	if m.wait != nil {
		m.out.Blocker = &model.Blocker{Code: m.wait.Code, Instance: m.inst.ID, Message: m.wait.Message, Unblock: m.wait.Hint}
		if m.at > p.in.Now && m.at != model.Never {
			p.plan.wakeAt(m.at)
		}
	}
	p.moves = append(p.moves, m.out)
	return !limited || p.in.Rebalance && len(p.moves) < movesShown
}

// try plans a move and returns the refusal of the draft. The eviction of the instance and the placement of its
// successor succeed or fail together.
func (b *balancer) try(m *move) *model.Error {
	p, inst := b.p, m.inst
	g := &groupView{id: inst.Group}
	g.row, _ = p.state().Groups.Get(inst.Group)
	source, target := p.node(inst.Node), p.node(m.out.To)
	spec, ok := p.state().Spec(inst.Group, inst.Version)
	if !ok {
		return model.Refuse(model.CodeNotFound, "version %d of %s is gone", inst.Version, inst.Group)
	}
	n := &need{group: g, slot: inst.Slot, version: inst.Version, replaces: inst, cause: m.out.Cause,
		first: []fsm.Command{&fsm.InstanceMove{
			ID: inst.ID, Cause: m.out.Cause, SourceVersion: source.Version, Target: target.ID, TargetVersion: target.Version,
			GroupVersion: g.row.Version, Gain: m.out.Gain, Asked: p.in.Rebalance,
		}}}
	if refusal := p.tryPlace(n, &field{pass: p, spec: spec}, m.to.view); refusal != nil {
		return refusal
	}
	b.began++
	b.leave(inst)
	m.to.memory += inst.Claims.Resources.MemoryBytes
	m.to.cpu += inst.Claims.Resources.CPU
	return nil
}
