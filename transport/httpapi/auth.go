package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

type roleList struct{ ListParams }

type bindingList struct{ ListParams }

type roleRead struct {
	ReadParams
	Name string `path:"name"`
}

type roleInput struct {
	WriteParams
	Name   string       `path:"name"`
	Input  api.RoleBody `json:"input"`
	before *rights.Book // set by prepare, for answer
}

func (in *roleInput) body() any { return &in.Input }

type roleRemoval struct {
	WriteParams
	Name string `path:"name"`
}

type rightsInput struct {
	WriteParams
	Input  api.RightsBody `json:"input"`
	before *rights.Book   // set by prepare, for answer
}

func (in *rightsInput) body() any { return &in.Input }

type bindingInput struct {
	WriteParams
	Input  api.BindingBody `json:"input"`
	before *rights.Book    // set by prepare, for answer
}

func (in *bindingInput) body() any { return &in.Input }

type whoamiRead struct{ ReadParams }

type canIRead struct {
	ReadParams
	Verb   string `query:"verb" required:"true" doc:"such as node.drain" example:"node.drain"`
	Object string `query:"object" doc:"such as node/n1, job/web, instance/ID or class/batch; default: on anything at all"`
	As     string `query:"as" doc:"another subject, such as cert:alice or token:ci; it takes the right auth.read"`

	Asks []string `query:"ask,explode" maxItems:"100" doc:"with job.submit and a job: what one group of it asks for, as LIST=NAME with a list of a role, such as ports=443; it may come several times" example:"ports=443"`
}

func authOperations(s *Server) []operation {
	roles := getRoute("list-roles", "/v1/roles", "auth", "List the roles, the built-in ones too")
	bindings := getRoute("list-bindings", "/v1/bindings", "auth", "List who has which role")
	roles.allow, bindings.allow = forCLI, forCLI
	get := getRoute("get-role", "/v1/roles/{name}", "auth", "Show a role")
	whoami := getRoute("whoami", "/v1/auth/whoami", "auth", "Show who the caller is, and what it may do")
	canI := getRoute("can-i", "/v1/auth/can-i", "auth", "Say whether the caller, or somebody else, may do something")
	get.allow, whoami.allow, canI.allow = forCLI, forCLI, forCLI
	return append(accessTokenOperations(s), []operation{
		list(s, roles, listing[roleList, api.Role]{topics: topics[roleList]("rights"), rows: listRoles}),
		read(s, get, topics[roleRead]("rights"), showRole),
		write(s, route{id: "set-role", method: http.MethodPut, path: "/v1/roles/{name}", tag: "auth",
			summary: "Make a role, or replace it"}, setRole()),
		write(s, route{id: "remove-role", method: http.MethodDelete, path: "/v1/roles/{name}", tag: "auth",
			summary: "Remove a role that nobody has"}, removeRole()),
		write(s, route{id: "set-rights", path: "/v1/auth/rights", tag: "auth",
			summary: "Make or replace several roles and give them, all or nothing"}, setRights()),
		list(s, bindings, listing[bindingList, api.Binding]{topics: topics[bindingList]("rights"), rows: listBindings}),
		write(s, route{id: "grant", path: "/v1/bindings", tag: "auth", summary: "Give a role to people or to a group"},
			changeBinding(true, grant)),
		write(s, route{id: "revoke-binding", path: "/v1/bindings/revoke", tag: "auth", summary: "Take a role away again"},
			changeBinding(false, takeAway)),
		read(s, whoami, topics[whoamiRead]("rights"), s.judge.whoami),
		read(s, canI, topics[canIRead]("rights"), s.judge.canI),
	}...)
}

func roleView(r rights.Role, index uint64) api.Role {
	return api.Role{Name: r.Name, Builtin: r.Name.IsBuiltin(), Allow: r.Allow, Index: index}
}

func listRoles(r *reading, _ *roleList, from string, yield func(string, api.Role) bool) error {
	all := map[string]api.Role{}
	for _, one := range rights.Builtin() {
		all[string(one.Name)] = roleView(one, 0)
	}
	for name, row := range r.Roles.All() {
		all[string(name)] = roleView(rights.Role{Name: row.Name, Allow: row.Allow}, row.Index)
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if name >= from && !yield(name, all[name]) {
			break
		}
	}
	return nil
}

