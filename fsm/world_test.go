package fsm

import (
	"fmt"
	"math/rand/v2"

	"github.com/outspan/outspan/model"
)

// world draws random commands for a state. Most commands name objects that exist, and some have one mistake.
type world struct {
	// Seeded with a number that rapid draws. If rapid drew all numbers, so many would be 0 that most commands would be
	// refused.
	r   *rand.Rand
	s   *State
	seq *int // number of the last new id; no id is used twice
	// for keys, tokens and members, so that the other commands are the same as before there were any
	apart *rand.Rand
}

func newWorld(seed uint64, s *State, seq *int) world {
	*seq++
	return world{rand.New(rand.NewPCG(seed, uint64(*seq))), s, seq, rand.New(rand.NewPCG(^seed, uint64(*seq)))}
}

// rarely returns true about once in n calls.
func (w world) rarely(n int) bool { return w.r.IntN(n) == 0 }

func (w world) bool() bool { return w.r.IntN(2) == 0 }

func (w world) int(low, high int) int { return low + w.r.IntN(high-low+1) }

func pick[T any](w world, set ...T) T { return set[w.r.IntN(len(set))] }

func (w world) fresh(prefix string) string {
	*w.seq++
	return fmt.Sprintf("%s%d", prefix, *w.seq)
}

func keysOf[K ~string, V any](t Table[K, V]) []K {
	var keys []K
	for k := range t.All() {
		keys = append(keys, k)
	}
	return keys
}

// key draws the key of a row, or rarely a key without a row.
func key[K ~string, V any](w world, t Table[K, V]) K {
	keys := keysOf(t)
	if len(keys) == 0 || w.rarely(20) {
		return "nowhere"
	}
	return pick(w, keys...)
}

func (w world) node() *Node {
	n, ok := w.s.Nodes.Get(key(w, w.s.Nodes))
	if !ok {
		return &Node{ID: "nowhere"}
	}
	return n
}

func (w world) instance() *Instance {
	i, ok := w.s.Instances.Get(key(w, w.s.Instances))
	if !ok {
		return &Instance{ID: "nowhere"}
	}
	return i
}

func (w world) cause() model.Cause {
	if w.rarely(20) {
		return "whim"
	}
	return pick(w, model.CauseScaleDown, model.CauseRollout, model.CauseNodeDraining, model.CauseNodeDraining,
		model.CauseNodeDisabled, model.CauseUser, model.CauseJobStopped, model.CauseCrashLoop, model.CauseNodeNotReady)
}

// beginning draws the first entry of a history, which makes a cluster with nodes and jobs. In an empty state, most
// commands would be refused.
func (w world) beginning() Entry {
	e := Entry{Format: model.CurrentFormat, At: 1000, Wall: 1_700_000_000_000, Actor: "cli:alice"}
	settings := model.DefaultSettings()
	settings.MoveMinAge, settings.MoveCooldown = model.Second, model.Second
	e.Groups = append(e.Groups, []Command{&ClusterInit{"c1", "test", settings}})
	e.Groups = append(e.Groups, resting()...)
	for range 3 {
		c := w.nodeRegister().(*NodeRegister)
		if c.ID == "n1" && !w.rarely(8) { // a new registration of n1 is rare, because the instances of resting run on n1
			c.ID, c.Name = "n2", "n2.local"
		}
		e.Groups = append(e.Groups, []Command{c}, []Command{&NodeReport{ID: c.ID, Full: true}}, []Command{w.submit()})
	}
	e.Groups = atEpochs(*w.s, e.Groups...)
	return e
}

