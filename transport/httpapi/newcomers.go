package httpapi

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

type newcomerList struct{ ListParams }

type newcomerInput struct {
	WriteParams
	ID    string `path:"id" doc:"its subject, as in the list: server:s4 or agent:n4"`
	Input api.NewcomerBody

	key []byte // of the newcomer that prepare found
}

func (in *newcomerInput) body() any { return &in.Input }

func (s *Server) newcomerOperations() []operation {
	newcomers := getRoute("list-newcomers", "/v1/newcomers", "trust",
		"List the machines that wait until a person approves them")
	newcomers.allow = forCLI
	approve := func(n *fsm.Newcomer) fsm.Command {
		return &fsm.NewcomerApprove{Newcomer: n.Subject(), Key: n.Key(), Index: n.Index}
	}
	reject := func(n *fsm.Newcomer) fsm.Command {
		return &fsm.NewcomerReject{Newcomer: n.Subject(), Key: n.Key(), Index: n.Index}
	}
	return []operation{
		list(s, newcomers, listing[newcomerList, api.Newcomer]{topics: topics[newcomerList]("newcomers"),
			rows: listNewcomers}),
		write(s, route{id: "approve-newcomer", path: "/v1/newcomers/{id}/approve", tag: "trust",
			summary: "Let a newcomer join when it asks again"}, decideNewcomer("approve", approve)),
		write(s, route{id: "reject-newcomer", path: "/v1/newcomers/{id}/reject", tag: "trust",
			summary: "End the wait of a newcomer; it does not join"}, decideNewcomer("reject", reject)),
	}
}

func listNewcomers(r *reading, _ *newcomerList, from string, yield func(string, api.Newcomer) bool) error {
	if err := admits(r); err != nil {
		return err
	}
	for key, n := range r.Newcomers.From(from) {
		if !n.Over(&r.State, r.now) && !yield(key, r.newcomer(n)) {
			break
		}
	}
	return nil
}

func (r *reading) newcomer(n *fsm.Newcomer) api.Newcomer {
	who := n.Subject()
	v := api.Newcomer{Subject: who.String(), Kind: who.Kind, Name: who.Name, State: api.NewcomerWaiting,
		Key: model.Fingerprint(n.Key()), Token: n.Token, Address: n.Address, Version: n.Version, Since: r.wallAt(n.Since),
		Index: n.Index, DecidedBy: n.DecidedBy}
	if who.Kind == model.SubjectServer && len(n.Agent) > 0 {
		v.AgentKey = model.Fingerprint(n.Agent)
	}
	switch {
	case n.ApprovedIndex != 0:
		v.State = api.NewcomerApproved
	case n.RejectedIndex != 0:
		v.State = api.NewcomerRejected
	}
	return v
}

// decideNewcomer returns the change that approves or rejects a newcomer. verb is the word of the command line for it,
// which hints repeat: approve or reject.
func decideNewcomer(verb string, command func(*fsm.Newcomer) fsm.Command) change[newcomerInput, api.NewcomerReply] {
	return change[newcomerInput, api.NewcomerReply]{
		prepare: func(r *reading, in *newcomerInput) ([]fsm.Command, error) {
			if err := admits(r); err != nil {
				return nil, err
			}
			n, refusal := r.findNewcomer(in, verb)
			if refusal != nil {
				return nil, refusal
			}
			in.key = n.Key()
			return []fsm.Command{command(n)}, nil
		},
		answer: func(o *outcome, in *newcomerInput) (api.NewcomerReply, error) {
			reply := api.NewcomerReply{Written: o.Written}
			_, name, _ := strings.Cut(in.ID, ":")
			for _, n := range o.NewcomersNamed(name) {
				decided := max(n.ApprovedIndex, n.RejectedIndex)
				if decided != 0 && (slices.Equal(n.Key(), in.key) || in.key == nil && decided == o.Written.Index) {
					v := o.newcomer(n)
					reply.Newcomer = &v
				}
			}
			return reply, nil
		},
	}
}

