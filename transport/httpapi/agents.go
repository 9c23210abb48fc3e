package httpapi

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// heartbeatKey is the size in bytes of the random key that authenticates a node's heartbeats.
const heartbeatKey = 32

// agentCallState has what the calls of all agents share.
type agentCallState struct {
	guard    *pollGuard   // notifies polls when this server may no longer answer agents
	assigned *answerDelay // delays answers to polls for assignments
	services *answerDelay
	peers    *answerDelay
	known    *sharedServices
	lists    *sharedPeers
	relay    *relay // forwards calls to the leader
	reports  batcher[agentReport, fsm.Result]
	calls    map[transport.AgentCall]agentCall
}

type agentCall struct {
	byLeader bool // only the leader can answer this call
	answer   answerCall
}

type answerCall func(ctx context.Context, who caller, question []byte) (answer []byte, err error)

func (s *Server) agentCalls() map[transport.AgentCall]agentCall {
	news := &agentNews{s: s, delay: newAnswerDelay(delayTrust)}
	renew := &renewals{issue: s.cfg.Renew, rate: registrationRates(), refused: s.cfg.Refused}
	return map[transport.AgentCall]agentCall{
		transport.CallRegister:    {true, inCBOR(s.registerAgent)},
		transport.CallReport:      {true, s.limitReports(inCBOR(s.reportAgent))},
		transport.CallAssignments: {false, inCBOR(s.assignments)},
		transport.CallServices:    {false, inCBOR(s.agentServices)},
		transport.CallPeers:       {false, inCBOR(s.agentPeers)},
		transport.CallRenew:       {true, inCBOR(renew.answer)},
		transport.CallTrust:       {false, inCBOR(news.answer)},
	}
}

func inCBOR[Q, A any](answer func(context.Context, caller, Q) (A, error)) answerCall {
	return func(ctx context.Context, who caller, raw []byte) ([]byte, error) {
		var question Q
		if err := transport.DecodeCBOR(raw, &question); err != nil {
			return nil, err
		}
		out, err := answer(ctx, who, question)
		if err != nil {
			return nil, err
		}
		return transport.EncodeCBOR(out)
	}
}

// AnswerAgent is a transport.AnswerAgent. If only the leader can answer the call and this server does not lead, it
// forwards the call. Codes: rate_limited, forbidden for a caller that is not an agent, no_route for an unknown call,
// and those of the call.
func (s *Server) AnswerAgent(ctx context.Context, who model.Subject, call transport.AgentCall,
	question []byte) (answer []byte, err error) {
	began := time.Now()
	defer func() { s.auditAgent(ctx, who, call, err, began) }()
	defer s.agentRecovered(call, &err)
	err = s.takeRequest(who)
	if who.Kind != model.SubjectAgent {
		err = model.Refuse(model.CodeForbidden, "%s may not speak the agents' protocol", who)
	}
	if err != nil {
		s.cfg.Refused(err)
		return nil, err
	}
	c, ok := s.agents.calls[call]
	if !ok {
		return nil, noAgentCall(call)
	}
	if _, self, _ := s.cfg.Consensus.Leader(); c.byLeader && !self {
		relayed := relayCall{Call: call, Agent: who.Name, Body: question}
		if call == transport.CallRenew {
			shown := transport.ShownFrom(ctx)
			relayed.Key, relayed.NotAfter, relayed.Issuer = shown.Key, shown.NotAfter, shown.Issuer
		}
		answer, err = s.agents.relay.do(ctx, relayed)
	} else {
		answer, err = c.answer(ctx, caller{Subject: who}, question)
	}
	if err != nil {
		s.log.Debug("agent refused", "agent", who.Name, "call", call, "error", err)
	}
	return answer, err
}

// agentRecovered turns a panic during a call into the call's error.
func (s *Server) agentRecovered(call transport.AgentCall, err *error) {
	if reason := recover(); reason != nil {
		*err = s.panicked("agent", call.String(), reason)
	}
}

func noAgentCall(call transport.AgentCall) *model.Error {
	return model.Refuse(model.CodeNoRoute, "agents have no %s", call).
		WithHint("compare the versions of the two processes with: outspan version")
}

// commitFor proposes an agent's command, with the agent as its actor. It returns the entry's index.
func (s *Server) commitFor(ctx context.Context, who caller, c fsm.Command) (uint64, error) {
	state := s.cfg.Store.Current()
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	result, err := s.propose(ctx, fsm.Entry{
		Format: state.Format, At: max(state.Now, s.cfg.Consensus.Now()), Wall: time.Now().UnixMilli(), Actor: who.Actor(),
		Groups: [][]fsm.Command{{c}},
	})
	if err != nil {
		return 0, err
	}
	if result.Refusal != nil {
		return 0, refusedAt(result.Refusal, result.Index)
	}
	return result.Index, nil
}

