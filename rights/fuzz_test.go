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
				if r.Name == b.Role && named && fits && within(g.Jobs, on.Job) && within(g.Nodes, on.Node) &&
					within(g.Classes, on.Class) {
					return true
				}
			}
		}
	}
	return false
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
			r.Allow = append(r.Allow, rights.Grant{Verbs: rapid.SliceOfN(rapid.SampledFrom(patterns), 1, 3).Draw(t, "verbs"),
				Jobs: list.Draw(t, "jobs"), Nodes: list.Draw(t, "nodes"), Classes: list.Draw(t, "classes")})
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
	for _, v := range verbs {
		_, got := book.May(who, v.Verb, on)
		if want := plainlyMay(roles, bindings, who, v, on); got != want {
			t.Fatalf("%s %s on %+v: %v, want %v", who.Subject, v.Verb, on, got, want)
		}
		some, reach := book.MayAny(who, v.Verb), book.Reach(who, v.Verb)
		if got && !some || some != (reach != rights.Nothing) || reach == rights.Everything && !got {
			t.Fatalf("%s %s: may %v, on something %v, reach %v", who.Subject, v.Verb, got, some, reach)
		}
	}
}

// A book says what a plain reading of the roles and bindings says.
func TestBookIsPlain(t *testing.T) { rapid.Check(t, sameAsPlain) }

func FuzzBook(f *testing.F) { f.Fuzz(rapid.MakeFuzz(sameAsPlain)) }
