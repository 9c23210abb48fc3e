package rights_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/rights"
)

// matches is a second, plain implementation of patterns with * and ?.
func matches(pattern, name string) bool {
	if pattern == "" {
		return name == ""
	}
	switch {
	case pattern[0] == '*':
		return matches(pattern[1:], name) || name != "" && matches(pattern, name[1:])
	case name == "":
		return false
	}
	return (pattern[0] == '?' || pattern[0] == name[0]) && matches(pattern[1:], name[1:])
}

// plainlyMay answers as a Book, as plainly as possible.
func plainlyMay(roles []rights.Role, bindings []rights.Binding, who rights.Caller, verb rights.VerbText,
	on rights.Object) bool {
	within := func(list []string, name string) bool {
		return len(list) == 0 || name != "" && slices.ContainsFunc(list, func(p string) bool { return matches(p, name) })
	}
	lists := strings.Join(verb.Scope.Lists(), " ")
	for _, b := range bindings {
		group, isGroup := strings.CutPrefix(b.To, "group:")
		if isGroup && !slices.Contains(who.Groups, group) || !isGroup && !matches(b.To, who.Subject.String()) {
			continue
		}
		for _, r := range append(slices.Clone(roles), rights.Builtin()...) {
			for _, g := range r.Allow {
				named := slices.ContainsFunc(g.Verbs, func(p rights.VerbPattern) bool {
					return p == "*" || string(p) == string(verb.Verb) || string(p) == verb.Verb.Noun()+".*"
				})
				fits := (len(g.Jobs) == 0 || strings.Contains(lists, "jobs")) &&
					(len(g.Nodes) == 0 || strings.Contains(lists, "nodes")) &&
					(len(g.Classes) == 0 || strings.Contains(lists, "classes"))
				asks := func(a rights.Ask) bool { return plainlyAllows(g, a) }
				if r.Name == b.Role && named && fits && within(g.Jobs, on.Job) && within(g.Nodes, on.Node) &&
					within(g.Classes, on.Class) && (verb.Verb != rights.SubmitJob || allOf(on.Asks, asks)) {
					return true
				}
			}
		}
	}
	return false
}

func allOf(all []rights.Ask, holds func(rights.Ask) bool) bool {
	return !slices.ContainsFunc(all, func(a rights.Ask) bool { return !holds(a) })
}

// plainlyAllows reports whether a grant allows an ask.
func plainlyAllows(g rights.Grant, a rights.Ask) bool {
	list := map[string][]string{"users": g.Users, "volume_paths": g.VolumePaths, "ports": g.Ports, "services": g.Services,
		"budgets": g.Budgets}[a.List]
	if len(list) == 0 {
		return a.List != "users"
	}
	for _, p := range list {
		low, high, isRange := strings.Cut(p, "-")
		switch {
		case p == "*":
			return true
		case a.List == "volume_paths" && strings.HasPrefix(a.Name+"/", strings.TrimSuffix(p, "/")+"/"):
			return true
		case a.List == "ports": // all drawn ports have as many digits
			if a.Name == p || isRange && low <= a.Name && a.Name <= high {
				return true
			}
		case a.List != "volume_paths" && matches(p, a.Name):
			return true
		}
	}
	return false
}

// drawAsks draws patterns for the lists of a grant about what jobs ask for, and drawAsked what a job asks for.
func drawAsks(t *rapid.T, g *rights.Grant) {
	list := func(name string, of ...string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(of), 0, 2).Draw(t, name)
	}
	g.Users = list("users", "a", "a*", "b?", "*")
	g.VolumePaths = list("paths", "/a", "/a/b", "/b", "/", "*")
	g.Ports = list("ports", "10", "10-12", "12-15", "*")
	g.Services = list("services", "a", "?", "b*", "*")
	g.Budgets = list("budgets", "a", "a*", "*")
}

