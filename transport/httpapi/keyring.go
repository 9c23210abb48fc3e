package httpapi

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Keyring works on the keyrings of all servers. trust.Engine implements it. Its methods block until all servers have
// answered or failed, for at most about 20 s.
type Keyring interface {
	// Keyring returns the keys, and which servers have them.
	Keyring(context.Context) (api.Keyring, error)
	// RotateKeyring makes a new key. The events name by. A dry run only asks which servers could take part.
	RotateKeyring(ctx context.Context, by model.Actor, dryRun bool) (api.KeyringRotation, error)
	// PruneKeyring removes keys that no server needs any more. A dry run only says which.
	PruneKeyring(ctx context.Context, dryRun bool) (api.KeyringPruning, error)
}

type exportedInput struct {
	WriteParams
	Input api.ExportedBody
}

func (in *exportedInput) body() any { return &in.Input }

type rotateInput struct {
	ActParams
	DryRun bool `query:"dry_run" doc:"ask which servers could take part, change nothing"`
}

type pruneInput struct {
	ActParams
	DryRun bool `query:"dry_run" doc:"say which keys would be removed, change nothing"`
}

// keyringOperations returns the operations on the keyrings. The leader answers them. The request ids of a rotation and
// of a pruning are ignored: a repeated rotation makes another key, which does no harm.
func keyringOperations(s *Server) []operation {
	look := getRoute("get-keyring", "/v1/keyring", "trust",
		"Show the keys that encrypt the state's keys, and which servers have them; each is asked")
	look.allow, look.run = forCLI, runLeader
	rotate := route{id: "rotate-keyring", method: http.MethodPost, path: "/v1/keyring/rotate", tag: "trust",
		summary: "Make a new key of the keyring, and encrypt the state's keys under it; every server must answer",
		allow:   forCLI, run: runLeader, write: true}
	prune := route{id: "prune-keyring", method: http.MethodPost, path: "/v1/keyring/prune", tag: "trust",
		summary: "Remove keys of the keyring that no state and no snapshot of a server needs; every server must answer",
		allow:   forCLI, run: runLeader, write: true}
	return []operation{
		keyringOperation(s, look, func(ctx context.Context, _ *struct{}) (api.Keyring, error) {
			return s.cfg.Servers.Keyring.Keyring(ctx)
		}),
		keyringOperation(s, rotate, func(ctx context.Context, in *rotateInput) (api.KeyringRotation, error) {
			return s.cfg.Servers.Keyring.RotateKeyring(ctx, callerFrom(ctx).Actor(), in.DryRun)
		}),
		keyringOperation(s, prune, func(ctx context.Context, in *pruneInput) (api.KeyringPruning, error) {
			return s.cfg.Servers.Keyring.PruneKeyring(ctx, in.DryRun)
		}),
		write(s, route{id: "keyring-exported", path: "/v1/keyring/exported", tag: "trust",
			summary: "Record that an export of the keyring has these keys; outspan server keyring export calls it"},
			keyringExported()),
	}
}

func keyringExported() change[exportedInput, api.Written] {
	return change[exportedInput, api.Written]{
		prepare: func(r *reading, in *exportedInput) (group []fsm.Command, err error) {
			if !r.Managed() {
				return nil, noKeyring()
			}
			for _, row := range r.KeysOf(model.KeyData) {
				if slices.Contains(in.Input.Keys, row.Under) {
					group = append(group, &fsm.KeyringExported{Name: row.Name, Under: row.Under})
				}
			}
			if len(group) == 0 {
				return nil, model.Refuse(model.CodeNotFound, "the export has no key that the state needs").
					WithHint("export the keyring of a server of this cluster; see: outspan server keyring ls")
			}
			return group, nil
		},
		answer: func(o *outcome, _ *exportedInput) (api.Written, error) { return o.Written, nil },
	}
}

// keyring adds a problem if no export of the key that encrypts the active data key is known. In a cluster that has
// never rotated its keyring, it does so only once the cluster is older than backupAge.
func (p *problems) keyring() {
	row, ok := p.r.ActiveKey(model.KeyData)
	if !ok || row.Exported != 0 {
		return
	}
	const next = "on a server: outspan server keyring export --data-dir DIR --passphrase-file - FILE"
	_, n, _ := row.Name.Split() // a rotation makes another data key
	switch {
	case n > 1:
		p.add(api.ProblemKeyring, "cluster", next,
			"the keyring was not exported since its rotation: new snapshots are of no use without its key %s", row.Under)
	case p.old():
		p.add(api.ProblemKeyring, "cluster", next, "no export of the keyring is known: snapshots are of no use without it")
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
