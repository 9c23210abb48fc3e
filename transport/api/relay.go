package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// Bounds of what goes to the leader in one request.
const (
	relayCalls    = 256       // of agents
	relayBytes    = 256 << 10 // of their bodies, unless one alone is longer
	relayInFlight = 4         // requests at once, so that one that is slow holds up only a part
	relayTime     = 15 * time.Second
)

// relay takes the calls of agents that only the leader can answer to it, in one request as many as have come while others were under way; one that comes
// alone goes at once. When 5,000 agents tell of 10,000 new instances, a request for each is most of what their servers do. relay has no goroutine: the first of
// those who wait sends for all.
type relay struct {
	s *Server

	mu       sync.Mutex
	free     int        // requests that may still be sent
	waiting  []*relayed // in the order of their coming, not yet in a request
	leader   transport.ServerInfo
	underWay context.Context // of the requests to that leader; ended once there is another, as it may never answer
	giveUp   context.CancelFunc
}

// relayed is one call on its way.
type relayed struct {
	call   relayCall
	batch  []*relayed    // what it sends, itself first; nil: another sends it
	turn   chan struct{} // closed when it has a batch
	done   chan struct{} // closed when there is an answer
	answer relayAnswer
	err    error
}

// relayCall is a call of an agent as it goes to the leader.
type relayCall struct {
	Call  transport.AgentCall `cbor:"1,keyasint"`
	Agent string              `cbor:"2,keyasint"` // the name in its certificate, which the server that it asked has checked
	Body  []byte              `cbor:"3,keyasint"`
}

// relayAnswer is the answer to one call, in one of two forms.
type relayAnswer struct {
	Body    []byte             `cbor:"1,keyasint,omitempty"`
	Problem *transport.Problem `cbor:"2,keyasint,omitempty"`
}

func newRelay(s *Server) *relay { return &relay{s: s, free: relayInFlight, giveUp: func() {}} }

// do has the leader answer a call. It blocks until it has, or ctx ends; one that sends for others goes on until they have their answers, at most relayTime.
func (r *relay) do(ctx context.Context, call relayCall) ([]byte, error) {
	one := &relayed{call: call, turn: make(chan struct{}), done: make(chan struct{})}
	if err := r.enter(one); err != nil {
		return nil, err
	}
	select {
	case <-one.done:
	case <-one.turn:
		r.send(one.batch)
	case <-ctx.Done():
		if r.withdraw(one) {
			r.send(one.batch)
		}
		return nil, fsm.Refuse(fsm.CodeTimeout, "the request ended before the leader answered: %v", context.Cause(ctx))
	}
	switch {
	case one.err != nil:
		return nil, one.err
	case one.answer.Problem != nil:
		return nil, one.answer.Problem
	}
	return one.answer.Body, nil
}

// enter adds a call to those that wait. Nobody waits any more for a leader that is none now: it may be hung.
func (r *relay) enter(one *relayed) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	leader, self, ok := r.s.cfg.Consensus.Leader()
	if !ok || self || r.s.cfg.PeerTransport == nil {
		return noLeader()
	}
	if leader != r.leader {
		r.giveUp()
		r.leader = leader
		r.underWay, r.giveUp = context.WithCancel(context.Background())
	}
	r.waiting = append(r.waiting, one)
	r.next()
	return nil
}

// withdraw takes back a call that no request has yet. It reports whether the call has a batch to send all the same.
func (r *relay) withdraw(one *relayed) (sends bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waiting, one); i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
	}
	return one.batch != nil
}

// next has the first of those who wait send for as many as one request takes, if one more may be under way. r.mu is held.
func (r *relay) next() {
	if r.free == 0 || len(r.waiting) == 0 {
		return
	}
	n, size := 1, len(r.waiting[0].call.Body)
	for n < min(len(r.waiting), relayCalls) && size+len(r.waiting[n].call.Body) <= relayBytes {
		size += len(r.waiting[n].call.Body)
		n++
	}
	first := r.waiting[0]
	first.batch = slices.Clone(r.waiting[:n])
	r.waiting = slices.Delete(r.waiting, 0, n)
	r.free--
	close(first.turn)
}

// send asks the leader, and gives everybody the answer. It blocks at most relayTime.
func (r *relay) send(batch []*relayed) {
	r.mu.Lock()
	leader, underWay := r.leader, r.underWay
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(underWay, relayTime)
	defer cancel()
	answers, err := r.ask(ctx, leader, batch)
	for i, one := range batch {
		if one.err = err; err == nil {
			one.answer = answers[i]
		}
		close(one.done)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free++
	r.next()
}

// ask is one request.
func (r *relay) ask(ctx context.Context, leader transport.ServerInfo, batch []*relayed) ([]relayAnswer, error) {
	calls := make([]relayCall, len(batch))
	for i, one := range batch {
		calls[i] = one.call
	}
	body, err := transport.EncodeCBOR(calls)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+leader.APIAddress+transport.PathPeerRelay, bytes.NewReader(body))
	if err != nil {
		return nil, fsm.Refuse(fsm.CodeNoLeader, "the leader's address %q is not usable", clip(leader.APIAddress))
	}
	resp, err := r.s.cfg.PeerTransport.RoundTrip(req)
	if err != nil {
		r.s.log.Warn("can't take agents' calls to the leader", "calls", len(calls), "leader", leader.Name, "address", leader.APIAddress, "error", err)
		return nil, leaderSilent(leader)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, transport.ProblemOf(resp)
	}
	var answers []relayAnswer
	raw, err := io.ReadAll(resp.Body)
	if err == nil {
		err = transport.DecodeCBOR(raw, &answers)
	}
	if err != nil || len(answers) != len(batch) {
		r.s.log.Warn("the leader's answer to agents' calls is cut off", "calls", len(calls), "answers", len(answers), "leader", leader.Name, "error", err)
		return nil, leaderSilent(leader)
	}
	return answers, nil
}

// answerRelay is the leader's end. A server asks for the agents whose certificates it has checked.
func (s *Server) answerRelay(ctx context.Context, raw []byte) ([]byte, error) {
	var calls []relayCall
	if err := transport.DecodeCBOR(raw, &calls); err != nil {
		return nil, err
	}
	if _, self, _ := s.cfg.Consensus.Leader(); !self {
		return nil, fsm.Refuse(fsm.CodeNoLeader, "leadership is changing hands").WithHint("try again in a moment")
	}
	if len(calls) > relayCalls {
		return nil, fsm.Refuse(fsm.CodeInvalid, "%d calls in one request; %d may be", len(calls), relayCalls)
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
		return relayAnswer{Problem: transport.NewProblem(err)}
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
	who := caller{Identity: transport.Identity{Cluster: via.Cluster, Role: transport.RoleAgent, Name: call.Agent}, via: via.Name}
	return c.answer(ctx, who, call.Body)
}
