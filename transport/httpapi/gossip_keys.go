package httpapi

import (
	"context"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func gossipOperations(s *Server) []operation {
	return []operation{
		read(s, route{id: "list-gossip-keys", path: "/v1/trust/gossip-keys", tag: "trust", allow: forCLI,
			summary: "Show the keys that encrypt gossip, and how far their rotation is"},
			topics[gossipRead]("keys", "members", "holds"),
			func(_ context.Context, r *reading, _ *gossipRead) (api.GossipKeys, error) {
				return showGossipKeys(s, r)
			}),
		write(s, route{id: "rotate-gossip-key", path: "/v1/trust/gossip-keys/rotate", tag: "trust",
			summary: "Begin to replace the key that encrypts gossip, or show how far that is"}, rotateGossipKey(s)),
	}
}

type gossipRead struct{ ReadParams }

type rotateGossipInput struct {
	WriteParams
	Force bool `query:"force" doc:"don't wait for members that are off"`
}

// gossipOf returns what knows the gossip keys. Codes: not_supported, busy.
func gossipOf(s *Server, r *reading) (GossipKeys, error) {
	switch {
	case s.cfg.Gossip == nil:
		return nil, model.Refuse(model.CodeNotSupported,
			"the gossip key of this cluster is a file on each machine, so the cluster can't change it").
			WithHint("make one with: outspan gossip key create FILE; install it as the key_file of every server and agent, " +
				"then restart all of them")
	case !r.Managed():
		return nil, noCAYet()
	}
	return s.cfg.Gossip, nil
}

func showGossipKeys(s *Server, r *reading) (api.GossipKeys, error) {
	keys, err := gossipOf(s, r)
	if err != nil {
		return api.GossipKeys{}, err
	}
	return keys.GossipKeys(&r.State)
}

func rotateGossipKey(s *Server) change[rotateGossipInput, api.GossipRotateReply] {
	return change[rotateGossipInput, api.GossipRotateReply]{
		prepare: func(r *reading, _ *rotateGossipInput) ([]fsm.Command, error) {
			keys, err := gossipOf(s, r)
			if err != nil {
				return nil, err
			}
			return keys.RotateGossip(&r.State)
		},
		answer: func(o *outcome, in *rotateGossipInput) (reply api.GossipRotateReply, err error) {
			keys, err := gossipOf(s, o.reading)
			if err != nil {
				return reply, err
			}
			if in.Force && !o.DryRun {
				keys.ForceGossip(&o.State)
			}
			reply.Written, reply.Begun = o.Written, len(o.commands) > 0
			for _, row := range o.KeysOf(model.KeyGossip) {
				reply.Begun = reply.Begun || o.Replayed && row.CreatedIndex == o.Written.Index
			}
			reply.Gossip, err = keys.GossipKeys(&o.State)
			return reply, err
		},
	}
}
