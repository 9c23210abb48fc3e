package api

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// heartbeatKey is how many random bytes authenticate a node's heartbeats.
const heartbeatKey = 32

func (s *Server) agentOperations() []operation {
	return []operation{
		agentCall(s, agentRoute("register-agent", transport.PathAgentRegister, "Make an agent's node known", runLeader), s.registerAgent),
		agentCall(s, agentRoute("report-agent", transport.PathAgentReport, "Take what an agent observed", runLeader), s.reportAgent),
		agentCall(s, agentRoute("agent-assignments", transport.PathAgentAssignments, "Wait for what an agent must run", runHere), s.assignments),
		agentCall(s, agentRoute("agent-services", transport.PathAgentServices, "Wait for the services and their backends", runHere), s.agentServices),
	}
}

func agentRoute(id, path, summary string, run place) route {
	return route{id: id, method: http.MethodPost, path: path, tag: "agents", summary: summary + " (CBOR)", allow: forAgent, run: run}
}

// agentCall is one operation of the agents' protocol: CBOR in, CBOR out.
func agentCall[Q, A any](s *Server, rt route, answer func(context.Context, caller, Q) (A, error)) operation {
	doc := document{body: transport.ContentTypeCBOR, answer: transport.ContentTypeCBOR}
	return plain(rt, doc, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var question Q
		err := transport.DecodeCBOR(bodyFrom(r.Context()), &question)
		var out A
		if err == nil {
			out, err = answer(r.Context(), callerFrom(r.Context()), question)
		}
		var encoded []byte
		if err == nil {
			encoded, err = transport.EncodeCBOR(out)
		}
		if err != nil {
			s.log.Debug("agent refused", "agent", callerFrom(r.Context()).Name, "operation", rt.id, "error", err)
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", transport.ContentTypeCBOR)
		w.Write(encoded)
	}))
}

// commitFor proposes what an agent asks for, with the agent as its actor.
func (s *Server) commitFor(ctx context.Context, who caller, c fsm.Command) (uint64, error) {
	r := s.reading()
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	result, err := s.propose(ctx, fsm.Entry{
		Format: r.Format, At: r.now, Wall: time.Now().UnixMilli(), Actor: who.actor(), Groups: [][]fsm.Command{{c}},
	})
	if err != nil {
		return 0, err
	}
	if result.Refusal != nil {
		return 0, refusedAt(result.Refusal, result.Index)
	}
	return result.Index, nil
}

// registerAgent hands out a new heartbeat key with each epoch, so that an earlier process of the same node can't keep it
// alive.
func (s *Server) registerAgent(ctx context.Context, who caller, q transport.RegisterRequest) (transport.RegisterReply, error) {
	if err := who.isNode(q.Name); err != nil {
		return transport.RegisterReply{}, err
	}
	state, _ := s.cfg.Store.Watch()
	if q.Cluster != "" && q.Cluster != state.Cluster.ID {
		return transport.RegisterReply{}, fsm.Refuse(fsm.CodeConflict, "node %s belongs to cluster %s; this is cluster %s", q.Name, clip(q.Cluster), state.Cluster.ID).
			WithHint("check the agent's servers; to move the node, stop the agent and give it an empty data_dir")
	}
	if known, ok := state.Nodes.Get(q.Node); ok && known.Name != q.Name {
		return transport.RegisterReply{}, fsm.Refuse(fsm.CodeForbidden, "the node id is that of node %s, not of %s", known.Name, q.Name).
			WithHint("each agent needs a data directory of its own; to rename a node, drain and forget it, then start it with an empty one")
	}
	key := make([]byte, heartbeatKey)
	rand.Read(key) // never fails: the runtime ends the process if there is no randomness
	q.Agent.Key, q.Agent.Epoch = key, 0
	register := &fsm.NodeRegister{ID: q.Node, Name: q.Name, Agent: q.Agent, Shape: q.Shape}
	if refusal := state.NewDraft(state.Now).Try(register); refusal != nil { // an agent tries again and again: that must not fill the log
		return transport.RegisterReply{}, refusedAt(refusal, state.Index)
	}
	if _, err := s.commitFor(ctx, who, register); err != nil {
		return transport.RegisterReply{}, err
	}
	s.cfg.Liveness.Heard(q.Node)
	state, _ = s.cfg.Store.Watch()
	n, ok := state.Nodes.Get(q.Node)
	if !ok || string(n.Agent.Key) != string(key) {
		return transport.RegisterReply{}, fsm.Refuse(fsm.CodeStale, "node %s registered again meanwhile", q.Name).WithHint("two agents may use the same data directory")
	}
	return transport.RegisterReply{
		Epoch: n.Agent.Epoch, Key: key, Heartbeat: fsm.HeartbeatInterval(state.Settings.OfflineAfter), Servers: s.serverInfos(ctx), Cluster: state.Cluster.ID,
	}, nil
}