// entry draws an entry. The entry's Term is 0 (valid in any term), the parameter term, or rarely term+1.
func (w world) entry(term uint64) Entry {
	e := Entry{Format: model.CurrentFormat, At: w.s.Now + model.Time(w.int(-50, 4000)),
		Wall: w.s.Wall + int64(w.int(-50, 4000)), Actor: "cli:alice"}
	if w.rarely(30) {
		e.At += model.Time(model.Hour)
	}
	if w.bool() {
		e.Term = term
	}
	if w.rarely(40) {
		e.Term = term + 1
	}
	if w.rarely(6) {
		e.Request, e.Body = model.RequestID(fmt.Sprintf("r%d", w.int(1, 8))), pick(w, "same", "same", "other")
	}
	for range w.int(1, 3) {
		group := []Command{w.command()}
		for w.rarely(3) && len(group) < 4 {
			group = append(group, w.command())
		}
		if w.rarely(8) {
			group = w.preemption()
		}
		if w.rarely(4) {
			group = w.aimed()
		}
		e.Groups = append(e.Groups, group)
	}
	if c := w.pushMember(); c != nil && w.rarely(6) {
		e.Groups = append(e.Groups, []Command{c})
	}
	if c := w.pushTransfer(); c != nil && w.rarely(3) {
		e.Groups = append(e.Groups, []Command{c})
	}
	if c := w.pushRestore(); c != nil && w.rarely(6) {
		e.Groups = append(e.Groups, []Command{c})
	}
	if c, at := w.pushLease(); c != nil && w.rarely(4) {
		e.At = max(e.At, at)
		e.Groups = append(e.Groups, []Command{c})
	}
	e.Groups = append(e.Groups, w.trusting()...)
	return e
}

// drawing draws one sort of command. The chance that the sort is chosen is proportional to weight.
type drawing struct {
	weight int
	draw   func() Command
}

func (w world) drawings() []drawing {
	return []drawing{
		{4, w.nodeRegister}, {3, w.nodeHealth}, {16, w.nodeReport}, {6, w.nodeIntent}, {1, w.nodeLabel}, {2, w.nodeAck},
		{1, func() Command { return &NodeConfirmDead{ID: w.offline(), Force: w.bool()} }},
		{1, w.nodeForget},
		{24, w.place}, {7, w.stop},
		{3, func() Command { return &InstanceKill{w.instance().ID, w.bool()} }},
		{2, func() Command {
			return &InstanceMark{ID: w.instance().ID, Requested: w.bool(), Cause: w.cause(), By: "alice", Automatic: w.rarely(8)}
		}},
		{2, func() Command { return &InstanceRestart{w.instance().ID} }},
		{3, w.move},
		{7, w.prepare}, {3, w.release},
		{2, w.drainStart}, {2, w.drainTurn}, {4, w.drainEnd},
		{1, func() Command { return &DrainPause{key(w, w.s.Drains), w.bool()} }},
		{1, func() Command { return &DrainCancel{key(w, w.s.Drains), w.bool()} }},
		{4, w.submit},
		{2, func() Command {
			return &JobRevert{Job: key(w, w.s.Jobs), Version: uint64(w.int(1, 4)), IfVersion: uint64(w.int(0, 1))}
		}},
		{3, func() Command {
			return &JobScale{Job: key(w, w.s.Jobs), Group: pick(w, "a", "b", "c"), Count: w.int(-1, 4)}
		}},
		{1, w.jobStop},
		{1, func() Command { return &JobRestart{Job: key(w, w.s.Jobs), Group: pick(w, "", "a", "b")} }},
		{3, w.step},
		{3, w.promote},
		{1, w.settings},
		{3, w.budgetSet},
		{1, func() Command { return &BudgetRemove{pick[model.BudgetName](w, "b1", "b2", "b3", "nowhere")} }},
		{2, w.classSet},
		{1, func() Command {
			return &ClassRemove{
				pick[model.ClassName](w, model.ClassSystem, "gold", "silver", model.ClassProduction, model.ClassBatch)}
		}},
		{1, func() Command { return &HoldSet{Active: w.bool(), Reason: "half of the nodes are silent"} }},
		{1, func() Command { return &ClusterInit{"c1", "test", model.DefaultSettings()} }},
		{1, func() Command { return &FormatRaise{pick[uint16](w, 0, 1)} }},
		{1, func() Command { return &RestoreMark{Confirm: w.bool()} }},
		{4, w.transferStart}, {9, w.transferStep},
		{3, func() Command { return &TransferCancel{key(w, w.s.Transfers)} }},
		{1, func() Command { return &BackupForget{key(w, w.s.Backups)} }},
	}
}

