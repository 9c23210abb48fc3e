package httpapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Bounds of the requests to the leader.
const (
	relayCalls    = 256       // calls of agents in one request
	relayBytes    = 256 << 10 // bytes of all bodies in one request; a longer body is sent in a request of its own
	relayInFlight = 4         // requests in progress, so that a slow request delays only some calls
	relayTime     = 15 * time.Second
)

// relay forwards agents' calls that only the leader can answer. While relayInFlight requests are in progress, new calls
// wait, and then share a request. When 5,000 agents report 10,000 new instances, a request for each call would be most
// of the servers' work.
type relay struct {
	s     *Server
	calls batcher[relayCall, relayAnswer]

	mu       sync.Mutex
	leader   transport.ServerInfo
	underWay context.Context // of all requests to leader; giveUp cancels it
	giveUp   context.CancelFunc
}

// relayCall is a call of an agent, as it is forwarded to the leader.
type relayCall struct {
	Call transport.AgentCall `cbor:"1,keyasint"`
	// Agent is the name in the agent's certificate, which the forwarding server has checked.
	Agent string `cbor:"2,keyasint"`
	Body  []byte `cbor:"3,keyasint"`
	// Key, NotAfter and Issuer are those of transport.Shown. They are set only for CallRenew.
	Key      []byte `cbor:"4,keyasint,omitempty"`
	NotAfter int64  `cbor:"5,keyasint,omitempty"`
	Issuer   []byte `cbor:"6,keyasint,omitempty"`
}

// relayAnswer is the answer to one call: either a body or a problem.
type relayAnswer struct {
	Body    []byte       `cbor:"1,keyasint,omitempty"`
	Problem *api.Problem `cbor:"2,keyasint,omitempty"`
}

func newRelay(s *Server) *relay {
	r := &relay{s: s, giveUp: func() {}}
	r.calls = batcher[relayCall, relayAnswer]{
		send: r.send, weight: func(c relayCall) int { return len(c.Body) },
		bounds: batchBounds{calls: relayCalls, weight: relayBytes, flying: relayInFlight, time: relayTime},
	}
	return r
}

// do forwards a call to the leader. It blocks until the answer arrives or ctx ends. If do sends the request for several
// calls, it waits until the request is answered, for at most relayTime, even after ctx has ended. Codes: no_leader,
// timeout, and those of the leader.
func (r *relay) do(ctx context.Context, call relayCall) ([]byte, error) {
	if err := r.follow(); err != nil {
		return nil, err
	}
	answer, err := r.calls.do(ctx, call)
	switch {
	case err != nil:
		return nil, err
	case answer.Problem != nil:
		return nil, answer.Problem
	}
	return answer.Body, nil
}

// follow remembers the current leader. If the leader has changed, follow cancels the requests to the earlier leader,
// because they may hang. Code: no_leader, also if this server leads.
func (r *relay) follow() error {
	leader, self, ok := r.s.cfg.Consensus.Leader()
	if !ok || self || r.s.cfg.PeerTransport == nil {
		return noLeader()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if leader != r.leader {
		r.giveUp()
		r.leader = leader
		r.underWay, r.giveUp = context.WithCancel(context.Background())
	}
	return nil
}

func (r *relay) send(ctx context.Context, calls []relayCall) ([]relayAnswer, error) {
	r.mu.Lock()
	leader, underWay := r.leader, r.underWay
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(underWay, cancel)()
	body, err := transport.EncodeCBOR(calls)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+leader.APIAddress+transport.PathPeerRelay,
		bytes.NewReader(body))
	if err != nil {
		return nil, model.Refuse(model.CodeNoLeader, "the leader's address %q is not usable", clip(leader.APIAddress))
	}
	resp, err := r.s.cfg.PeerTransport.RoundTrip(req)
	if err != nil {
		r.s.log.Warn("can't take agents' calls to the leader", "calls", len(calls), "leader", leader.Name, "address",
			leader.APIAddress, "error", err)
		return nil, leaderSilent(leader)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, api.ProblemOf(resp)
	}
	var answers []relayAnswer
	raw, err := io.ReadAll(resp.Body)
	if err == nil {
		err = transport.DecodeCBOR(raw, &answers)
	}
	if err != nil || len(answers) != len(calls) {
		r.s.log.Warn("the leader's answer to agents' calls is cut off", "calls", len(calls), "answers", len(answers),
			"leader", leader.Name, "error", err)
		return nil, leaderSilent(leader)
	}
	return answers, nil
}

// answerRelay answers, on the leader, a request that the relay of another server sent. That server has checked the
// agents' certificates. Codes: no_leader, invalid.
func (s *Server) answerRelay(ctx context.Context, raw []byte) ([]byte, error) {
	var calls []relayCall
	if err := transport.DecodeCBOR(raw, &calls); err != nil {
		return nil, err
	}
	if _, self, _ := s.cfg.Consensus.Leader(); !self {
		return nil, model.Refuse(model.CodeNoLeader, "leadership is changing hands").WithHint("try again in a moment")
	}
	if len(calls) > relayCalls {
		return nil, model.Refuse(model.CodeInvalid, "%d calls in one request; %d may be", len(calls), relayCalls)
	}
	answers := make([]relayAnswer, len(calls))
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(func() { answers[i] = s.answerRelayed(ctx, call) })
	}
	wg.Wait()
	return transport.EncodeCBOR(answers)
}

func (s *Server) answerRelayed(ctx context.Context, call relayCall) relayAnswer {
	body, err := s.answerFor(ctx, call)
	if err != nil {
		return relayAnswer{Problem: api.NewProblem(err)}
	}
	return relayAnswer{Body: body}
}

func (s *Server) answerFor(ctx context.Context, call relayCall) (answer []byte, err error) {
	defer s.agentRecovered(call.Call, &err)
	c, ok := s.agents.calls[call.Call]
	if !ok || !c.byLeader {
		return nil, noAgentCall(call.Call)
	}
	via := callerFrom(ctx)
	ctx = transport.WithShown(ctx, transport.Shown{Key: call.Key, NotAfter: call.NotAfter, Issuer: call.Issuer})
	who := caller{Subject: model.Subject{Kind: model.SubjectAgent, Name: call.Agent}, via: via.Name}
	return c.answer(ctx, who, call.Body)
}