// serverInfos is where the servers can be reached; empty when they can't be listed now, as an agent then keeps those that
// it knows.
func (s *Server) serverInfos(ctx context.Context) []transport.ServerInfo {
	if s.cfg.Servers.Roster == nil {
		return nil
	}
	members, err := s.cfg.Servers.Roster.Members(ctx)
	if err != nil {
		s.log.Warn("can't list the servers for an agent", "error", err)
		return nil
	}
	var all []transport.ServerInfo
	for _, m := range members {
		all = append(all, transport.ServerInfo{ID: m.ID, Name: m.Name, APIAddress: m.Address, Gossip: m.Gossip})
	}
	return all
}

func (s *Server) reportAgent(ctx context.Context, who caller, q transport.ReportRequest) (transport.ReportReply, error) {
	n, err := s.ownNode(who, q.Node)
	if err != nil {
		return transport.ReportReply{}, err
	}
	if refusal := n.TakesReport(q.Epoch); refusal != nil {
		return transport.ReportReply{}, refusal
	}
	for i := range q.Instances {
		one := &q.Instances[i]
		one.Reason = bounded(one.Reason)
		if one.Hook != nil {
			one.Hook.Message = bounded(one.Hook.Message)
		}
	}
	index, err := s.commitFor(ctx, who, &fsm.NodeReport{ID: q.Node, Epoch: q.Epoch, Full: q.Full, Instances: q.Instances, FactsGen: q.FactsGen, Transfers: q.Transfers})
	if err != nil {
		return transport.ReportReply{}, err
	}
	s.cfg.Liveness.Heard(q.Node)
	return transport.ReportReply{Index: index}, nil
}

// bounded cuts what an agent says, for the log.
func bounded(text string) string {
	if len(text) <= 256 {
		return text
	}
	return strings.ToValidUTF8(text[:256], "")
}

// ownNode finds the node that an agent speaks for. Codes: not_found, forbidden.
func (s *Server) ownNode(who caller, id fsm.NodeID) (*fsm.Node, error) {
	state, _ := s.cfg.Store.Watch()
	n, ok := state.Nodes.Get(id)
	if !ok {
		return nil, fsm.Refuse(fsm.CodeNotFound, "this server knows no node %s", clip(string(id))).WithHint("the agent must register first")
	}
	return n, who.isNode(n.Name)
}

func parsePoll(wait fsm.Duration) time.Duration {
	return min(time.Duration(max(0, min(wait, fsm.Minute)))*time.Millisecond, maxWait)
}

// fencingBits are those of the log index in a fencing epoch; above them is the incarnation, as an index comes again after a restore.
const fencingBits = 44

// staleForAgents is for how long a server may have lost the leader before it sends agents elsewhere: an election is over by then. One that is cut off from
// the other servers would otherwise keep its agents from all that is decided without it, for as long as they reach it.
const staleForAgents = 10 * time.Second

// staleLook is how often a server that holds an agent's question looks whether it still may.
const staleLook = 2 * time.Second

// caughtUp keeps a server that lags, or has lost the others, from telling agents what is over. Code: not_caught_up.
func (s *Server) caughtUp() error {
	stale := s.cfg.Freshness.StaleFor()
	switch {
	case !s.cfg.Freshness.CaughtUp():
		return fsm.Refuse(transport.CodeNotCaughtUp, "this server is still catching up").WithHint("ask another server")
	case stale > staleForAgents:
		return fsm.Refuse(transport.CodeNotCaughtUp, "this server has heard no leader for %s", stale.Round(time.Second)).WithHint("ask another server")
	}
	return nil
}

// whileCaughtUp is ctx until caughtUp says no. end must be called; it waits for what looks.
func (s *Server) whileCaughtUp(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		look := time.NewTicker(staleLook)
		defer look.Stop()
		for s.caughtUp() == nil {
			select {
			case <-look.C:
			case <-ctx.Done():
				return
			}
		}
		cancel()
	})
	return ctx, func() {
		cancel()
		wg.Wait()
	}
}

