package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// ServerEntry is a server in a ServerList.
type ServerEntry struct {
	api.Member
	Own     MemberOwn
	Listens []string // host:port of its listeners; sent to agents in transport.RegisterReply
	Claimed bool     // only gossip knows it, and may be wrong; agents are not told of it
}

// shown returns the parts of a list of servers that the API shows.
func shown(entries []ServerEntry) []api.Member {
	members := make([]api.Member, len(entries))
	for i, e := range entries {
		members[i] = e.Member
	}
	return members
}

// MemberOwn is what a server reports of itself. The API does not show it, but some problems in the status follow from
// it.
type MemberOwn struct {
	DataDir     string
	Expect      int       // bootstrap_expect
	Saved       time.Time // when a snapshot was last saved from this server; zero means never
	Certificate transport.Lifetime
	Agents      map[string]transport.Lifetime // certificates near their end, by the name of the agent that uses them
	Copies      []transport.Copy              // agents whose identity two machines use
	Audit       string                        // why its audit log can't be written, or ""
	AuditMode   string                        // such as "on, required"; empty if it is not known
	SignIn      string                        // why nobody can sign in through it, or ""
}

func diskText(m *ServerEntry) string {
	if m.TotalBytes == 0 {
		return "how much is free is not known"
	}
	return fmt.Sprintf("%d of %d MiB are free", m.FreeBytes>>20, m.TotalBytes>>20)
}

// lookAtDisk returns advice for a server whose disk is full or nearly full.
func lookAtDisk(m *ServerEntry) string {
	dir := m.Own.DataDir
	if dir == "" {
		dir = "DATA_DIR"
	}
	return "free space on that server, and it continues by itself; to see what is used, run there: df -h " + dir
}

type memberList struct{ ListParams }

// MemberPath is the part of a path that names a server.
type MemberPath struct {
	ID string `path:"id" doc:"id or name"`
}

type joinInput struct {
	ActParams
	Input api.JoinBody `json:"input"`
}

func (in *joinInput) body() any { return &in.Input }

// ActParams are the parameters of every operation that changes the servers.
type ActParams struct {
	RequestID string `query:"request_id" maxLength:"64"`
}

type memberInput struct {
	ActParams
	MemberPath
}

func (in *memberInput) body() any { return nil }

type removeInput struct {
	ActParams
	MemberPath
	Force bool `query:"force" doc:"also where quorum would be lost"`
}

func (in *removeInput) body() any { return nil }

type transferInput struct {
	ActParams
	Input api.TransferBody `json:"input"`
}

func (in *transferInput) body() any { return &in.Input }

func (s *Server) memberOperations() []operation {
	return []operation{
		list(s, getRoute("list-members", "/v1/members", "members", "List the servers"), listing[memberList, api.Member]{
			topics: topics[memberList]("settings"), rows: s.listMembers,
		}),
		act(s,
			memberRoute("join", http.MethodPost, "/v1/members/join",
				"Make this server contact another one at its gossip address; the leader then adds the other server"),
			func(ctx context.Context, in *joinInput) error {
				if in.Input.Address == "" {
					return model.Refuse(model.CodeInvalid, "address is missing").WithHint(`send {"address":"10.0.0.4:7642"}`)
				}
				return s.cfg.Servers.Ops.Join(ctx, in.Input.Address)
			}),
		act(s, memberRoute("promote", http.MethodPost, "/v1/members/{id}/promote", "Let a server vote"),
			func(ctx context.Context, in *memberInput) error {
				return s.onMember(ctx, in.ID, s.cfg.Servers.Ops.Promote)
			}),
		act(s, memberRoute("remove", http.MethodDelete, "/v1/members/{id}", "Remove a server"),
			func(ctx context.Context, in *removeInput) error {
				return s.onMember(ctx, in.ID, func(ctx context.Context, id model.ServerID) error {
					return s.cfg.Servers.Ops.Remove(ctx, id, in.Force)
				})
			}),
		act(s, memberRoute("transfer-leader", http.MethodPost, "/v1/members/transfer-leader",
			"Hand leadership to another server"), s.transferLeader),
	}
}