// registerAgent registers a node. Each epoch gets a new heartbeat key, so that an earlier process of the same node
// can't keep the node online.
func (s *Server) registerAgent(ctx context.Context, who caller,
	q transport.RegisterRequest) (transport.RegisterReply, error) {
	if err := who.isNode(q.Name); err != nil {
		return transport.RegisterReply{}, err
	}
	if _, err := netip.ParseAddr(q.Agent.Address); err != nil { // other processes dial it, and jobs get it as text
		return transport.RegisterReply{},
			model.Refuse(model.CodeInvalid, "the address %q of the agent of node %s is no IP address",
				clip(q.Agent.Address), q.Name).
				WithHint("set advertise { address } on that machine")
	}
	state, _ := s.cfg.Store.Watch()
	if err := s.follows(q, state.Cluster.History()); err != nil {
		return transport.RegisterReply{}, err
	}
	if known, ok := state.Nodes.Get(q.Node); ok && known.Name != q.Name {
		return transport.RegisterReply{},
			model.Refuse(model.CodeNodeTaken, "the node id is that of node %s, not of %s", known.Name, q.Name).
				WithHint("each agent needs a data directory of its own; to rename a node, drain and forget it, then start it " +
					"with an empty one")
	}
	if err := s.usedElsewhere(&state, q); err != nil {
		return transport.RegisterReply{}, err
	}
	key := make([]byte, heartbeatKey)
	rand.Read(key) // never fails: without randomness, the runtime ends the process
	q.Agent.Key, q.Agent.Epoch = key, 0
	q.Agent.Warnings = fsm.CutWarnings(q.Agent.Warnings) // so that the log does not contain what Apply would cut off
	register := &fsm.NodeRegister{ID: q.Node, Name: q.Name, Agent: q.Agent, Shape: q.Shape,
		Seen: q.Seen, Refused: q.Refused}
	// An agent repeats its registration until it succeeds, so refused registrations must not fill the log.
	if refusal := state.NewDraft(state.Now).Try(register); refusal != nil {
		s.cfg.Refused(refusal)
		return transport.RegisterReply{}, refusedAt(refusal, state.Index)
	}
	if !s.registrations.take(who.Subject) {
		err := model.Refuse(model.CodeRateLimited, "the agent of node %s registers again and again", q.Name).
			WithHint("look at its log; it may go on in a few seconds")
		s.cfg.Refused(err)
		return transport.RegisterReply{}, err
	}
	if _, err := s.commitFor(ctx, who, register); err != nil {
		return transport.RegisterReply{}, err
	}
	if known, ok := state.Nodes.Get(q.Node); ok {
		s.cfg.Copies.Registered(q.Name, transport.Boot{ID: known.Agent.BootID, Address: known.Agent.Address},
			transport.Boot{ID: q.Agent.BootID, Address: q.Agent.Address})
	}
	s.cfg.Liveness.Heard(q.Node)
	state, _ = s.cfg.Store.Watch()
	n, ok := state.Nodes.Get(q.Node)
	if !ok || string(n.Agent.Key) != string(key) {
		return transport.RegisterReply{}, model.Refuse(model.CodeStale, "node %s registered again meanwhile", q.Name).
			WithHint("two agents may use the same data directory")
	}
	config, voters := s.cfg.Liveness.Voters()
	servers, listens := s.serverInfos(ctx)
	return transport.RegisterReply{
		Config: config, Voters: voters, Epoch: n.Agent.Epoch, Key: key,
		Heartbeat: fsm.HeartbeatInterval(state.Settings.OfflineAfter),
		Servers:   servers, Listens: listens, Cluster: state.Cluster.History().String(),
	}, nil
}

// renewals answers agents that ask for their next certificates. issue is Config.Renew.
type renewals struct {
	issue   func(context.Context, model.Subject, transport.RenewRequest) (transport.RenewReply, error)
	rate    *rates
	refused func(error)
}

// answer issues the caller's next certificate. Codes: not_supported, rate_limited, and those of issue.
func (r *renewals) answer(ctx context.Context, who caller, q transport.RenewRequest) (transport.RenewReply, error) {
	if r.issue == nil {
		return transport.RenewReply{}, model.Refuse(model.CodeNotSupported, "this cluster issues no certificates").
			WithHint("the servers need tls { managed = true }; without it, use: outspan tls cert create --agent %s", who.Name)
	}
	if !r.rate.take(who.Subject) {
		err := model.Refuse(model.CodeRateLimited, "%s renews its certificate again and again", who.Subject).
			WithHint("look at its log; it may go on in a few seconds")
		r.refused(err)
		return transport.RenewReply{}, err
	}
	return r.issue(ctx, who.Subject, q)
}