// role returns a role. Code: not_found.
func (r *reading) role(name rights.RoleName) (api.Role, error) {
	for _, one := range rights.Builtin() {
		if one.Name == name {
			return roleView(one, 0), nil
		}
	}
	row, ok := r.Roles.Get(name)
	if !ok {
		return api.Role{}, model.Refuse(model.CodeNotFound, "there is no role %q", clip(string(name))).
			WithHint("list them with: outspan role ls")
	}
	return roleView(rights.Role{Name: row.Name, Allow: row.Allow}, row.Index), nil
}

func showRole(_ context.Context, r *reading, in *roleRead) (api.Role, error) {
	return r.role(rights.RoleName(in.Name))
}

func setRole() change[roleInput, api.RoleReply] {
	return change[roleInput, api.RoleReply]{
		prepare: func(r *reading, in *roleInput) ([]fsm.Command, error) {
			in.before = r.RightsBook()
			role := rights.Role{Name: rights.RoleName(in.Name), Allow: in.Input.Allow}
			if refusal := role.Check(); refusal != nil {
				return nil, refusal
			}
			return []fsm.Command{&fsm.RoleSet{Role: role}}, nil
		},
		answer: func(o *outcome, in *roleInput) (api.RoleReply, error) {
			reply := api.RoleReply{Written: o.Written, Changes: o.rightsChanges(in.before), Notes: rightsNotes(o.reading)}
			if role, err := o.role(rights.RoleName(in.Name)); err == nil {
				reply.Role = &role
			}
			return reply, nil
		},
	}
}

// maxRightsChanges bounds the roles and bindings that one request changes.
const maxRightsChanges = 500

func setRights() change[rightsInput, api.RightsReply] {
	return change[rightsInput, api.RightsReply]{
		prepare: func(r *reading, in *rightsInput) (commands []fsm.Command, _ error) {
			in.before = r.RightsBook()
			if n := len(in.Input.Roles) + len(in.Input.Bindings); n == 0 || n > maxRightsChanges {
				return nil, model.Refuse(model.CodeInvalid, "the request has %d roles and bindings", n).
					WithHint("send 1 to %d at once", maxRightsChanges)
			}
			made := map[rights.RoleName]bool{}
			for _, one := range in.Input.Roles {
				role := rights.Role{Name: one.Name, Allow: one.Allow}
				if refusal := role.Check(); refusal != nil {
					return nil, refusal
				}
				if made[role.Name] {
					return nil, model.Refuse(model.CodeInvalid, "the role %s comes twice", role.Name).WithHint("send each role once")
				}
				made[role.Name], commands = true, append(commands, &fsm.RoleSet{Role: role})
			}
			for _, b := range in.Input.Bindings {
				one, err := grantOf(r, b, made[b.Role])
				if err != nil {
					return nil, err
				}
				commands = append(commands, one)
			}
			return commands, nil
		},
		answer: func(o *outcome, in *rightsInput) (api.RightsReply, error) {
			v := api.RightsReply{Written: o.Written, Roles: []api.Role{}, Bindings: notNil(in.Input.Bindings),
				Changes: o.rightsChanges(in.before), Notes: rightsNotes(o.reading, in.Input.Bindings...)}
			for _, role := range in.Input.Roles {
				if one, err := o.role(role.Name); err == nil {
					v.Roles = append(v.Roles, one)
				}
			}
			return v, nil
		},
	}
}

func removeRole() change[roleRemoval, api.RoleReply] {
	return change[roleRemoval, api.RoleReply]{
		prepare: func(_ *reading, in *roleRemoval) ([]fsm.Command, error) {
			if name := rights.RoleName(in.Name); name.IsBuiltin() {
				return nil, model.Refuse(model.CodeInvalid, "the role %s is built in", name).
					WithHint("take it from people instead: outspan auth revoke %s WHO", name)
			}
			return []fsm.Command{&fsm.RoleRemove{Name: rights.RoleName(in.Name)}}, nil
		},
		answer: func(o *outcome, _ *roleRemoval) (api.RoleReply, error) {
			return api.RoleReply{Written: o.Written, Changes: []api.RightsChange{}}, nil // nobody had it
		},
	}
}

func listBindings(r *reading, _ *bindingList, from string, yield func(string, api.Binding) bool) error {
	if r.RightsIndex == 0 {
		for _, b := range r.BindingList() {
			yield(string(b.Role), api.Binding{Role: b.Role, To: b.To})
		}
		return nil
	}
	scan(r.Bindings, from, func(b *fsm.RightsBinding) api.Binding {
		return api.Binding{Role: b.Role, To: b.To, CreatedBy: b.Creator, Index: b.Index}
	}, yield)
	return nil
}

