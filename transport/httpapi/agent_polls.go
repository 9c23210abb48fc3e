package httpapi

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

func parsePoll(wait model.Duration) time.Duration {
	return min(time.Duration(max(0, min(wait, model.Minute)))*time.Millisecond, maxWait)
}

// fencingBits is the number of bits of the log index in a fencing epoch. The bits above them hold the incarnation,
// because the same index can come again after a restore.
const fencingBits = 44

// staleForAgents is how long a server may be without the leader before it sends agents elsewhere; an election takes
// less. Otherwise a server that is cut off from the other servers would keep its agents from all later decisions.
const staleForAgents = 10 * time.Second

// staleLook is how often a server with a pending poll checks whether it may still answer.
const staleLook = 2 * time.Second

// caughtUp fails on a server that must not answer agents, because its answers may be outdated: it lags, has lost the
// others, or has no room for new entries. Code: not_caught_up.
func (s *Server) caughtUp() error {
	stale := s.cfg.Freshness.StaleFor()
	switch {
	case !s.cfg.Freshness.CaughtUp():
		return model.Refuse(model.CodeNotCaughtUp, "this server is still catching up").WithHint("ask another server")
	case !s.cfg.Freshness.TakesEntries():
		return model.Refuse(model.CodeNotCaughtUp, "this server's disk is full: it hears of nothing new").
			WithHint("ask another server")
	case stale > staleForAgents:
		return model.Refuse(model.CodeNotCaughtUp, "this server has heard no leader for %s", stale.Round(time.Second)).
			WithHint("ask another server")
	}
	return nil
}

// replaced fails for an agent that follows a lineage which this server's lineage does not replace. The servers that
// were recovered have the newer state. Code: not_caught_up.
func (s *Server) replaced(follows string) error {
	ours := s.cfg.Store.Current().Cluster.History()
	theirs, refusal := model.ParseHistory(follows)
	switch {
	case refusal != nil:
		return refusal
	case follows == "" || ours.Same(theirs) || ours.Replaces(theirs):
		return nil
	}
	return model.Refuse(model.CodeNotCaughtUp, "the agent follows the lineage %s of cluster %s, not this server's",
		clip(theirs.Lineage()), clip(theirs.Cluster)).WithHint("ask another server")
}

// assignments waits until the node's assignments are newer than those that its agent has. The answer is always the
// whole set. So an agent also gets a restored state, whose indexes may be lower.
func (s *Server) assignments(ctx context.Context, who caller,
	q transport.AssignmentsRequest) (transport.Assignments, error) {
	if err := cmp.Or(s.caughtUp(), s.replaced(q.Cluster)); err != nil {
		return transport.Assignments{}, err
	}
	s.awaitNode(ctx, q.Node, q.Epoch, q.Seen)
	if err := s.behind(q.Seen); err != nil {
		return transport.Assignments{}, err
	}
	woken, cancel := s.cfg.Store.WatchTopic(assignedTopic(q.Node))
	defer cancel()
	n, err := s.ownNode(who, q.Node)
	switch { // every pending poll keeps this stack frame in memory: it must stay small
	case errors.Is(err, &model.Error{Code: model.CodeNotFound}):
		return transport.Assignments{Register: true}, nil
	case err != nil:
		return transport.Assignments{}, err
	}
	if registered(s.cfg.Store.Current(), n, q) {
		s.cfg.Liveness.Heard(q.Node)
		if n.Assigned <= q.Index && q.Incarnation == s.cfg.Store.Current().Incarnation {
			over, leave := s.agents.guard.join()
			if pause(ctx, woken, over, parsePoll(q.Wait)) {
				s.agents.assigned.wait(ctx)
			}
			leave()
		}
	}
	if err := s.caughtUp(); err != nil {
		return transport.Assignments{}, err
	}
	r := s.reading()
	return r.assignments(q), nil
}

func assignedTopic(id model.NodeID) fsm.Topic { return "assigned/" + fsm.Topic(id) }

// behind fails for an agent that has seen a newer state than this server's; the leader will send that state here. The
// leader itself never fails. If its state was restored, the agent's next registration raises it above what the agent
// saw. Code: not_caught_up.
func (s *Server) behind(seen model.Seen) error {
	if _, leads, _ := s.cfg.Consensus.Leader(); leads || !s.cfg.Store.Current().Moment().Before(seen) {
		return nil
	}
	return model.Refuse(model.CodeNotCaughtUp, "this server's state is older than what the agent has seen").
		WithHint("ask another server")
}

