package httpapi

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
)

// Verifier compares the states of the servers.
type Verifier interface {
	// Verify compares the states of all servers now. It writes nothing. It waits for servers that lag, for at most the
	// duration patience.
	Verify(ctx context.Context, patience time.Duration) (api.Verification, error)
	// Differing lists the servers whose state differed from this server's when the two were last compared. It does not
	// block.
	Differing() []api.DifferentState
}

type verifyInput struct {
	Wait string `query:"wait" doc:"how long to wait for servers that are behind, at most 60s; default 10s" example:"30s"`
}

const verifyWait = 10 * time.Second

// verifyOperations returns the operation that compares the servers. The server that gets the request answers it,
// because the operation must also work without a leader, and when the leader's state is wrong.
func (s *Server) verifyOperations() []operation {
	rt := getRoute("verify-members", "/v1/members/verify", "members",
		"Compare the states of all servers; one that a majority contradicts stops by itself")
	rt.allow, rt.run = forCLI|forServer, runHere
	handle := func(ctx context.Context, in *verifyInput) (*body[api.Verification], error) {
		done, err := s.comparing.begin(ctx)
		if err != nil {
			return nil, asAnswer(err)
		}
		defer done()
		v, err := s.verify(ctx, in)
		if err != nil {
			return nil, asAnswer(err)
		}
		return &body[api.Verification]{Index: decimal(v.Index), Body: v}, nil
	}
	return []operation{{route: rt, register: func(a huma.API) { huma.Register(a, rt.huma(), handle) }}}
}

func (s *Server) verify(ctx context.Context, in *verifyInput) (api.Verification, error) {
	if s.cfg.Servers.Verifier == nil {
		return api.Verification{}, notOffered("comparisons of the servers")
	}
	patience := verifyWait
	if in.Wait != "" {
		var err error
		if patience, err = parseWait(in.Wait); err != nil {
			return api.Verification{}, err
		}
	}
	v, err := s.cfg.Servers.Verifier.Verify(ctx, patience)
	v.Items = notNil(v.Items)
	for i := range v.Items {
		v.Items[i].Tables = notNil(v.Items[i].Tables)
	}
	return v, err
}