func memberRoute(id, method, path, summary string) route {
	rt := route{id: id + "-member", method: method, path: path, tag: "members", summary: summary, run: runLeader}
	if id == "join" {
		rt.run = runHere
	}
	return rt
}

func (s *Server) listMembers(_ *reading, _ *memberList, from string, yield func(string, api.Member) bool) error {
	members, err := s.servers()
	if err != nil {
		return err
	}
	for _, m := range members {
		if string(m.ID) >= from && !yield(string(m.ID), m.Member) {
			break
		}
	}
	return nil
}

func notOffered(what string) error {
	return model.Refuse(model.CodeNotSupported, "this server does not offer %s", what)
}

func (s *Server) transferLeader(ctx context.Context, in *transferInput) error {
	if in.Input.To == "" {
		return s.cfg.Servers.Ops.TransferLeader(ctx, "")
	}
	return s.onMember(ctx, in.Input.To, s.cfg.Servers.Ops.TransferLeader)
}

// onMember calls do for the server with the given id or unique name. Codes: not_supported, not_found, ambiguous
// (several servers have the name).
func (s *Server) onMember(ctx context.Context, ref string, do func(context.Context, model.ServerID) error) error {
	if s.cfg.Servers.List == nil {
		return notOffered("members")
	}
	members, err := s.cfg.Servers.List.Members(ctx)
	if err != nil {
		return err
	}
	var near, ids []string
	for _, m := range members {
		if string(m.ID) == ref {
			return do(ctx, m.ID)
		}
		if m.Name == ref {
			ids = append(ids, string(m.ID))
		}
		if ref != "" && (strings.HasPrefix(m.Name, ref) || strings.HasPrefix(string(m.ID), ref)) {
			near = append(near, m.Name)
		}
	}
	switch len(ids) {
	case 0:
		return model.NoSuch("server", clip(ref), near)
	case 1:
		return do(ctx, model.ServerID(ids[0]))
	}
	return model.Refuse(model.CodeAmbiguous, "%d servers have the name %s", len(ids), clip(ref)).
		WithHint("name one by its id: %s", strings.Join(ids, ", "))
}

// bodied is an input that may have a JSON body.
type bodied[I any] interface {
	*I
	body() any
}

// act makes an operation that changes the servers themselves and writes no entry. It runs on the leader, except for
// join, which runs on the server that gets the request. The answer lists the current members. The request id is
// ignored, because repeating the operation does no harm.
func act[I any, P bodied[I]](s *Server, rt route, do func(context.Context, *I) error) operation {
	rt.write, rt.allow = true, forCLI
	handle := func(ctx context.Context, in *I) (*body[api.MemberReply], error) {
		reply, err := s.act(ctx, P(in).body(), func(ctx context.Context) error { return do(ctx, in) })
		if err != nil {
			return nil, asAnswer(err)
		}
		return &body[api.MemberReply]{Index: decimal(reply.Index), Body: reply}, nil
	}
	into := P(new(I)).body()
	return operation{route: rt, register: func(a huma.API) {
		op := rt.huma()
		if into != nil {
			op.RequestBody = bodyDocument(a, elemType(into))
		}
		huma.Register(a, op, handle)
	}}
}

func (s *Server) act(ctx context.Context, into any, do func(context.Context) error) (api.MemberReply, error) {
	if err := decodeBody(ctx, into); err != nil {
		return api.MemberReply{}, err
	}
	if s.cfg.Servers.Ops == nil || s.cfg.Servers.List == nil {
		return api.MemberReply{}, notOffered("changes of membership")
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	if err := do(ctx); err != nil {
		return api.MemberReply{}, err
	}
	members, err := s.cfg.Servers.List.Members(ctx)
	if err != nil {
		return api.MemberReply{}, err
	}
	state, _ := s.cfg.Store.Watch()
	return api.MemberReply{Items: shown(members), Index: state.Index}, nil
}