// usedElsewhere returns an error if another agent uses the node, for example because the machine was copied, and that
// agent's heartbeats still arrive. A restarted agent is accepted, even after a reboot. An agent that moved to another
// address must wait until no heartbeats from the old address have arrived for three intervals. Code: node_taken.
func (s *Server) usedElsewhere(state *fsm.State, q transport.RegisterRequest) error {
	n, known := state.Nodes.Get(q.Node)
	if !known || n.Health == model.HealthOffline || !n.Agent.Elsewhere(&q.Agent) {
		return nil
	}
	live, ok := s.cfg.Liveness.LiveOf(n.ID)
	if !ok || live.Age > 3*fsm.HeartbeatInterval(state.Settings.OfflineAfter) {
		return nil
	}
	s.log.Warn("a second agent uses the identity of a node and is refused", "node", n.Name, "address",
		clip(q.Agent.Address), "first", n.Agent.Address)
	heard := fmt.Sprintf("was heard %s ago", live.Age)
	if !live.Unheard {
		s.cfg.Copies.Refused(transport.Copy{Node: n.Name, First: n.Agent.Address, Second: clip(q.Agent.Address)},
			time.Now().Add(-time.Duration(live.Age)*time.Millisecond))
	}
	if live.Unheard { // not heard since this server started
		heard = "may not have found this leader yet"
	}
	return model.Refuse(model.CodeNodeTaken, "node %s is in use by the agent at %s, which %s; this one is at %s", n.Name,
		n.Agent.Address, heard, clip(q.Agent.Address)).
		WithHint("if this machine is a copy, stop the agent and give it an empty data_dir, a name and a certificate of its " +
			"own; if the node moved here, stop the agent there")
}

// follows returns an error unless the node is new, or follows our lineage or one that ours replaced. Codes: conflict,
// invalid.
func (s *Server) follows(q transport.RegisterRequest, ours model.History) error {
	theirs, refusal := model.ParseHistory(q.Cluster)
	switch {
	case refusal != nil:
		return refusal
	case q.Cluster == "" || ours.Same(theirs) || ours.Replaces(theirs):
		return nil
	case theirs.Cluster != ours.Cluster:
		return model.Refuse(model.CodeConflict, "node %s belongs to cluster %s; this is cluster %s", q.Name,
			clip(theirs.Cluster), ours.Cluster).
			WithHint("check the agent's servers; to move the node, stop the agent and give it an empty data_dir")
	}
	s.log.Warn("a node follows another lineage of this cluster: a server may have been recovered elsewhere", "node",
		q.Name, "lineage", clip(theirs.Lineage()))
	return model.Refuse(model.CodeConflict,
		"node %s follows the lineage %s of this cluster, which began when another server was recovered",
		q.Name, clip(theirs.Lineage())).
		WithHint("if those servers live: stop this one and give it an empty data_dir; if they are lost for good: outspan "+
			"server recover --supersedes %s on one server", clip(theirs.Lineage()))
}

// maxServerInfos is how many servers an agent is told.
const maxServerInfos = 32

// serverInfos returns the addresses and listeners of the servers. It leaves out addresses that only gossip claims,
// because an agent would keep and try them all. If the servers can't be listed now, it returns nil,
// and the agent keeps the addresses that it knows.
func (s *Server) serverInfos(ctx context.Context) (all []transport.ServerInfo, listens []string) {
	if s.cfg.Servers.List == nil {
		return nil, nil
	}
	members, err := s.cfg.Servers.List.Members(ctx)
	if err != nil {
		s.log.Warn("can't list the servers for an agent", "error", err)
		return nil, nil
	}
	for _, m := range members {
		if !m.Claimed && len(all) < maxServerInfos {
			all = append(all, transport.ServerInfo{ID: m.ID, Name: m.Name, APIAddress: m.Address, Gossip: m.Gossip})
		}
		listens = append(listens, m.Listens...)
	}
	return all, listens
}

// ownNode returns the node with the given id, which must be the caller's own. Codes: not_found, forbidden.
func (s *Server) ownNode(who caller, id model.NodeID) (*fsm.Node, error) {
	n, ok := s.cfg.Store.Current().Nodes.Get(id)
	if !ok {
		return nil, model.Refuse(model.CodeNotFound, "this server knows no node %s", clip(string(id))).
			WithHint("the agent must register first")
	}
	return n, who.isNode(n.Name)
}