// grant returns the command that adds a binding. Codes: invalid; not_found if there is no such role.
func grant(r *reading, b api.BindingBody) (fsm.Command, error) { return grantOf(r, b, false) }

// grantOf is grant. made says that the request makes the role.
func grantOf(r *reading, b api.BindingBody, made bool) (fsm.Command, error) {
	one := rights.Binding{Role: b.Role, To: b.To}
	if refusal := one.Check(); refusal != nil {
		return nil, refusal
	}
	if _, err := r.role(b.Role); err != nil && !made {
		return nil, err
	}
	return &fsm.BindingAdd{Role: b.Role, To: b.To}, nil
}

func takeAway(_ *reading, b api.BindingBody) (fsm.Command, error) {
	return &fsm.BindingRemove{Role: b.Role, To: b.To}, nil
}

func changeBinding(gives bool, command func(*reading, api.BindingBody) (fsm.Command, error),
) change[bindingInput, api.BindingReply] {
	return change[bindingInput, api.BindingReply]{
		prepare: func(r *reading, in *bindingInput) ([]fsm.Command, error) {
			in.before = r.RightsBook()
			one, err := command(r, in.Input)
			if err != nil {
				return nil, err
			}
			return []fsm.Command{one}, nil
		},
		answer: func(o *outcome, in *bindingInput) (api.BindingReply, error) {
			var given []api.BindingBody
			if gives {
				given = append(given, in.Input)
			}
			return api.BindingReply{Written: o.Written, Changes: o.rightsChanges(in.before),
				Notes: rightsNotes(o.reading, given...)}, nil
		},
	}
}

// rightsChanges compares what known people may do now with a book from before. before is nil for a repeated request,
// which changed nothing.
func (r *reading) rightsChanges(before *rights.Book) []api.RightsChange {
	changes := []api.RightsChange{}
	if before == nil {
		return changes
	}
	after := r.RightsBook()
	for _, who := range r.knownPeople() {
		one := api.RightsChange{Subject: who.Subject.String(), Gains: []rights.Verb{}, Loses: []rights.Verb{}}
		was, is := before.For(who), after.For(who)
		for _, v := range rights.Verbs() {
			switch a, b := was.Reach(v.Verb), is.Reach(v.Verb); {
			case a < b:
				one.Gains = append(one.Gains, v.Verb)
			case a > b:
				one.Loses = append(one.Loses, v.Verb)
			case !was.Same(is, v.Verb):
				one.Differs = append(one.Differs, v.Verb)
			}
		}
		if was.MayAny(rights.SubmitJob) && is.MayAny(rights.SubmitJob) {
			one.Asks = askChanges(was.Asked(), is.Asked())
		}
		if len(one.Gains)+len(one.Loses)+len(one.Differs) > 0 {
			changes = append(changes, one)
		}
	}
	return changes
}

// askChanges compares what submitted jobs may ask for.
func askChanges(before, after map[string][]string) (all []api.AskChange) {
	for _, list := range rights.AskLists() {
		if !slices.Equal(before[list], after[list]) {
			all = append(all, api.AskChange{List: list, Before: notNil(before[list]), After: notNil(after[list])})
		}
	}
	return all
}

// maxChanged is how many people rightsChanges looks at: each costs a look at every verb and binding.
const maxChanged = 200

// knownPeople returns the people with certificates of the cluster that count, those whom bindings name, and the caller
// of a write, sorted; then the access tokens that count. It returns at most maxChanged of each.
func (r *reading) knownPeople() (all []rights.Caller) {
	names := []string{}
	for name, p := range r.People.All() {
		if !p.Everyone() && p.RevokedIndex == 0 {
			names = append(names, name)
		}
	}
	for _, b := range r.BindingList() {
		if name, ok := strings.CutPrefix(b.To, string(model.SubjectCert)+":"); ok && !strings.ContainsAny(name, `*?[\`) {
			names = append(names, name)
		}
	}
	if r.by.Kind == model.SubjectCert {
		names = append(names, r.by.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names[:min(len(names), maxChanged)] {
		all = append(all, rights.Caller{Subject: model.Subject{Kind: model.SubjectCert, Name: name}})
	}
	left := maxChanged
	for _, t := range r.AccessTokens.All() {
		if left == 0 {
			break
		}
		if t.CountsAt(r.wall.UnixNano()) {
			all = append(all, rights.Caller{Subject: t.Subject, Roles: t.Roles, Groups: t.Groups})
			left--
		}
	}
	return all
}