// registered reports whether a request is of the node's current registration, and the agent has seen no newer state.
func registered(state *fsm.State, n *fsm.Node, q transport.AssignmentsRequest) bool {
	return n.Agent.Epoch == q.Epoch && n.Health != model.HealthOffline && !state.Moment().Before(q.Seen)
}

// lagWait is how long a lagging server waits until an agent's registration arrives here too. With less, it sends away
// agents that have just registered, and each of them asks again or registers once more. After a restore, agents whose
// registration is lost wait in vain.
const lagWait = 2 * time.Second

// awaitNode blocks until this server's state has the node's registration of that epoch, or a later one, and is no older
// than what the agent has seen. It waits at most lagWait. The leader does not wait. A registration from before a
// restore will never come.
func (s *Server) awaitNode(ctx context.Context, id model.NodeID, epoch uint64, seen model.Seen) {
	if s.knows(id, epoch, seen) {
		return
	}
	if _, leads, _ := s.cfg.Consensus.Leader(); leads {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lagWait)
	defer cancel()
	for {
		woken, forget := s.cfg.Store.WatchTopic(assignedTopic(id))
		if s.knows(id, epoch, seen) {
			forget()
			return
		}
		select {
		case <-woken:
		case <-ctx.Done():
		case <-transport.Stopping(ctx):
			cancel()
		}
		forget()
		if ctx.Err() != nil {
			return
		}
	}
}

func (s *Server) knows(id model.NodeID, epoch uint64, seen model.Seen) bool {
	state := s.cfg.Store.Current()
	n, ok := state.Nodes.Get(id)
	return (ok && n.Agent.Epoch >= epoch || epoch != 0 && state.Outlived(epoch)) && !state.Moment().Before(seen)
}

// pause blocks until woken or over is closed, limit has passed, the caller has gone or the server stops. It reports
// whether it was woken.
func pause(ctx context.Context, woken, over <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-woken:
		return true
	case <-over:
	case <-timer.C:
	case <-ctx.Done():
	case <-transport.Stopping(ctx):
	}
	return false
}

// assignments returns everything that the node must run or stop now.
func (r *reading) assignments(q transport.AssignmentsRequest) transport.Assignments {
	a := transport.Assignments{Incarnation: r.Incarnation, Unconfirmed: r.Unconfirmed}
	if r.Confirmed > 0 {
		a.Confirmed = max(r.logged.Sub(r.Confirmed), 1) // by the log: a server's own clock may run ahead of the leader's
	}
	n, ok := r.Nodes.Get(q.Node)
	if !ok || !registered(&r.State, n, q) {
		a.Register = true
		return a
	}
	a.Index, a.Heartbeat = n.Assigned, fsm.HeartbeatInterval(r.Settings.OfflineAfter)
	// until the node's inventory is in, any of its instances may have to be kept
	a.Unconfirmed = a.Unconfirmed || n.Restore.InventoryOwed || n.Restore.Behind
	for _, h := range n.Restore.Unknown {
		switch {
		case r.Keeps(h):
			a.Keep = append(a.Keep, h.ID)
		case !r.SlotFilled(h.Group, h.Slot):
			a.WithGrace = append(a.WithGrace, h.ID)
		}
	}
	for i := range r.InstancesOn(q.Node) {
		if i.Status.Observed == model.ObservedStopped && i.Desired == model.DesiredStopped || i.WaitsForRoom() {
			continue
		}
		one := r.assignment(i)
		if r.hasSpec(i, q) {
			one.Spec = nil
		}
		a.Instances = append(a.Instances, one)
	}
	a.Transfers = r.transferOrders(q.Node)
	return a
}

// hasSpec reports whether an earlier answer in the same epoch had the spec of an instance, which never changes. It may
// be wrong about an instance that waited for room, which the agent got later. The agent then asks for every spec.
func (r *reading) hasSpec(i *fsm.Instance, q transport.AssignmentsRequest) bool {
	return q.Incarnation == r.Incarnation && i.Marks.CreatedIndex <= q.Index
}

