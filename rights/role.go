package rights

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/outspan/outspan/model"
)

// Bounds of roles and bindings.
const (
	maxGrants   = 64
	maxPatterns = 64 // in one list of a Grant
	maxRoleName = 64
	maxTo       = 256 // bytes of a binding's To
)

// RoleName is the name of a Role.
type RoleName string

// The built-in roles. They can't be changed.
const (
	Viewer   RoleName = "viewer"
	Operator RoleName = "operator"
	Deployer RoleName = "deployer"
	Admin    RoleName = "admin"
)

// Role is a named list of grants. A role allows what any of its grants allows.
type Role struct {
	Name  RoleName `json:"name" cbor:"1,keyasint"`
	Allow []Grant  `json:"allow" cbor:"2,keyasint"`
}

// Grant allows verbs. Each list of names restricts it to things that have such a name: a Grant with Jobs covers a verb
// about jobs, instances or volumes if the job's name matches one of the patterns, and covers no other verb. A nil list
// restricts nothing. In JSON, a list that is given and empty stays apart from one that is absent, for Role.Check.
type Grant struct {
	Verbs   []VerbPattern `json:"verbs" cbor:"1,keyasint"`
	Jobs    []string      `json:"jobs,omitzero" cbor:"2,keyasint,omitempty"`
	Nodes   []string      `json:"nodes,omitzero" cbor:"3,keyasint,omitempty"`
	Classes []string      `json:"classes,omitzero" cbor:"4,keyasint,omitempty"`
	// What submitted jobs may ask for; see askLists. All that one group of a job asks for must be allowed by one Grant.
	// Nil Users allow no user: a job that names none asks for none. The other lists restrict nothing if they are nil.
	// Users also restrict instance.exec: a command runs as the user of its instance's program.
	Users       []string `json:"users,omitzero" cbor:"5,keyasint,omitempty"`        // as which programs and commands run
	VolumePaths []string `json:"volume_paths,omitzero" cbor:"6,keyasint,omitempty"` // and all paths below them
	Ports       []string `json:"ports,omitzero" cbor:"7,keyasint,omitempty"`        // static and exposed: "8000-8999"
	Services    []string `json:"services,omitzero" cbor:"8,keyasint,omitempty"`     // names of services
	Budgets     []string `json:"budgets,omitzero" cbor:"9,keyasint,omitempty"`      // shared ones
}

// Builtin returns the roles that every cluster has. The result is the caller's.
func Builtin() []Role {
	return []Role{
		{Viewer, []Grant{{Verbs: []VerbPattern{"node.read", "instance.read", "volume.read", "budget.read", "class.read",
			"settings.read", "event.read", "server.read"}}}},
		{Operator, []Grant{
			{Verbs: []VerbPattern{"node.*", "instance.read", "instance.logs", "instance.restart", "instance.stop",
				"instance.evict", "volume.*", "budget.*", "class.*", "cluster.*", "settings.read", "event.read", "server.read",
				"trust.read", "job.read", "job.plan", "job.scale", "job.restart"}}, // what runs is not theirs to enter
		}},
		{Deployer, []Grant{{Verbs: []VerbPattern{"job.*", "instance.*", "volume.read", "node.read", "budget.read",
			"class.read", "settings.read", "event.read", "server.read"}}}},
		{Admin, []Grant{{Verbs: []VerbPattern{"*"}, Users: []string{"*"}}}},
	}
}

// IsBuiltin reports whether a name is that of a built-in role.
func (n RoleName) IsBuiltin() bool {
	return n == Viewer || n == Operator || n == Deployer || n == Admin
}

// Check refuses a role that can't be stored, lists that are given and empty, and verbs and names that this version of
// the program does not know. The
// error's key names the grant. Code: invalid.
func (r *Role) Check() *model.Error {
	if r.Name.IsBuiltin() {
		return model.Refuse(model.CodeInvalid, "the role %s is built in", r.Name).WithHint("give your role another name")
	}
	return r.check((*Grant).check)
}

// CheckShape refuses a role that can't be stored. Each version of the program gives the same answer. Code: invalid.
func (r *Role) CheckShape() *model.Error { return r.check((*Grant).checkShape) }