// findNewcomer returns the newcomer that a request names. If the request has a key, the newcomer must have it. If
// several match, findNewcomer returns the only one that waits. Codes: invalid, not_found; ambiguous if several wait;
// conflict if the machine is a member already.
func (r *reading) findNewcomer(in *newcomerInput, verb string) (*fsm.Newcomer, *model.Error) {
	kind, name, _ := strings.Cut(in.ID, ":")
	who := model.Subject{Kind: model.SubjectKind(kind), Name: name}
	if who.Kind != model.SubjectServer && who.Kind != model.SubjectAgent {
		return nil, model.Refuse(model.CodeInvalid, "%q names no newcomer", clip(in.ID)).
			WithHint("write server:NAME, or agent:NAME for a machine without a server")
	}
	var waiting, decided []*fsm.Newcomer
	other := ""
	for _, n := range r.NewcomersNamed(name) {
		switch {
		case n.Over(&r.State, r.now):
		case n.Subject() != who:
			other = n.Subject().String()
		case in.Input.Key != "" && !strings.EqualFold(in.Input.Key, model.Fingerprint(n.Key())):
		case n.ApprovedIndex+n.RejectedIndex == 0:
			waiting = append(waiting, n)
		default:
			decided = append(decided, n)
		}
	}
	switch {
	case len(waiting) > 1:
		return nil, model.Refuse(model.CodeAmbiguous, "%d machines with different keys wait as %s", len(waiting), who).
			WithHint("compare the keys: outspan token waiting; then: outspan %s %s %s --key KEY", nounOf(who.Kind), verb, name)
	case len(waiting) == 1:
		return waiting[0], nil
	case len(decided) > 0: // fsm refuses the command, and the refusal says who has decided
		return decided[0], nil
	}
	return nil, r.noNewcomer(who, other, in.Input.Key, verb)
}

// noNewcomer returns the refusal if no newcomer has the subject who. other is the subject of a newcomer with the same
// name and another kind, or empty.
func (r *reading) noNewcomer(who model.Subject, other, key, verb string) *model.Error {
	m, member := r.TrustMemberOf(who)
	switch {
	case key != "":
		return model.Refuse(model.CodeNotFound, "no newcomer %s with the key %s waits", clip(who.String()), clip(key)).
			WithHint("compare the keys: outspan token waiting")
	case other != "":
		kind, _, _ := strings.Cut(other, ":")
		return model.Refuse(model.CodeNotFound, "%s waits as %s, not as %s", who.Name, other, who).
			WithHint("write: outspan %s %s %s", nounOf(model.SubjectKind(kind)), verb, who.Name)
	case member && m.RevokedIndex == 0:
		return model.Refuse(model.CodeConflict, "%s is a member already", who).
			WithHint("to throw it out: outspan %s revoke %s", nounOf(who.Kind), who.Name)
	case !r.Settings.JoinApproval:
		return model.Refuse(model.CodeNotFound, "no newcomer %s waits: join_approval is off", clip(who.String())).
			WithHint("to hold newcomers from now on: outspan settings set join_approval=true")
	}
	return model.Refuse(model.CodeNotFound, "no newcomer %s waits", clip(who.String())).
		WithHint("those that wait: outspan token waiting; on the new machine: outspan join")
}

// nounOf returns the noun of the command line for members of a kind.
func nounOf(kind model.SubjectKind) string {
	if kind == model.SubjectServer {
		return "server"
	}
	return "node"
}

// newcomers adds a problem for each newcomer that waits until a person approves it.
func (p *problems) newcomers() {
	for _, n := range p.r.Newcomers.All() {
		if n.Over(&p.r.State, p.r.now) || n.ApprovedIndex+n.RejectedIndex != 0 {
			continue
		}
		who := n.Subject()
		noun := nounOf(who.Kind)
		p.add(api.ProblemNewcomerWaiting, noun+"/"+who.Name, "compare the key on that machine, then: outspan "+noun+
			" approve "+who.Name, "it waits until a person approves it, with the key %s", model.Fingerprint(n.Key()))
	}
}
