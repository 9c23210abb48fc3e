package rights

import (
	"cmp"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// groupPrefix begins the To of a binding to a group.
const groupPrefix = "group:"

// Caller is somebody whose rights are asked for.
type Caller struct {
	Subject model.Subject
	Groups  []string // as the identity provider names them
	// Roles are those that an access token gives, next to those of bindings.
	Roles []RoleName
	// Local says that the caller uses the unix socket of a server. It may do everything: whoever is root on a server can
	// read its disk anyway, and needs a way in if no binding is right any more.
	Local bool
}

// Object is what a verb acts on. The names that it does not have are empty: a node has no job.
type Object struct {
	Name  string // for people: "node/n1"
	Job   string
	Node  string
	Class string
}

// Reason is why a verb is allowed: a grant, and the binding that gives its role.
type Reason struct {
	Role    RoleName
	Binding *Binding // nil for the roles of an access token, and for a local caller
}

// Book knows all roles and bindings of one moment, and answers who may do what. It does not change, so it is safe for
// concurrent use.
type Book struct {
	roles    map[RoleName]Role
	bindings []Binding
}

// NewBook returns the book with the built-in roles, these roles and these bindings. A binding to a role that does not
// exist gives nothing.
func NewBook(roles []Role, bindings []Binding) *Book {
	b := &Book{roles: map[RoleName]Role{}, bindings: slices.Clone(bindings)}
	for _, r := range slices.Concat(roles, Builtin()) {
		b.roles[r.Name] = r
	}
	slices.SortFunc(b.bindings, func(x, y Binding) int {
		return cmp.Or(strings.Compare(string(x.Role), string(y.Role)), strings.Compare(x.To, y.To))
	})
	return b
}

// May reports whether the caller may do something, and by which grant. Of several, it is the one whose role's name
// comes first.
func (b *Book) May(who Caller, verb Verb, on Object) (why Reason, ok bool) {
	return b.find(who, func(g *Grant) bool { return g.Covers(verb, on) })
}

// MayAny reports whether there can be an object on which the caller may do something. If not, the caller need not learn
// which objects exist.
func (b *Book) MayAny(who Caller, verb Verb) bool {
	_, ok := b.find(who, func(g *Grant) bool { return g.names(verb) })
	return ok
}

// MayRunAs reports whether the caller may submit this job with programs that run as a user. "" is the user that the
// agent chooses, which needs no right.
func (b *Book) MayRunAs(who Caller, user string, on Object) bool {
	_, ok := b.find(who, func(g *Grant) bool {
		return g.Covers(SubmitJob, on) && (user == "" || matchesAny(g.Users, user))
	})
	return ok
}

// find returns the first grant of the caller that a condition accepts.
func (b *Book) find(who Caller, accepts func(*Grant) bool) (why Reason, ok bool) {
	if who.Local {
		return Reason{Role: Admin}, true
	}
	for _, name := range who.Roles {
		if b.accepts(name, accepts) {
			return Reason{Role: name}, true
		}
	}
	for i := range b.bindings {
		if one := &b.bindings[i]; one.includes(who) && b.accepts(one.Role, accepts) {
			return Reason{one.Role, one}, true
		}
	}
	return Reason{}, false
}

func (b *Book) accepts(name RoleName, accepts func(*Grant) bool) bool {
	role := b.roles[name]
	for i := range role.Allow {
		if accepts(&role.Allow[i]) {
			return true
		}
	}
	return false
}

// Would returns the bindings that would allow it to others, sorted by role: what an administrator wants to know about a
// refusal.
func (b *Book) Would(verb Verb, on Object) (all []Binding) {
	for _, one := range b.bindings {
		if b.accepts(one.Role, func(g *Grant) bool { return g.Covers(verb, on) }) {
			all = append(all, one)
		}
	}
	return all
}

// includes reports whether the binding gives its role to the caller.
func (b *Binding) includes(who Caller) bool {
	if group, is := strings.CutPrefix(b.To, groupPrefix); is {
		return slices.Contains(who.Groups, group)
	}
	subject := who.Subject.String()
	if who.Subject.Kind == model.SubjectOIDC {
		// Issuers are URLs, so here a pattern's * and ? stand for slashes too.
		return b.To == subject || model.MatchGlob(withoutSlashes(b.To), withoutSlashes(subject))
	}
	return model.MatchGlob(b.To, subject)
}

// withoutSlashes replaces slashes by a character that no subject has, for model.MatchGlob.
func withoutSlashes(text string) string { return strings.ReplaceAll(text, "/", "\x01") }

// Covers reports whether the grant allows a verb on an object.
func (g *Grant) Covers(verb Verb, on Object) bool {
	return g.names(verb) && within(g.Jobs, on.Job) && within(g.Nodes, on.Node) && within(g.Classes, on.Class)
}

// names reports whether the grant allows a verb on any object. A list that the verb's objects can't satisfy excludes
// the verb.
func (g *Grant) names(verb Verb) bool {
	text, ok := verb.Info()
	lacks := func(list []string, scope Scope) bool { return len(list) > 0 && text.Scope&scope == 0 }
	return ok && slices.ContainsFunc(g.Verbs, func(p VerbPattern) bool { return p.Matches(verb) }) &&
		!lacks(g.Jobs, ScopeJob) && !lacks(g.Nodes, ScopeNode) && !lacks(g.Classes, ScopeClass)
}

// within reports whether a list of patterns allows a name. An empty list allows every name, and things without one.
func within(patterns []string, name string) bool {
	return len(patterns) == 0 || name != "" && matchesAny(patterns, name)
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return model.MatchGlob(p, name) })
}

// Reach says on how much a caller may do something.
type Reach uint8

// The reaches, in order.
const (
	Nothing Reach = iota
	Something
	Everything
)

// Reach returns on how much a caller may do something. It is Everything only by a grant without lists of names.
func (b *Book) Reach(who Caller, verb Verb) Reach {
	all := func(g *Grant) bool {
		return g.names(verb) && len(g.Jobs)+len(g.Nodes)+len(g.Classes) == 0
	}
	if _, ok := b.find(who, all); ok {
		return Everything
	}
	if b.MayAny(who, verb) {
		return Something
	}
	return Nothing
}

// RolesOf returns the roles of a caller, sorted.
func (b *Book) RolesOf(who Caller) []RoleName {
	if who.Local {
		return []RoleName{Admin}
	}
	roles := append([]RoleName{}, who.Roles...)
	for i := range b.bindings {
		if one := &b.bindings[i]; one.includes(who) && !slices.Contains(roles, one.Role) {
			roles = append(roles, one.Role)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}
