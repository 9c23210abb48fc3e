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

// fencingBits is the number of bits for the log index in a fencing epoch. The bits above them contain the incarnation,
// because an index may occur again after a restore.
const fencingBits = 44

// staleLimit is how long a server may be without a leader before it sends its agents, and in a managed cluster also
// people, to other servers. An election takes less time. Without this limit, the agents of a server that is cut off
// would learn of no later decision, and a revoked certificate would count there.
const staleLimit = 10 * time.Second

// staleLook is how often a server with pending polls or open streams checks whether it may still answer them.
const staleLook = 2 * time.Second

// caughtUp returns an error if this server's answers to agents may be outdated, because the server lags, has heard no
// leader for longer than staleLimit, or has no disk space for new entries. Code: not_caught_up.
func (s *Server) caughtUp() error {
	stale := s.cfg.Freshness.StaleFor()
	switch {
	case !s.cfg.Freshness.CaughtUp():
		return model.Refuse(model.CodeNotCaughtUp, "this server is still catching up").WithHint("ask another server")
	case !s.cfg.Freshness.TakesEntries():
		return model.Refuse(model.CodeNotCaughtUp, "this server's disk is full: it hears of nothing new").
			WithHint("ask another server")
	case stale > staleLimit:
		return model.Refuse(model.CodeNotCaughtUp, "this server has heard no leader for %s", stale.Round(time.Second)).
			WithHint("ask another server")
	}
	return nil
}

// replaced returns an error unless the agent follows this server's lineage or one that this server's lineage replaced.
// Another lineage means that other servers were recovered and have the newer state. Codes: not_caught_up, invalid.
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

// assignments returns all assignments of the node, once they are newer than those that its agent has, at the latest
// after q.Wait. The answer is not a difference, because after a restore the state may be older than the agent's. An
// agent without a current registration is asked at once to register.
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
	switch { // every pending poll keeps this function's stack frame in memory, so the frame must stay small
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

// behind returns an error if the agent has seen a newer state than this server has, because the leader will still send
// that state to this server. The leader itself never gets this error: only a restore can make its state older than what
// an agent saw, and then the agent's next registration raises the incarnation. Code: not_caught_up.
func (s *Server) behind(seen model.Seen) error {
	if _, leads, _ := s.cfg.Consensus.Leader(); leads || !s.cfg.Store.Current().Moment().Before(seen) {
		return nil
	}
	return model.Refuse(model.CodeNotCaughtUp, "this server's state is older than what the agent has seen").
		WithHint("ask another server")
}

// registered reports whether q has the epoch of the node's current registration, the node is not offline, and the agent
// has seen no newer state.
func registered(state *fsm.State, n *fsm.Node, q transport.AssignmentsRequest) bool {
	return n.Agent.Epoch == q.Epoch && n.Health != model.HealthOffline && !state.Moment().Before(q.Seen)
}

// lagWait is how long a lagging server waits for an agent's registration to arrive from the leader. With a shorter
// wait, agents that have just registered would be sent away, and would have to ask or register again.
const lagWait = 2 * time.Second

// awaitNode blocks until this server's state has the node's registration with the given epoch or a later one, and is at
// least as new as what the agent has seen. It waits at most lagWait, and not at all if this server leads. It does not
// wait for a registration of an earlier incarnation.
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

// pause blocks until woken or over is closed, limit has passed, ctx ends or the server begins to stop. It returns true
// if woken was closed.
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

// assignments returns everything that the node must run or stop now. If q is not of the current registration, the
// answer has no instances and asks the agent to register.
func (r *reading) assignments(q transport.AssignmentsRequest) transport.Assignments {
	a := transport.Assignments{Incarnation: r.Incarnation, Unconfirmed: r.Unconfirmed}
	if r.Confirmed > 0 {
		// The age of the restore's confirmation is measured at the time of the newest entry. This server's own clock may be
		// ahead of the leader's, and the agent must not get an age that is too high.
		a.Confirmed = max(r.logged.Sub(r.Confirmed), 1)
	}
	n, ok := r.Nodes.Get(q.Node)
	if !ok || !registered(&r.State, n, q) {
		a.Register = true
		return a
	}
	a.Index, a.Heartbeat = n.Assigned, fsm.HeartbeatInterval(r.Settings.OfflineAfter)
	// Until the node's inventory has arrived, any of its instances may have to continue.
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
	digests := map[string]bool{}
	for c := range r.PullsOn(q.Node) {
		if !digests[c.Digest()] {
			digests[c.Digest()] = true
			a.Images = append(a.Images, c.Image)
		}
	}
	return a
}

// hasSpec reports whether the agent should have got the instance's spec with an earlier answer. A spec never changes.
// If the instance waited for room at that time, the agent did not get the spec, and asks for all specs again.
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
			// The instance was replaced while its node was silent. Clients may still use it, so its stop may take its grace.
			one.Desired = model.DesiredDraining
		}
		one.Spec, one.Memory = spec, spec.Resources.MemoryBytes
		one.Copies, one.Held = r.CopiesUsed(i)
		one.Unsettled = r.SlotUnsettled(spec, i.Group, i.Slot) != nil
		if spec.OneHolder() || len(spec.Volumes) > 0 {
			// A later holder of a slot has a higher index, even if the job was purged and submitted again. The incarnation is in
			// the bits above the index, because after a restore a newer entry may have a lower index.
			one.Fencing = r.Incarnation<<fencingBits + i.Marks.CreatedIndex
		}
	}
	return one
}

// ownGates returns the gates on an instance's own facts that its planned stop must pass. The agent checks them again,
// because it sees a change of facts before the servers do. If no stop is planned, or a forced drain or an operator's
// bypass skips the gates, ownGates returns nil.
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
		return nil // the stop was not prepared: an operator bypassed the budget
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

// agentServices returns an encoded transport.Services. It first waits until a service has changed since q.Index, at
// most q.Wait.
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

// sharedServices caches the encoded services, because a change wakes all agents and all get the same bytes.
type sharedServices struct {
	mu          sync.Mutex
	incarnation uint64 // an index may occur again after a restore
	index       uint64
	encoded     []byte
}

// of returns the encoded services of r, which must read a published state. Concurrent callers wait while one of them
// encodes.
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
