package httpapi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

type trustList struct{ ListParams }

type revokeNodeInput struct {
	WriteParams
	NodePath
	Input api.RevokeBody
}

func (in *revokeNodeInput) body() any { return &in.Input }

type revokeServerInput struct {
	WriteParams
	MemberPath
	Unknown bool `query:"unknown" doc:"revoke a server that the servers don't know, as after a recovery"`
	Force   bool `json:",omitempty" query:"force" doc:"first remove the server from the cluster, if it is still in it; refused where quorum would be lost, and for the leader; a dry run does not check the removal"`
	Input   api.RevokeBody

	removed bool // by prepare, for answer
}

func (in *revokeServerInput) body() any { return &in.Input }

func (s *Server) trustOperations() []operation {
	members := getRoute("list-trust-members", "/v1/trust/members", "trust",
		"List the servers and agents that join tokens admitted")
	members.allow = forCLI
	return slices.Concat([]operation{
		list(s, members, listing[trustList, api.TrustMember]{topics: topics[trustList]("members"), rows: listTrust}),
		write(s, nodeRoute("revoke", "Revoke a node's agent: none of its certificates counts any more"), revokeNode()),
		write(s, route{id: "revoke-member", path: "/v1/members/{id}/revoke", tag: "members",
			summary: "Revoke a server that does not vote: none of its certificates counts any more"}, s.revokeServer()),
	}, certificateOperations(s), gossipOperations(s), keyringOperations(s), authOperations(s))
}

func listTrust(r *reading, _ *trustList, from string, yield func(string, api.TrustMember) bool) error {
	if err := admits(r); err != nil {
		return err
	}
	scan(r.TrustMembers, from, trustMember, yield)
	return nil
}

func trustMember(m *fsm.TrustMember) api.TrustMember {
	return api.TrustMember{
		Subject: m.Subject.String(), Kind: m.Subject.Kind, Name: m.Subject.Name, Token: m.Token, IssuedIndex: m.IssuedIndex,
		NotAfter: time.UnixMilli(m.NotAfter).UTC().Truncate(time.Second), Revoked: m.RevokedIndex != 0,
		RevokedIndex: m.RevokedIndex, Reason: m.Reason,
	}
}

func revokeNode() change[revokeNodeInput, api.RevokeReply] {
	return change[revokeNodeInput, api.RevokeReply]{
		prepare: func(r *reading, in *revokeNodeInput) ([]fsm.Command, error) {
			if err := admits(r); err != nil {
				return nil, err
			}
			who := agentOf(&r.State, in.ID)
			_, refusal := r.NamedNode(in.ID)
			if refusal != nil && !(isMember(&r.State, who) && r.Sees("node/"+who.Name)) {
				return nil, refusal
			}
			return []fsm.Command{&fsm.MemberRevoke{Subject: who, Reason: in.Input.Reason}}, nil
		},
		answer: func(o *outcome, in *revokeNodeInput) (api.RevokeReply, error) {
			return o.revokeReply(agentOf(&o.State, in.ID)), nil
		},
	}
}

// agentOf returns the agent that ref names: by the name of its node, which may not be registered, or by the node's id.
func agentOf(s *fsm.State, ref string) model.Subject {
	who := model.Subject{Kind: model.SubjectAgent, Name: ref}
	if isMember(s, who) {
		return who
	}
	if n, ok := s.NodeCalled(ref); ok {
		who.Name = n.Name
	}
	return who
}

func isMember(s *fsm.State, who model.Subject) bool {
	_, ok := s.TrustMemberOf(who)
	return ok
}