func drawAsked(t *rapid.T) (all []rights.Ask) {
	names := map[string][]string{"users": {"a", "ab", "b"}, "volume_paths": {"/a", "/a/b", "/a/b/c", "/ab", "/b"},
		"ports": {"10", "11", "12", "13", "16"}, "services": {"a", "b", "bb"}, "budgets": {"a", "ab", "b"}}
	for range rapid.IntRange(0, 3).Draw(t, "asks") {
		list := rapid.SampledFrom(rights.AskLists()).Draw(t, "list")
		all = append(all, rights.Ask{List: list, Name: rapid.SampledFrom(names[list]).Draw(t, "ask")})
	}
	return all
}

// sameAsPlain compares a Book with plainlyMay for roles, bindings and a question that it draws.
func sameAsPlain(t *rapid.T) {
	pattern, name := rapid.StringMatching(`[ab?*]{1,4}`), rapid.StringMatching(`[ab]{0,4}`)
	list := rapid.SliceOfN(pattern, 0, 2)
	verbs := rights.Verbs()
	patterns := []rights.VerbPattern{"*"}
	for _, v := range verbs {
		patterns = append(patterns, rights.VerbPattern(v.Verb), rights.VerbPattern(v.Verb.Noun()+".*"))
	}
	names := []rights.RoleName{"r", "s", rights.Viewer, rights.Deployer, "gone"}
	var roles []rights.Role
	for _, role := range names[:2] {
		r := rights.Role{Name: role}
		for range rapid.IntRange(1, 3).Draw(t, "grants") {
			g := rights.Grant{Verbs: rapid.SliceOfN(rapid.SampledFrom(patterns), 1, 3).Draw(t, "verbs"),
				Jobs: list.Draw(t, "jobs"), Nodes: list.Draw(t, "nodes"), Classes: list.Draw(t, "classes")}
			drawAsks(t, &g)
			r.Allow = append(r.Allow, g)
		}
		roles = append(roles, r)
	}
	var bindings []rights.Binding
	for range rapid.IntRange(0, 3).Draw(t, "bindings") {
		to := rapid.SampledFrom([]string{"cert:", "group:"}).Draw(t, "kind") + pattern.Draw(t, "to")
		bindings = append(bindings, rights.Binding{Role: rapid.SampledFrom(names).Draw(t, "role"), To: to})
	}
	who := cert(name.Draw(t, "who"), rapid.SliceOfN(pattern, 0, 2).Draw(t, "groups")...)
	book := rights.NewBook(roles, bindings)
	on := rights.Object{Job: name.Draw(t, "job"), Node: name.Draw(t, "node"), Class: name.Draw(t, "class")}
	asks := drawAsked(t)
	for _, v := range verbs {
		on.Asks = nil
		if v.Verb == rights.SubmitJob {
			on.Asks = asks
			lacking := book.For(who).Lacking(on)
			if _, may := book.May(who, v.Verb, on); may && len(lacking) > 0 || len(lacking) > len(asks) {
				t.Fatalf("may %v, and lacks %v", may, lacking)
			}
			if book.For(who).AsksFreely() {
				asks = append(asks, drawAsked(t)...)
				on.Asks = asks
				if _, may := book.May(who, v.Verb, on); !may {
					t.Fatalf("asks freely, and may not ask for %v", asks)
				}
			}
		}
		_, got := book.May(who, v.Verb, on)
		if want := plainlyMay(roles, bindings, who, v, on); got != want {
			t.Fatalf("%s %s on %+v: %v, want %v", who.Subject, v.Verb, on, got, want)
		}
		some, reach := book.MayAny(who, v.Verb), book.Reach(who, v.Verb)
		if got && !some || some != (reach != rights.Nothing) || reach == rights.Everything && !got && len(on.Asks) == 0 {
			t.Fatalf("%s %s: may %v, on something %v, reach %v", who.Subject, v.Verb, got, some, reach)
		}
	}
}

// A book says what a plain reading of the roles and bindings says.
func TestBookIsPlain(t *testing.T) { rapid.Check(t, sameAsPlain) }

func FuzzBook(f *testing.F) { f.Fuzz(rapid.MakeFuzz(sameAsPlain)) }