func (r *reading) assignment(i *fsm.Instance) transport.Assignment {
	job, _ := i.Group.Split()
	one := transport.Assignment{
		ID: i.ID, Group: i.Group, Slot: i.Slot, Desired: i.Desired, Ports: i.Claims.Ports.Map(),
		RestartSeq: i.Links.RestartSeq, Attempt: i.Links.Attempt,
		Grace: i.Marks.GraceOverride, Job: job, Prepare: i.Preparation(), Gates: r.ownGates(i),
	}
	switch {
	case i.Desired == model.DesiredDraining:
		one.Cause = i.Marks.StopCause
	case one.Prepare != 0:
		one.Cause = i.Eviction.Cause
	}
	if spec, ok := r.Spec(i.Group, i.Version); ok {
		if r.InGrace(i) {
			// it was replaced while its node was silent, and may have clients: it gets its grace
			one.Desired = model.DesiredDraining
		}
		one.Spec, one.Memory = spec, spec.Resources.MemoryBytes
		one.Copies, one.Held = r.CopiesUsed(i)
		one.Unsettled = r.SlotUnsettled(spec, i.Group, i.Slot) != nil
		if spec.OneHolder() || len(spec.Volumes) > 0 {
			// A later holder of a slot has a higher index, even if the job was purged and made again under its name. The
			// incarnation comes first, because after a restore a newer entry may have a lower index.
			one.Fencing = r.Incarnation<<fencingBits + i.Marks.CreatedIndex
		}
	}
	return one
}

// ownGates returns the gates of an instance's group that rest on its own facts, for a stop that depends on them. The
// agent checks them once more, because it sees a change before the servers do. A forced drain and a person's bypass
// skip gates.
func (r *reading) ownGates(i *fsm.Instance) []string {
	cause := i.Eviction.Cause
	switch {
	case i.Desired == model.DesiredDraining:
		cause = i.Marks.StopCause
	case i.Preparation() == 0:
		return nil
	}
	if done := i.Status.Hook; i.Desired == model.DesiredDraining && cause == model.CauseUser &&
		(done == nil || done.Seq != i.Eviction.Seq) {
		return nil // it was not prepared, so a person bypassed the budget
	}
	if drain, ok := r.Drains.Get(model.DrainID(i.Eviction.By)); ok && cause == model.CauseNodeDraining &&
		drain.Options.Force {
		return nil
	}
	var own []string
	for _, text := range r.GatesOf(i, cause) {
		if gate, refusal := model.ParseGate(text); refusal == nil && gate.Self() {
			own = append(own, text)
		}
	}
	return own
}

// agentServices answers with an encoded transport.Services.
func (s *Server) agentServices(ctx context.Context, who caller, q transport.ServicesRequest) (cbor.RawMessage, error) {
	if err := cmp.Or(s.caughtUp(), s.replaced(q.Cluster)); err != nil {
		return nil, err
	}
	s.awaitNode(ctx, q.Node, 0, model.Seen{})
	if _, err := s.ownNode(who, q.Node); err != nil {
		return nil, err
	}
	if q.Index > s.cfg.Store.Current().Index {
		q.Index = 0
	}
	over, leave := s.agents.guard.join()
	if s.watches.until(ctx, over, q.Index, parsePoll(q.Wait), "services") && q.Index > 0 {
		s.agents.services.wait(ctx)
	}
	leave()
	if err := s.caughtUp(); err != nil {
		return nil, err
	}
	return s.agents.known.of(s.reading())
}

// sharedServices holds the encoded services for agents. A change wakes all agents, and all get the same bytes.
type sharedServices struct {
	mu          sync.Mutex
	incarnation uint64 // the same index can come again after a restore
	index       uint64
	encoded     []byte // nil: none yet
}

// of returns the services of r, which must be of a published state. Concurrent callers wait for the encoding in
// progress.
func (s *sharedServices) of(r *reading) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.encoded != nil && s.index == r.Index && s.incarnation == r.Incarnation {
		return s.encoded, nil
	}
	encoded, err := transport.EncodeCBOR(transport.Services{Incarnation: r.Incarnation, Index: r.Index,
		Services: r.wireServices(), Unconfirmed: r.Unconfirmed})
	if err == nil {
		s.incarnation, s.index, s.encoded = r.Incarnation, r.Index, encoded
	}
	return encoded, err
}