func (r *Role) check(grant func(*Grant) *model.Error) *model.Error {
	switch {
	case !validRoleName(r.Name):
		return model.Refuse(model.CodeInvalid, "%q is no name of a role", model.ClipText(string(r.Name), 100)).
			WithHint("write 1 to %d small letters, digits and -, beginning with a letter", maxRoleName)
	case len(r.Allow) == 0 || len(r.Allow) > maxGrants:
		return model.Refuse(model.CodeInvalid, "the role %s has %d grants", r.Name, len(r.Allow)).
			WithHint("write 1 to %d blocks allow { }", maxGrants)
	}
	for i := range r.Allow {
		if refusal := grant(&r.Allow[i]); refusal != nil {
			refusal.Key = model.KeyPath("role", string(r.Name), fmt.Sprintf("allow[%d]", i))
			return refusal
		}
	}
	return nil
}

func validRoleName(name RoleName) bool {
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z'
		if !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return name != "" && len(name) <= maxRoleName
}

// GrantList is one of the lists of a Grant.
type GrantList struct {
	Name     string // of the key in role files
	Patterns *[]string
	scope    Scope // 0 for a list about what jobs ask for
}

// Lists returns the lists of the grant, in the order of role files.
func (g *Grant) Lists() []GrantList {
	all := []GrantList{{"jobs", &g.Jobs, ScopeJob}, {"nodes", &g.Nodes, ScopeNode}, {"classes", &g.Classes, ScopeClass}}
	for _, list := range askLists {
		all = append(all, GrantList{list.name, list.of(g), 0})
	}
	return all
}

// check refuses a grant that checkShape refuses, and one with verbs that don't exist, or that its lists exclude.
func (g *Grant) check() *model.Error {
	if refusal := g.checkShape(); refusal != nil {
		return refusal
	}
	for _, v := range g.Verbs {
		if refusal := v.Check(); refusal != nil {
			return refusal
		}
	}
	for _, list := range g.Lists() {
		if *list.Patterns != nil && len(*list.Patterns) == 0 {
			message, hint := EmptyList(list.Name)
			return model.Refuse(model.CodeInvalid, "%s", message).WithHint("%s", hint)
		}
		if len(*list.Patterns) == 0 {
			continue
		}
		if list.scope == 0 {
			if list.Name != "users" && !g.names(SubmitJob) { // roles with users that mean nothing exist
				return model.Refuse(model.CodeInvalid, "%s restricts %s, which the grant does not allow", list.Name, SubmitJob).
					WithHint("put %s into the block allow { } with %s", list.Name, SubmitJob)
			}
			continue
		}
		if v, lost := g.never(list.scope); lost {
			return model.Refuse(model.CodeInvalid, "%s can't restrict %s: what it acts on has no such name", list.Name, v).
				WithHint("put %s into a block allow { } of its own", v)
		}
	}
	return nil
}

// EmptyList returns the error and the hint for a list of a Grant that is given without patterns. A stored grant can't
// tell an empty list, which would allow nothing, from a missing one, which allows everything.
func EmptyList(name string) (message, hint string) {
	if name == "users" {
		return "users is an empty list", "leave users out: jobs may not choose a user then"
	}
	return name + " is an empty list, which would allow nothing",
		fmt.Sprintf("write the %s that the grant is for; without the key it is for all of them", name)
}

