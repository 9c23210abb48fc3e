package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// Keyring works on the keyrings of all servers. trust.Engine implements it. Its methods block until all servers have
// answered or failed, for at most about 20 s.
type Keyring interface {
	// Keyring returns the keys, and which servers have them.
	Keyring(context.Context) (api.Keyring, error)
	// RotateKeyring makes a new key. A dry run only asks which servers could take part.
	RotateKeyring(ctx context.Context, dryRun bool) (api.KeyringRotation, error)
}

type rotateInput struct {
	ActParams
	DryRun bool `query:"dry_run" doc:"ask which servers could take part, change nothing"`
}

// keyringOperations returns the operations on the keyrings. The leader answers them. The request id of a rotation is
// ignored: a repeated rotation makes another key, which does no harm.
func (s *Server) keyringOperations() []operation {
	look := getRoute("get-keyring", "/v1/keyring", "trust",
		"Show the keys that encrypt the state's keys, and which servers have them; each is asked")
	look.allow, look.run = forCLI, runLeader
	rotate := route{id: "rotate-keyring", method: http.MethodPost, path: "/v1/keyring/rotate", tag: "trust",
		summary: "Make a new key of the keyring, and encrypt the state's keys under it; every server must answer",
		allow:   forCLI, run: runLeader, write: true}
	return []operation{
		keyringOperation(s, look, func(ctx context.Context, _ *struct{}) (api.Keyring, error) {
			return s.cfg.Servers.Keyring.Keyring(ctx)
		}),
		keyringOperation(s, rotate, func(ctx context.Context, in *rotateInput) (api.KeyringRotation, error) {
			return s.cfg.Servers.Keyring.RotateKeyring(ctx, in.DryRun)
		}),
	}
}

func keyringOperation[I, O any](s *Server, rt route, do func(context.Context, *I) (O, error)) operation {
	handle := func(ctx context.Context, in *I) (*body[O], error) {
		if s.cfg.Servers.Keyring == nil {
			return nil, asAnswer(noKeyring())
		}
		if err := decodeBody(ctx, nil); err != nil {
			return nil, asAnswer(err)
		}
		ctx, cancel := context.WithTimeout(ctx, writeLimit)
		defer cancel()
		out, err := do(ctx, in)
		if err != nil {
			return nil, asAnswer(err)
		}
		return &body[O]{Index: decimal(s.cfg.Store.Current().Index), Body: out}, nil
	}
	return operation{route: rt, register: func(a huma.API) { huma.Register(a, rt.huma(), handle) }}
}

func noKeyring() *model.Error {
	return model.Refuse(model.CodeNotSupported, "this cluster does not make certificates itself, so it has no keyring").
		WithHint("its keys are in files: the CA's where outspan tls ca create made it, and gossip.key on each machine")
}