// revokeServer refuses to revoke a server that votes and is alive, unless in.Force says so. The other servers would
// stop talking to it at once, although they still need it for a majority. It removes the server from the cluster first,
// so that nothing waits for it once gossip has forgotten its name. Without in.Force, a removal that is refused does not
// hold up the revocation.
func (s *Server) revokeServer() change[revokeServerInput, api.RevokeReply] {
	return change[revokeServerInput, api.RevokeReply]{
		prepare: func(r *reading, in *revokeServerInput) ([]fsm.Command, error) {
			if err := admits(r); err != nil {
				return nil, err
			}
			servers, err := s.servers()
			if err != nil {
				return nil, err
			}
			who, refusal := serverOf(&r.State, servers, in.ID)
			if refusal != nil && !in.Unknown {
				return nil, refusal.WithHint("%s; if the servers lost what they knew of it: outspan server revoke %s --unknown",
					refusal.Hint, clip(in.ID))
			}
			servers = slices.DeleteFunc(servers, func(m ServerEntry) bool { return m.Name != who.Name })
			if err := mayRevoke(servers, in.Force); err != nil {
				return nil, err
			}
			if !in.DryRun {
				in.removed, err = takeOut(s.cfg.Servers.Ops, servers)
				if err != nil && in.Force {
					return nil, err
				}
			}
			return []fsm.Command{&fsm.MemberRevoke{Subject: who, Reason: in.Input.Reason}}, nil
		},
		answer: func(o *outcome, in *revokeServerInput) (api.RevokeReply, error) {
			servers, err := s.servers()
			if err != nil {
				return api.RevokeReply{}, err
			}
			who, _ := serverOf(&o.State, servers, in.ID) // a server that is not known any more has no row to show
			reply := o.revokeReply(who)
			reply.Removed = in.removed
			return reply, nil
		},
	}
}

// mayRevoke refuses to revoke servers of one name if one of them leads, or votes and is alive. force says that they are
// removed first. The leader is refused then too: it could not finish the revocation. Code: conflict.
func mayRevoke(servers []ServerEntry, force bool) error {
	for _, m := range servers {
		alive := m.State == api.MemberAlive || m.State == string(fsm.GossipSuspect)
		switch {
		case force && m.Leader:
			return model.Refuse(model.CodeConflict, "server %s leads, so it can't be removed and revoked", m.Name).
				WithHint("let another server lead first: outspan server transfer-leader")
		case !force && m.Voter && alive:
			return model.Refuse(model.CodeConflict, "server %s votes and is alive", m.Name).
				WithHint("take it out of the cluster first: outspan server remove %s, then outspan server revoke %s; both at "+
					"once: outspan server revoke %s --force", m.ID, m.Name, m.Name)
		}
	}
	return nil
}

// takeOut removes servers from the cluster, with the checks of MemberOps.Remove. It skips those that were removed
// before, so an interrupted call can be repeated. It blocks for at most writeLimit. Codes: not_supported, and those of
// MemberOps.Remove.
func takeOut(ops MemberOps, servers []ServerEntry) (removed bool, err error) {
	if ops == nil {
		return false, notOffered("changes of membership")
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeLimit)
	defer cancel()
	for _, m := range servers {
		err := ops.Remove(ctx, m.ID, false)
		if e := (*model.Error)(nil); errors.As(err, &e) && e.Code == model.CodeNotFound {
			continue
		}
		if err != nil {
			return false, err
		}
		removed = true
	}
	return removed, nil
}

// servers returns all servers that this one knows. It blocks for at most writeLimit. Code: not_supported.
func (s *Server) servers() ([]ServerEntry, error) {
	if s.cfg.Servers.List == nil {
		return nil, notOffered("members")
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeLimit)
	defer cancel()
	return s.cfg.Servers.List.Members(ctx)
}

// serverOf returns the server that ref names: by its name, also after it has left, or by the id of a server in the
// list. Code: not_found.
func serverOf(s *fsm.State, servers []ServerEntry, ref string) (model.Subject, *model.Error) {
	who := model.Subject{Kind: model.SubjectServer, Name: ref}
	if isMember(s, who) {
		return who, nil
	}
	var near []string
	for _, m := range servers {
		switch {
		case m.Name == ref:
			return who, nil
		case string(m.ID) == ref && m.Name != "":
			who.Name = m.Name
			return who, nil
		case ref != "" && strings.HasPrefix(m.Name, ref):
			near = append(near, m.Name)
		}
	}
	return who, model.NoSuch("server", clip(ref), near)
}

func (o *outcome) revokeReply(who model.Subject) api.RevokeReply {
	reply := api.RevokeReply{Written: o.Written, Files: !o.Managed()}
	if m, ok := o.TrustMemberOf(who); ok {
		v := trustMember(m)
		reply.Member = &v
		if t, ok := o.JoinTokens.Get(m.Token); ok && m.RevokedIndex != 0 && t.RevokedIndex == m.RevokedIndex {
			reply.Token = t.ID
		}
	}
	return reply
}
