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

	Group     string // of a submitted job: the group that asks
	Container bool   // the group is a container
	Asks      []Ask  // for all of this
}

// Reason is why a verb is allowed: a grant, and the binding that gives its role.
type Reason struct {
	Role    RoleName
	Binding *Binding // nil for the roles of an access token, and for a local caller
	Grant   *Grant   // nil for a local caller; it must not be changed
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

// Permissions is what one caller may do: the grants of its roles, by verb. It does not change, so it is safe for
// concurrent use.
type Permissions struct {
	local bool
	held  map[Verb][]Reason
}

// For returns what a caller may do. It searches all bindings, so callers that ask more than once keep the result.
func (b *Book) For(who Caller) *Permissions {
	p := &Permissions{local: who.Local, held: map[Verb][]Reason{}}
	for _, name := range who.Roles {
		p.add(b.roles[name], Reason{Role: name})
	}
	if who.Local {
		return p
	}
	subject := who.Subject.String()
	for i := range b.bindings {
		if one := &b.bindings[i]; one.includes(subject, who.Groups) {
			p.add(b.roles[one.Role], Reason{Role: one.Role, Binding: one})
		}
	}
	return p
}

func (p *Permissions) add(role Role, reason Reason) {
	for i := range role.Allow {
		for _, v := range verbs {
			if g := &role.Allow[i]; g.names(v.Verb) {
				reason.Grant = g
				p.held[v.Verb] = append(p.held[v.Verb], reason)
			}
		}
	}
}

// find returns the reason of the first grant for a verb that a condition accepts.
func (p *Permissions) find(verb Verb, accepts func(*Grant) bool) (why Reason, ok bool) {
	if p.local {
		return Reason{Role: Admin}, true
	}
	for _, h := range p.held[verb] {
		if accepts(h.Grant) {
			return h, true
		}
	}
	return Reason{}, false
}

// May reports whether the caller may do something, and by which grant. Of several, it is the one whose role's name
// comes first.
func (p *Permissions) May(verb Verb, on Object) (why Reason, ok bool) {
	return p.find(verb, func(g *Grant) bool { return g.includes(on) })
}

// MayAny reports whether there can be an object on which the caller may do something. If not, the caller need not learn
// which objects exist.
func (p *Permissions) MayAny(verb Verb) bool {
	_, ok := p.find(verb, func(*Grant) bool { return true })
	return ok
}

// Reach returns on how many objects the caller may use a verb. Only a grant without lists of names gives Everything.
func (p *Permissions) Reach(verb Verb) Reach {
	if _, ok := p.find(verb, (*Grant).everything); ok {
		return Everything
	}
	if p.MayAny(verb) {
		return Something
	}
	return Nothing
}

// By returns the grants by which the caller may do something to an object, or to anything at all if on is nil. If one
// of them has no lists, By returns only that one. For a local caller, which needs no grant, it returns none.
func (p *Permissions) By(verb Verb, on *Object) (all []Reason) {
	for _, h := range p.held[verb] {
		switch {
		case on != nil && !h.Grant.includes(*on):
		case h.Grant.everything() && (verb != SubmitJob || h.Grant.asksFreely()):
			return []Reason{h}
		case !slices.ContainsFunc(all, func(r Reason) bool { return r.Grant == h.Grant }):
			all = append(all, h)
		}
	}
	return all
}

// everything reports whether no list of names restricts the grant.
func (g *Grant) everything() bool { return len(g.Jobs)+len(g.Nodes)+len(g.Classes) == 0 }

// May is Permissions.May for one question.
func (b *Book) May(who Caller, verb Verb, on Object) (why Reason, ok bool) {
	return b.For(who).May(verb, on)
}

// MayAny is Permissions.MayAny for one question.
func (b *Book) MayAny(who Caller, verb Verb) bool { return b.For(who).MayAny(verb) }

// Reach is Permissions.Reach for one question.
func (b *Book) Reach(who Caller, verb Verb) Reach { return b.For(who).Reach(verb) }

func (b *Book) accepts(name RoleName, accepts func(*Grant) bool) bool {
	role := b.roles[name]
	for i := range role.Allow {
		if accepts(&role.Allow[i]) {
			return true
		}
	}
	return false
}

// Would returns the bindings that allow a verb on an object to somebody, sorted by role. It shows an administrator how
// a refused caller could get the right.
func (b *Book) Would(verb Verb, on Object) (all []Binding) {
	for _, one := range b.bindings {
		if b.accepts(one.Role, func(g *Grant) bool { return g.Covers(verb, on) }) {
			all = append(all, one)
		}
	}
	return all
}

// Gives reports whether the binding gives its role to somebody.
func (b *Binding) Gives(who Caller) bool { return b.includes(who.Subject.String(), who.Groups) }

// Gives reports whether a role allows a verb on everything.
func (b *Book) Gives(name RoleName, verb Verb) bool {
	return b.accepts(name, func(g *Grant) bool { return g.names(verb) && g.everything() })
}

// includes reports whether the binding gives its role to a subject or to one of its groups.
func (b *Binding) includes(subject string, groups []string) bool {
	if group, is := strings.CutPrefix(b.To, groupPrefix); is {
		return slices.Contains(groups, group)
	}
	if strings.HasPrefix(subject, string(model.SubjectOIDC)+":") {
		// Issuers are URLs, so here a pattern's * and ? stand for slashes too.
		return b.To == subject || model.MatchGlob(withoutSlashes(b.To), withoutSlashes(subject))
	}
	return model.MatchGlob(b.To, subject)
}

// withoutSlashes replaces slashes by a character that no subject has, for model.MatchGlob.
func withoutSlashes(text string) string { return strings.ReplaceAll(text, "/", "\x01") }

// Covers reports whether the grant allows a verb on an object.
func (g *Grant) Covers(verb Verb, on Object) bool {
	return g.names(verb) && g.includes(on)
}

// includes reports whether the lists of the grant allow an object.
func (g *Grant) includes(on Object) bool {
	return within(g.Jobs, on.Job) && within(g.Nodes, on.Node) && within(g.Classes, on.Class) &&
		!slices.ContainsFunc(on.Asks, func(a Ask) bool { return !g.allows(a) })
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

// Reach says on how many objects a caller may use a verb.
type Reach uint8

// The reaches, in order.
const (
	Nothing Reach = iota
	Something
	Everything
)

// RolesOf returns the roles of a caller, sorted.
func (b *Book) RolesOf(who Caller) []RoleName {
	if who.Local {
		return []RoleName{Admin}
	}
	roles := append([]RoleName{}, who.Roles...)
	for i := range b.bindings {
		if one := &b.bindings[i]; one.includes(who.Subject.String(), who.Groups) && !slices.Contains(roles, one.Role) {
			roles = append(roles, one.Role)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}