// assignments waits until what the node must run is newer than what its agent has. The answer after the wait is the whole
// set again, so that an agent also learns of a restored state, whose indexes may be lower.
func (s *Server) assignments(ctx context.Context, who caller, q transport.AssignmentsRequest) (transport.Assignments, error) {
	if err := s.caughtUp(); err != nil {
		return transport.Assignments{}, err
	}
	woken, cancel := s.cfg.Store.WatchTopic("assigned/" + fsm.Topic(q.Node))
	defer cancel()
	n, err := s.ownNode(who, q.Node)
	switch {
	case errors.Is(err, &fsm.Error{Code: fsm.CodeNotFound}):
		return transport.Assignments{Register: true}, nil
	case err != nil:
		return transport.Assignments{}, err
	}
	if n.Agent.Epoch == q.Epoch && n.Health != fsm.HealthOffline {
		s.cfg.Liveness.Heard(q.Node)
		if n.Assigned <= q.Index {
			fresh, end := s.whileCaughtUp(ctx)
			pause(fresh, woken, parsePoll(q.Wait))
			end()
		}
	}
	if err := s.caughtUp(); err != nil {
		return transport.Assignments{}, err
	}
	r := s.reading()
	return r.assignments(q.Node, q.Epoch), nil
}

// pause blocks until woken, the time is over, the caller has gone or the server stops.
func pause(ctx context.Context, woken <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-woken:
	case <-timer.C:
	case <-ctx.Done():
	case <-transport.Stopping(ctx):
	}
}

// assignments is everything that a node must run or stop now.
func (r *reading) assignments(id fsm.NodeID, epoch uint64) transport.Assignments {
	a := transport.Assignments{Incarnation: r.Incarnation, Unconfirmed: r.Unconfirmed}
	n, ok := r.Nodes.Get(id)
	if !ok || n.Agent.Epoch != epoch || n.Health == fsm.HealthOffline {
		a.Register = true
		return a
	}
	a.Index, a.Heartbeat = n.Assigned, fsm.HeartbeatInterval(r.Settings.OfflineAfter)
	for i := range r.InstancesOn(id) {
		if i.Status.Observed == fsm.ObservedStopped && i.Desired == fsm.DesiredStopped || i.WaitsForRoom() {
			continue
		}
		a.Instances = append(a.Instances, r.assignment(i))
	}
	a.Transfers = r.transferOrders(id)
	return a
}

func (r *reading) assignment(i *fsm.Instance) transport.Assignment {
	job, _ := i.Group.Split()
	one := transport.Assignment{
		ID: i.ID, Group: i.Group, Slot: i.Slot, Desired: i.Desired, Ports: i.Claims.Ports, RestartSeq: i.Links.RestartSeq, Attempt: i.Links.Attempt,
		Grace: i.Marks.GraceOverride, Job: job, Prepare: i.Preparation(), Gates: r.ownGates(i),
	}
	switch {
	case i.Desired == fsm.DesiredDraining:
		one.Cause = i.Marks.StopCause
	case one.Prepare != 0:
		one.Cause = i.Eviction.Cause
	}
	if spec, ok := r.Spec(i.Group, i.Version); ok {
		one.Spec, one.Memory, one.Copies = spec, spec.Resources.MemoryBytes, r.CopiesUsed(i)
		if spec.Exclusive || len(spec.Volumes) > 0 {
			// Later holders of a slot were placed by later entries, also those of a job that was purged and made again under its name; and what is
			// decided after a restore counts more than what was lost by it.
			one.Fencing = r.Incarnation<<fencingBits + i.Marks.CreatedIndex
		}
	}
	return one
}

// ownGates are the gates of an instance's group that rest on its own facts, for a stop that they were asked about. The agent looks at them once more: it
// sees a change before the servers do. A drain with force asks none, nor does a person's bypass; whose the stop is stands in the eviction that asked for it.
func (r *reading) ownGates(i *fsm.Instance) []string {
	cause := i.Eviction.Cause
	switch {
	case i.Desired == fsm.DesiredDraining:
		cause = i.Marks.StopCause
	case i.Preparation() == 0:
		return nil
	}
	if done := i.Status.Hook; i.Desired == fsm.DesiredDraining && cause == fsm.CauseUser && (done == nil || done.Seq != i.Eviction.Seq) {
		return nil // it was not prepared: a bypass
	}
	if drain, ok := r.Drains.Get(fsm.DrainID(i.Eviction.By)); ok && cause == fsm.CauseNodeDraining && drain.Options.Force {
		return nil
	}
	var own []string
	for _, text := range r.GatesOf(i, cause) {
		if gate, refusal := fsm.ParseGate(text); refusal == nil && gate.Self() {
			own = append(own, text)
		}
	}
	return own
}

func (s *Server) agentServices(ctx context.Context, who caller, q transport.ServicesRequest) (transport.Services, error) {
	if err := s.caughtUp(); err != nil {
		return transport.Services{}, err
	}
	if _, err := s.ownNode(who, q.Node); err != nil {
		return transport.Services{}, err
	}
	fresh, end := s.whileCaughtUp(ctx)
	s.watches.until(fresh, q.Index, parsePoll(q.Wait), "services")
	end()
	if err := s.caughtUp(); err != nil {
		return transport.Services{}, err
	}
	r := s.reading()
	return transport.Services{Index: r.Index, Services: r.wireServices()}, nil
}
