package httpapi

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/model"
)

// Verifier compares the states of the servers.
type Verifier interface {
	// Verify compares all servers now and writes nothing. It waits at most patience for servers that are behind.
	Verify(ctx context.Context, patience time.Duration) (Verification, error)
	// Differing lists the servers that an earlier comparison found to have another state than this one. It does not block.
	Differing() []DifferentState
}

// DifferentState is a server that had another state.
type DifferentState struct {
	Name  string         `json:"name"`
	ID    model.ServerID `json:"id"`
	Index uint64         `json:"index" doc:"at which the states were compared"`
	Time  time.Time      `json:"time" doc:"when that was"`
}

// Verification is a comparison of the states of all servers.
type Verification struct {
	Verdict string           `json:"verdict" enum:"equal,differs,undecided,incomplete" doc:"undecided: servers differ, and no state has a majority of the voters; incomplete: those that could be compared are equal"`
	Index   uint64           `json:"index" doc:"of the states that were compared"`
	Format  uint16           `json:"format" doc:"of these states"`
	Digest  string           `json:"digest" doc:"SHA-256 of the state that a majority of the voters has; empty: none has a majority"`
	Items   []VerifiedServer `json:"items"`
}

// VerifiedServer is one server of a Verification.
type VerifiedServer struct {
	Name    string         `json:"name"`
	ID      model.ServerID `json:"id"`
	Address string         `json:"address"`
	Voter   bool           `json:"voter"`
	Leader  bool           `json:"leader"`
	Version string         `json:"version"`
	Verdict string         `json:"verdict" enum:"equal,differs,behind,unreachable"`
	Index   uint64         `json:"index" doc:"of the state that was compared; the newest that it has where none was; 0: not known"`
	Digest  string         `json:"digest" doc:"empty where none was compared"`
	Detail  string         `json:"detail" doc:"why it was not compared, what in its state contradicts itself, or when it was found to differ"`
	Tables  []TableDiff    `json:"tables" doc:"that differ from those of the majority, or where none has one, from those of the server that was asked"`
}

// TableDiff is one table in which a server differs.
type TableDiff struct {
	Name           string `json:"name"`
	Rows           int    `json:"rows"`
	Digest         string `json:"digest"`
	ExpectedRows   int    `json:"expected_rows"`
	ExpectedDigest string `json:"expected_digest"`
}

type verifyInput struct {
	Wait string `query:"wait" doc:"how long to wait for servers that are behind, at most 60s; default 10s" example:"30s"`
}

const verifyWait = 10 * time.Second

// verifyOperations runs on the server that is asked: it must also tell when there is no leader, or when the leader is wrong.
func (s *Server) verifyOperations() []operation {
	rt := getRoute("verify-members", "/v1/members/verify", "members", "Compare the states of all servers; one that a majority contradicts stops by itself")
	rt.allow, rt.run = forCLI|forServer, runHere
	handle := func(ctx context.Context, in *verifyInput) (*body[Verification], error) {
		v, err := s.verify(ctx, in)
		if err != nil {
			return nil, asAnswer(err)
		}
		return &body[Verification]{Index: decimal(v.Index), Body: v}, nil
	}
	return []operation{{route: rt, register: func(a huma.API) { huma.Register(a, rt.huma(), handle) }}}
}

func (s *Server) verify(ctx context.Context, in *verifyInput) (Verification, error) {
	if s.cfg.Servers.Verifier == nil {
		return Verification{}, notOffered("comparisons of the servers")
	}
	patience := verifyWait
	if in.Wait != "" {
		var err error
		if patience, err = parseWait(in.Wait); err != nil {
			return Verification{}, err
		}
	}
	v, err := s.cfg.Servers.Verifier.Verify(ctx, patience)
	v.Items = notNil(v.Items)
	for i := range v.Items {
		v.Items[i].Tables = notNil(v.Items[i].Tables)
	}
	return v, err
}