// leaderBegins adds a LeaderBegin to an entry, mostly with the given term.
func (w world) leaderBegins(e *Entry, term uint64) {
	c := &LeaderBegin{Term: term + uint64(w.int(0, 3))/3, Server: pick[model.ServerID](w, "01A", "01B"),
		Name: pick(w, "s1", "s2", "")}
	e.Groups, e.Actor = append(e.Groups, []Command{c}), model.ActorLeader
}

func (w world) command() Command {
	draws := w.drawings()
	total := 0
	for _, d := range draws {
		total += d.weight
	}
	at := w.int(0, total-1)
	for _, d := range draws {
		if at -= d.weight; at < 0 {
			return d.draw()
		}
	}
	panic("unreachable")
}

// aimed chooses a sort of command, each with the same chance. It draws up to 13 commands of this sort until the state
// accepts one, so that commands that are rarely valid are accepted too.
func (w world) aimed() []Command {
	draws := w.drawings()
	draw := draws[w.int(0, len(draws)-1)].draw
	group := []Command{draw()}
	for range 12 {
		if w.s.NewDraft(w.s.Now).Try(group...) == nil {
			break
		}
		group = []Command{draw()}
	}
	return group
}

// wanting draws a group, mostly one whose count is above 0.
func (w world) wanting() model.GroupID {
	var ids []model.GroupID
	for id, g := range w.s.Groups.All() {
		if g.Count > 0 {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 || w.rarely(12) {
		return key(w, w.s.Groups)
	}
	return pick(w, ids...)
}

func (w world) place() Command {
	id := w.wanting()
	g, ok := w.s.Groups.Get(id)
	if !ok {
		g = &Group{ID: id}
	}
	c := &InstancePlace{ID: model.InstanceID(w.fresh("i")), Group: id, Slot: w.int(0, max(g.Count-1, 1)),
		Version: g.Version, Node: w.eligible(), Cause: model.CauseScaleUp}
	if spec, ok := w.s.Spec(id, g.Version); ok {
		for _, p := range spec.Ports {
			number := p.Static
			if number == 0 {
				number = w.int(8000, 8007)
			}
			c.Ports = append(c.Ports, model.Port{Name: p.Name, Number: number})
		}
		c.Ports.Sorted()
	}
	var there []model.InstanceID
	for i := range w.s.InstancesInSlot(id, c.Slot) {
		there = append(there, i.ID)
	}
	if len(there) > 0 && !w.rarely(6) {
		c.Replaces = pick(w, there...)
	}
	switch w.int(1, 40) { // 7 of 40 commands get one mistake
	case 1, 2:
		c.ID = w.instance().ID
	case 3, 4:
		c.Version = uint64(w.int(0, 3))
	case 5:
		c.Cause = "whim"
	case 6:
		c.Replaces = w.instance().ID
	case 7:
		c.ID = "a/b"
	}
	return c
}

func (w world) stop() Command {
	i := w.instance()
	c := &InstanceStop{ID: i.ID, Cause: w.cause(), By: "alice", Bypass: w.rarely(4)}
	if c.Cause == model.CauseNodeDraining {
		if n, ok := w.s.Nodes.Get(i.Node); ok {
			c.By = string(n.Drain)
		}
	}
	if w.rarely(5) {
		grace := model.Duration(w.int(0, 2000))
		c.Grace = &grace
	}
	return c
}

func (w world) drainStart() Command {
	c := &DrainStart{ID: model.DrainID(w.fresh("d")), Message: "new kernel",
		Options: model.DrainOptions{Deadline: pick(w, model.Second, model.Hour, model.Forever, model.Duration(1<<62))}}
	for range w.int(1, 3) {
		n := w.node()
		c.Nodes = append(c.Nodes, pick(w, string(n.ID), n.Name))
	}
	c.Options.MaxParallelNodes = w.int(0, 2)
	c.Options.Force, c.Options.IgnoreSystem = w.rarely(4), w.rarely(3)
	if w.bool() {
		c.Options.Policy = pick(w, model.DrainPolicies()...)
	}
	switch w.int(1, 15) {
	case 1:
		c.ID = key(w, w.s.Drains)
	case 2:
		c.Options.Deadline = pick[model.Duration](w, 0, -1)
	case 3:
		c.Nodes = nil
	}
	return c
}

func (w world) drainPart() (model.DrainID, model.NodeID) {
	id := key(w, w.s.Drains)
	d, ok := w.s.Drains.Get(id)
	if !ok || w.rarely(15) {
		return id, w.node().ID
	}
	return id, pick(w, d.Nodes...).Node
}

func (w world) drainTurn() Command {
	id, node := w.drainPart()
	return &DrainTurn{id, node}
}

func (w world) drainEnd() Command {
	id, node := w.drainPart()
	return &DrainEnd{id, node, pick(w, model.PhaseDrained, model.PhaseDrained, model.PhaseFailed, model.PhaseCanceled,
		model.PhaseDraining), pick(w, "", "instance i1 holds the local volume data")}
}

func (w world) jobStop() Command {
	if w.bool() {
		return w.submit()
	}
	return &JobStop{Job: key(w, w.s.Jobs), Purge: w.bool()}
}

func (w world) step() Command {
	if w.bool() {
		return &DeploymentWait{key(w, w.s.Deployments), w.bool()}
	}
	return &DeploymentStep{key(w, w.s.Deployments),
		pick(w, model.DeploymentRolling, model.DeploymentSucceeded, model.DeploymentFailed, model.DeploymentSuperseded),
		pick(w, "", "too slow")}
}

func (w world) settings() Command {
	c := &SettingsSet{Settings: w.s.Settings}
	c.Settings.Paused, c.Settings.EventLimit = w.bool(), pick(w, 1000, 2000, 10)
	c.Settings.RateOperator = pick(w, model.ActorRate{}, model.ActorRate{Max: 2, Window: model.Minute},
		model.ActorRate{Max: -1, Window: 0})
	c.Settings.RateDrain = pick(w, model.ActorRate{}, model.ActorRate{Max: 1, Window: 10 * model.Second})
	c.Settings.NodeDrainPolicy, c.Settings.EvictOn = pick(w, model.DrainPolicies()...),
		pick(w, model.EvictOnDrain, model.EvictOnDrain, model.EvictOnCordon, "whim")
	c.Settings.InstanceOverhead = pick[int64](w, 0, 64<<20, -1, 1<<60)
	if w.rarely(5) {
		c.IfIndex = w.s.SettingsIndex + uint64(w.int(0, 1))
	}
	return c
}

func (w world) budgetSet() Command {
	c := &BudgetSet{Name: pick[model.BudgetName](w, "b1", "b2", "b3", "")}
	switch w.int(1, 4) {
	case 1:
		c.Spec.MinReady = &model.Amount{N: w.int(0, 4)}
	case 2:
		c.Spec.MinReady = &model.Amount{N: w.int(0, 101), Percent: true}
	case 3:
		c.Spec.MaxDown = &model.Amount{N: w.int(-1, 60), Percent: w.bool()}
	}
	if w.bool() {
		c.Spec.Rate = &model.RateSpec{Max: w.int(0, 2), Window: pick(w, model.Minute, 10*model.Second)}
	}
	c.Spec.Blocking = w.bool()
	return c
}

func (w world) classSet() Command {
	c := &ClassSet{Name: pick[model.ClassName](w, "gold", "silver", model.ClassCritical, model.ClassProduction,
		model.ClassBatch, "bad name")}
	switch w.int(1, 4) {
	case 1:
		c.Below = pick[model.ClassName](w, model.ClassCritical, model.ClassBatch, "gold", "royal")
	case 2:
		c.Above = pick[model.ClassName](w, model.ClassProduction, "silver", model.ClassSystem)
	}
	if w.bool() {
		c.MaxDown = &model.MaxDown{Amount: model.Amount{N: w.int(-1, 100), Percent: w.bool()}, Floor: w.int(0, 1)}
	}
	if w.bool() {
		c.Quota = &model.Quota{MemoryBytes: pick[int64](w, 0, 0, 0, 600<<20, 2<<30), Instances: pick(w, 0, 0, 0, 3, 6)}
	}
	c.PreemptEqual = pick[model.PreemptEqual](w, "", model.PreemptOff, model.PreemptFair, "always")
	return c
}