// checkShape refuses a grant without verbs, and one that is too large or has malformed patterns.
func (g *Grant) checkShape() *model.Error {
	if len(g.Verbs) == 0 || len(g.Verbs) > maxPatterns {
		return model.Refuse(model.CodeInvalid, "a grant has %d verbs", len(g.Verbs)).
			WithHint("write 1 to %d, such as node.drain, job.* or *", maxPatterns)
	}
	for _, v := range g.Verbs {
		if len(v) > maxRoleName {
			return model.Refuse(model.CodeInvalid, "a verb has %d bytes", len(v)).WithHint("list them with: outspan role verbs")
		}
	}
	for _, list := range g.Lists() {
		if len(*list.Patterns) > maxPatterns {
			return model.Refuse(model.CodeInvalid, "a grant has %d %s", len(*list.Patterns), list.Name).
				WithHint("write at most %d patterns, such as web-*", maxPatterns)
		}
		for _, pattern := range *list.Patterns {
			if refusal := CheckPattern(list.Name, pattern); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}

// CheckPattern refuses a pattern that can't stand in this list of a grant. Code: invalid.
func CheckPattern(list, pattern string) *model.Error {
	if pattern == "" {
		return model.Refuse(model.CodeInvalid, "%s has an empty pattern", list).WithHint("write * for all of them")
	}
	if asks, ok := askListOf(list); ok && list != "users" && pattern != anyName {
		if hint := asks.check(pattern); hint != "" {
			return model.Refuse(model.CodeInvalid, "%s can't have %q", list, model.ClipText(pattern, 100)).WithHint("%s", hint)
		}
		return nil
	}
	return model.CheckGlob(pattern)
}

// never returns a verb that can't take effect: the grant names it, but the grant's list of this scope excludes every
// object of the verb. If only a pattern such as "*" includes the verb, that is no mistake.
func (g *Grant) never(scope Scope) (v Verb, lost bool) {
	i := slices.IndexFunc(verbs[:], func(t VerbText) bool {
		return t.Scope&scope == 0 && slices.Contains(g.Verbs, VerbPattern(t.Verb))
	})
	if i < 0 {
		return "", false
	}
	return verbs[i].Verb, true
}

// Binding gives a role to subjects.
type Binding struct {
	Role RoleName `json:"role" cbor:"1,keyasint"`
	// To is a pattern for subjects ("cert:alice", "cert:*", "token:ci"), or "group:" and the name of a group.
	To string `json:"to" cbor:"2,keyasint"`
}

// Check refuses a binding that can't be stored, and one to a kind of subject that has no roles. It does not look
// whether there is such a role. Code: invalid.
func (b *Binding) Check() *model.Error {
	kind, _, _ := strings.Cut(b.To, ":")
	if kind+":" != groupPrefix && !slices.Contains(boundKinds[:], model.SubjectKind(kind)) {
		return model.Refuse(model.CodeInvalid, "%q is neither a subject that can have roles nor a group",
			model.ClipText(b.To, 100)).WithHint("write cert:NAME, cert:*, token:NAME, oidc:ISSUER#SUB or group:NAME")
	}
	return b.CheckShape()
}

// CheckShape refuses a binding that can't be stored. Each version of the program gives the same answer. Code: invalid.
func (b *Binding) CheckShape() *model.Error {
	kind, name, _ := strings.Cut(b.To, ":")
	switch {
	case !validRoleName(b.Role):
		return model.Refuse(model.CodeInvalid, "%q is no name of a role", model.ClipText(string(b.Role), 100)).
			WithHint("list them with: outspan role ls")
	case len(b.To) > maxTo || strings.ContainsFunc(b.To, unicode.IsControl):
		return model.Refuse(model.CodeInvalid, "%q is too long, or has control characters", model.ClipText(b.To, 100))
	case kind == "" || name == "":
		return model.Refuse(model.CodeInvalid, "%q is neither a subject nor a group", model.ClipText(b.To, 100)).
			WithHint("write cert:NAME, cert:*, token:NAME or group:NAME")
	case kind+":" == groupPrefix:
		return nil
	case kind == string(model.SubjectOIDC): // it is longer than what model.CheckGlob accepts
		if _, err := path.Match(b.To, ""); err != nil {
			return model.Refuse(model.CodeInvalid, "%q is no pattern for subjects", model.ClipText(b.To, 100)).
				WithHint(`write \ before *, ?, [ and \ that are part of a name`)
		}
		return nil
	}
	return model.CheckGlob(b.To)
}

// boundKinds are the kinds of subjects that can have roles. Servers and agents have what their certificates allow, and
// local users of a server may do everything.
var boundKinds = [...]model.SubjectKind{model.SubjectCert, model.SubjectToken, model.SubjectOIDC}

// Equal reports whether two lists have the same grants in the same order.
func Equal(a, b []Grant) bool {
	return slices.EqualFunc(a, b, func(x, y Grant) bool {
		return slices.Equal(x.Verbs, y.Verbs) && slices.EqualFunc(x.Lists(), y.Lists(), func(a, b GrantList) bool {
			return slices.Equal(*a.Patterns, *b.Patterns)
		})
	})
}
