package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
)

const (
	agentWait      = 5 * time.Second // for the answer of one agent
	agentsAtOnce   = 32              // agents asked at a time
	maxAgentAnswer = 16 << 20        // bytes of one answer
)

// questions limits how many questions this server asks all agents, or all servers, at once. One question costs a call
// to each of them. A subject has a share of the questions in progress or waiting. The users of the socket share one
// place of their own.
type questions struct {
	own          *places
	room, socket chan struct{}
}

func (s *Server) newQuestions(atOnce, own int) questions {
	return questions{own: newPlaces(ShareWatches, 0, own, s.cfg.Beyond), room: make(chan struct{}, atOnce),
		socket: make(chan struct{}, 1)}
}

// begin waits until the caller may ask. The caller must call done unless there is an error. Code: busy, if the caller
// has its share already, or if ctx ends before.
func (q *questions) begin(ctx context.Context) (done func(), _ error) {
	who := callerFrom(ctx).Subject
	release, err := q.own.take(who)
	if err != nil {
		return nil, model.Refuse(model.CodeBusy, "%s asks all machines already", who).
			WithHint("wait for the answer, or ask another server")
	}
	room := q.room
	if who.Kind == model.SubjectUID {
		room = q.socket
	}
	select {
	case room <- struct{}{}:
		return func() { <-room; release() }, nil
	case <-ctx.Done():
		release()
		return nil, model.Refuse(model.CodeBusy, "this server asks all machines for somebody else").
			WithHint("try again in a moment, or ask another server")
	}
}

// askEveryAgent makes an operation that asks all agents. The server that gets the request answers it. The function
// answer returns the answer and the index of the state that it shows.
func askEveryAgent[T any](s *Server, rt route, answer func(context.Context) (T, uint64)) operation {
	rt.allow, rt.run = forCLI, runHere
	handle := func(ctx context.Context, _ *struct{}) (*body[T], error) {
		done, err := s.asking.begin(ctx)
		if err != nil {
			return nil, asAnswer(err)
		}
		defer done()
		all, index := answer(ctx)
		return &body[T]{Index: decimal(index), Body: all}, nil
	}
	return operation{route: rt, register: func(a huma.API) { huma.Register(a, rt.huma(), handle) }}
}

// askAgents gets path from the agent of every node. It passes each answer to take, one at a time and in any order. It
// returns the sorted names of the nodes whose agents gave no valid answer. It takes at most agentWait for every
// agentsAtOnce nodes.
func askAgents[T any](ctx context.Context, s *Server, state *fsm.State, path string,
	take func(*fsm.Node, T)) (silent []string) {
	silent = []string{}
	nodes := []*fsm.Node{}
	for _, n := range state.Nodes.All() {
		nodes = append(nodes, n)
	}
	askEach(ctx, s, nodes, url.URL{Path: path}, agentsAtOnce, func(n *fsm.Node, answer T, err error) {
		if err == nil {
			take(n, answer)
			return
		}
		silent = append(silent, n.Name)
		if !errors.Is(err, &model.Error{Code: model.CodeAgentUnreachable}) { // callers only see that there is no answer
			s.log.Warn("can't use an agent's answer", "node", n.Name, "path", path, "error", err)
		}
	})
	slices.Sort(silent)
	return silent
}

// askEach gets a path from the agents of some nodes, at most atOnce at a time. It passes each answer or error to took,
// one at a time and in any order. It waits at most agentWait for one agent, and for none once ctx has ended.
func askEach[T any](ctx context.Context, s *Server, nodes []*fsm.Node, target url.URL, atOnce int,
	took func(*fsm.Node, T, error)) {
	workFrom(ctx).end() // waiting for agents must not keep the caller's turn
	var mu sync.Mutex
	var asked sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for _, n := range nodes {
		room <- struct{}{}
		asked.Go(func() {
			defer func() { <-room }()
			var answer T
			err := s.askAgentFor(ctx, agentWait, n, target, &answer)
			mu.Lock()
			defer mu.Unlock()
			took(n, answer, err)
		})
	}
	asked.Wait()
}

// askAgentFor gets a path from one agent and decodes the JSON into answer. It waits this long at most. Codes:
// agent_unreachable, too_large, and those of the agent. An error of the decoder is returned unchanged.
func (s *Server) askAgentFor(ctx context.Context, wait time.Duration, n *fsm.Node, target url.URL, answer any) error {
	return callAgent(ctx, s, wait, n, http.MethodGet, target, answer)
}

// callAgent is askAgentFor with any method.
func callAgent(ctx context.Context, s *Server, wait time.Duration, n *fsm.Node, method string, target url.URL,
	answer any) error {
	unreachable := model.Refuse(model.CodeAgentUnreachable, "the agent of node %s does not answer", n.Name)
	if n.Agent.APIAddress == "" || s.cfg.AgentTransport == nil {
		return unreachable
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	target.Scheme, target.Host = "https", n.Agent.APIAddress
	req, err := http.NewRequestWithContext(reach.ExpectPeer(ctx, n.Name), method, target.String(), http.NoBody)
	if err != nil {
		return unreachable
	}
	resp, err := s.cfg.AgentTransport.RoundTrip(req)
	if err != nil {
		return unreachable
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return api.ProblemOf(resp)
	}
	limited := &io.LimitedReader{R: resp.Body, N: maxAgentAnswer + 1}
	err = json.NewDecoder(limited).Decode(answer)
	if err != nil && limited.N == 0 {
		return model.Refuse(model.CodeTooLarge, "the answer is larger than %d bytes", maxAgentAnswer)
	}
	return err
}
