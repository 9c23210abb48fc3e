package httpapi

import (
	"context"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
)

// CARotation replaces the CA of the cluster. trust.Engine implements it. Its methods don't block.
type CARotation interface {
	// CAStatus says which CAs a state has, and how far a rotation has come.
	CAStatus(*fsm.State) (api.CA, error)
	// RotateCA returns the commands that begin a rotation, or that leave members behind; none if nothing is to be done.
	RotateCA(*fsm.State, api.RotateCABody) ([]fsm.Command, error)
}

type caRead struct{ ReadParams }

type rotateCAInput struct {
	WriteParams
	Input api.RotateCABody
}

func (in *rotateCAInput) body() any { return &in.Input }

func (s *Server) caOperations() []operation {
	status := getRoute("get-ca", "/v1/ca", "trust", "Show the CAs, and how far the replacement of one by another has come")
	status.allow = forCLI
	return []operation{
		read(s, status, topics[caRead]("keys", "members", "holds"),
			func(_ context.Context, r *reading, _ *caRead) (api.CA, error) { return s.ca(r) }),
		write(s, route{id: "rotate-ca", path: "/v1/ca/rotate", tag: "trust",
			summary: "Replace the CA, or leave members behind that a replacement waits for"},
			change[rotateCAInput, api.CAReply]{
				prepare: func(r *reading, in *rotateCAInput) ([]fsm.Command, error) {
					if s.cfg.CA == nil || !r.Managed() {
						_, err := s.ca(r)
						return nil, err
					}
					return s.cfg.CA.RotateCA(&r.State, in.Input)
				},
				answer: func(o *outcome, _ *rotateCAInput) (api.CAReply, error) {
					ca, err := s.ca(o.reading)
					return api.CAReply{Written: o.Written, CA: &ca}, err
				},
			}),
	}
}

// ca returns the CAs of a reading. Codes: not_supported if the cluster makes no certificates; busy if it has just
// begun.
func (s *Server) ca(r *reading) (api.CA, error) {
	switch {
	case s.cfg.CA == nil:
		return api.CA{}, notManaged()
	case !r.Managed():
		return api.CA{}, noCAYet()
	}
	return s.cfg.CA.CAStatus(&r.State)
}
