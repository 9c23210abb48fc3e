package rights_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

func cert(name string, groups ...string) rights.Caller {
	return rights.Caller{Subject: model.Subject{Kind: model.SubjectCert, Name: name}, Groups: groups}
}

func TestMay(t *testing.T) {
	book := rights.NewBook([]rights.Role{
		{Name: "shop", Allow: []rights.Grant{
			{Verbs: []rights.VerbPattern{"job.*", "instance.logs"}, Jobs: []string{"shop-*"}, Users: []string{"web"}},
			{Verbs: []rights.VerbPattern{"node.read"}}}},
		{Name: "rack1", Allow: []rights.Grant{{Verbs: []rights.VerbPattern{"*"}, Nodes: []string{"r1-*"}}}},
	}, []rights.Binding{{Role: "shop", To: "group:shop"}, {Role: "rack1", To: "cert:rita"},
		{Role: rights.Admin, To: "cert:root*"}, {Role: "gone", To: "cert:*"}})
	shop := rights.Object{Job: "shop-web", Class: "production"}
	bob, rita, root, eve := cert("bob", "shop"), cert("rita"), cert("root2"), cert("eve", "shops")
	ci := model.Subject{Kind: model.SubjectToken, Name: "ci"}
	tests := []struct {
		who  rights.Caller
		verb rights.Verb
		on   rights.Object
		role rights.RoleName // "" if it is refused
	}{
		{bob, "job.submit", shop, "shop"},
		{bob, "job.submit", rights.Object{Job: "bank"}, ""},
		{bob, "job.submit", rights.Object{}, ""}, // a job without a name matches no pattern
		{bob, "instance.logs", rights.Object{Job: "shop-web", Node: "n1"}, "shop"},
		{bob, "instance.stop", shop, ""},
		{bob, "node.read", rights.Object{Node: "n1"}, "shop"},
		{bob, "node.drain", rights.Object{Node: "n1"}, ""},
		{rita, "node.drain", rights.Object{Node: "r1-7"}, "rack1"},
		{rita, "node.drain", rights.Object{Node: "r2-7"}, ""},
		{rita, "instance.stop", rights.Object{Job: "bank", Node: "r1-1"}, "rack1"},
		{rita, "job.stop", rights.Object{Job: "bank"}, ""}, // a job has no node
		{rita, "snapshot.save", rights.Object{}, ""},
		{root, "snapshot.save", rights.Object{}, rights.Admin},
		{root, "node.fly", rights.Object{}, ""},
		{eve, "node.read", rights.Object{Node: "n1"}, ""},
		{rights.Caller{Local: true}, "auth.set", rights.Object{}, rights.Admin},
		{rights.Caller{Subject: ci, Roles: []rights.RoleName{"shop"}}, "snapshot.save", rights.Object{}, ""},
		{rights.Caller{Subject: ci, Roles: []rights.RoleName{"gone", "shop"}}, "job.stop", shop, "shop"},
		{rights.Caller{Subject: ci}, "node.read", rights.Object{}, ""},
		{rights.Caller{Subject: root.Subject, Roles: []rights.RoleName{"shop"}}, "snapshot.save", rights.Object{}, "admin"},
	}
	for _, tt := range tests {
		why, ok := book.May(tt.who, tt.verb, tt.on)
		if ok != (tt.role != "") || why.Role != tt.role {
			t.Errorf("%+v %s %+v: %v by %q, want %q", tt.who, tt.verb, tt.on, ok, why.Role, tt.role)
		}
		if ok && !book.MayAny(tt.who, tt.verb) {
			t.Errorf("%+v may %s on %+v, but on nothing", tt.who, tt.verb, tt.on)
		}
	}
	if book.MayAny(rita, "job.stop") || book.MayAny(bob, "node.drain") || !book.MayAny(rita, "node.drain") {
		t.Error("MayAny")
	}
	if got := fmt.Sprint(book.Would("job.stop", shop)); got != "[{admin cert:root*} {shop group:shop}]" {
		t.Error(got)
	}
}

// A book allows what one of the grants allows that a caller has, and no more, whatever the order.
func TestMayIsTheUnion(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "a*", "*"})
	lists := rapid.SliceOfN(names, 0, 2)
	one := func(name string) *rapid.Generator[string] { return rapid.SampledFrom([]string{"", name, "a", "b"}) }
	var patterns []rights.VerbPattern
	for _, v := range rights.Verbs() {
		patterns = append(patterns, rights.VerbPattern(v.Verb), rights.VerbPattern(v.Verb.Noun()+".*"))
	}
	rapid.Check(t, func(t *rapid.T) {
		var roles []rights.Role
		for i := range rapid.IntRange(0, 3).Draw(t, "roles") {
			roles = append(roles, rights.Role{Name: rights.RoleName(fmt.Sprintf("r%d", i)), Allow: []rights.Grant{{
				Verbs: rapid.SliceOfN(rapid.SampledFrom(patterns), 1, 3).Draw(t, "verbs"),
				Jobs:  lists.Draw(t, "jobs"), Nodes: lists.Draw(t, "nodes"), Classes: lists.Draw(t, "classes")}}})
		}
		var bindings []rights.Binding
		for range rapid.IntRange(0, 4).Draw(t, "bindings") {
			bindings = append(bindings, rights.Binding{
				Role: rights.RoleName(rapid.SampledFrom([]string{"r0", "r1", "r2", "viewer"}).Draw(t, "role")),
				To:   rapid.SampledFrom([]string{"cert:a", "cert:*", "group:g", "group:h"}).Draw(t, "to")})
		}
		who := cert(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "who"),
			rapid.SliceOfN(rapid.SampledFrom([]string{"g", "h"}), 0, 2).Draw(t, "groups")...)
		on := rights.Object{Job: one("ab").Draw(t, "job"), Node: one("ab").Draw(t, "node"),
			Class: one("ab").Draw(t, "class")}
		verb := rapid.SampledFrom(rights.Verbs()).Draw(t, "verb").Verb

		want := false
		for _, b := range bindings {
			group, isGroup := strings.CutPrefix(b.To, "group:")
			mine := b.To == "cert:*" || b.To == "cert:"+who.Subject.Name || isGroup && slices.Contains(who.Groups, group)
			for _, r := range slices.Concat(roles, rights.Builtin()) {
				for _, g := range r.Allow {
					want = want || mine && r.Name == b.Role && g.Covers(verb, on)
				}
			}
		}
		for range 2 {
			if _, got := rights.NewBook(roles, bindings).May(who, verb, on); got != want {
				t.Fatalf("may: %v, want %v", got, want)
			}
			slices.Reverse(roles)
			slices.Reverse(bindings)
		}
	})
}

// The matrix of the built-in roles. Whoever changes a role or adds a verb looks at it.
func TestBuiltinRoles(t *testing.T) {
	var got strings.Builder
	for _, v := range rights.Verbs() {
		fmt.Fprintf(&got, "%-17s", v.Verb)
		for _, r := range rights.Builtin() {
			book := rights.NewBook(nil, []rights.Binding{{Role: r.Name, To: "cert:x"}})
			mark := "-"
			if _, ok := book.May(cert("x"), v.Verb, rights.Object{Job: "j", Node: "n", Class: "c"}); ok {
				mark = string(r.Name)
			}
			fmt.Fprintf(&got, " %-8s", mark)
		}
		got.WriteString("\n")
		if v.Text == "" || strings.Count(string(v.Verb), ".") != 1 {
			t.Errorf("verb %+v", v)
		}
	}
	golden(t, "testdata/builtin.txt", got.String())
}

// Issuers are URLs: patterns for people who signed in match across slashes, and no other kind of subject.
func TestMayOIDC(t *testing.T) {
	const issuer = "https://id.example.org/realms/a"
	who := func(name string, groups ...string) rights.Caller {
		return rights.Caller{Subject: model.Subject{Kind: model.SubjectOIDC, Name: name}, Groups: groups}
	}
	tests := []struct {
		to  string
		who rights.Caller
		may bool
	}{
		{"oidc:" + issuer + "#alice", who(issuer + "#alice"), true},
		{"oidc:" + issuer + "#alice", who(issuer + "#alice2"), false},
		{"oidc:" + issuer + "#*", who(issuer + "#a/b|c"), true},
		{"oidc:" + issuer + "#*", who("https://id.example.org/realms/b#alice"), false},
		{"oidc:*", who(issuer + "#alice"), true},
		{"oidc:" + issuer + `#a\*`, who(issuer + "#a*"), true},
		{"oidc:" + issuer + "#a*", who(issuer + "#a*"), true},
		{"cert:*", who(issuer + "#alice"), false},
		{"oidc:*", cert("alice"), false},
		{"group:shop", who(issuer+"#alice", "shop"), true},
		{"group:shop", who(issuer+"#alice", "shops"), false},
	}
	for _, tt := range tests {
		b := rights.Binding{Role: rights.Admin, To: tt.to}
		if refusal := b.Check(); refusal != nil {
			t.Errorf("%s: %v", tt.to, refusal)
		}
		book := rights.NewBook(nil, []rights.Binding{b})
		if _, may := book.May(tt.who, "node.drain", rights.Object{Node: "n1"}); may != tt.may {
			t.Errorf("%s for %s: %v", tt.to, tt.who.Subject, may)
		}
	}
	long := rights.Binding{Role: rights.Admin, To: "oidc:" + issuer + "#" + strings.Repeat("a", 180)}
	if refusal := long.Check(); refusal != nil {
		t.Error(refusal)
	}
	if bad := (&rights.Binding{Role: rights.Admin, To: "oidc:" + issuer + "#[a"}); bad.Check() == nil {
		t.Error("a malformed pattern was accepted")
	}
}

// A list that is given and empty stays apart from one that is absent on its way through JSON, and is refused.
func TestEmptyListIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"verbs":["job.read"]}`:                "",
		`{"verbs":["job.read"],"jobs":null}`:    "",
		`{"verbs":["job.read"],"jobs":[]}`:      "jobs is an empty list",
		`{"verbs":["node.read"],"nodes":[]}`:    "nodes is an empty list",
		`{"verbs":["class.read"],"classes":[]}`: "classes is an empty list",
		`{"verbs":["job.submit"],"users":[]}`:   "users is an empty list",

		`{"verbs":["job.submit"],"volume_paths":[]}`: "volume_paths is an empty list",
		`{"verbs":["job.submit"],"ports":[]}`:        "ports is an empty list",
		`{"verbs":["job.submit"],"services":[]}`:     "services is an empty list",
		`{"verbs":["job.submit"],"budgets":[]}`:      "budgets is an empty list",
	} {
		role := rights.Role{Name: "x", Allow: make([]rights.Grant, 1)}
		for range 2 { // as the client sends it, too
			if err := json.Unmarshal([]byte(text), &role.Allow[0]); err != nil {
				t.Fatal(err)
			}
			refusal := role.Check()
			if (refusal == nil) != (want == "") || refusal != nil && !strings.Contains(refusal.Message, want) {
				t.Errorf("%s: %v, want %q", text, refusal, want)
			}
			raw, err := json.Marshal(role.Allow[0])
			if err != nil {
				t.Fatal(err)
			}
			text, role.Allow[0] = string(raw), rights.Grant{}
		}
	}
}

// Only what a verb is allowed on counts, not by how many grants and roles.
func TestSame(t *testing.T) {
	grant := func(verbs string, jobs, users []string) rights.Grant {
		return rights.Grant{Verbs: []rights.VerbPattern{rights.VerbPattern(verbs)}, Jobs: jobs, Users: users}
	}
	list := func(names ...string) []string { return names }
	ports := func(of ...string) rights.Grant { g := grant("*", nil, nil); g.Ports = of; return g }
	all, web := grant("*", nil, list("*")), grant("job.*", list("web"), nil)
	for _, c := range []struct {
		name    string
		verb    rights.Verb
		was, is []rights.Grant
		want    bool
	}{
		{name: "one more way to everything", verb: "job.read", was: []rights.Grant{all},
			is: []rights.Grant{all, all}, want: true},
		{name: "a part of everything", verb: "job.submit", was: []rights.Grant{all},
			is: []rights.Grant{web, all}, want: true},
		{name: "another order", verb: "job.read", was: []rights.Grant{grant("job.*", list("a", "b"), nil)},
			is: []rights.Grant{grant("job.*", list("b", "a", "b"), nil)}, want: true},
		{name: "in two grants", verb: "job.read", was: []rights.Grant{grant("job.*", list("a", "b"), nil)},
			is: []rights.Grant{grant("job.*", list("b"), nil), grant("job.read", list("a"), nil)}, want: true},
		{name: "another job", verb: "job.read", was: []rights.Grant{web}, is: []rights.Grant{grant("job.*", list("a"), nil)}},
		{name: "one job more", verb: "job.read", was: []rights.Grant{web},
			is: []rights.Grant{grant("job.*", list("web", "a"), nil)}},
		{name: "another user", verb: "job.submit", was: []rights.Grant{web},
			is: []rights.Grant{grant("job.*", list("web"), list("root"))}},
		{name: "users matter to submit only", verb: "job.read", was: []rights.Grant{web},
			is: []rights.Grant{grant("job.*", list("web"), list("root"))}, want: true},
		{name: "a port more", verb: "job.submit", was: []rights.Grant{ports("443")}, is: []rights.Grant{ports("443", "80")}},
		{name: "ports at all", verb: "job.submit", was: []rights.Grant{grant("*", nil, nil)},
			is: []rights.Grant{ports("443")}},
		{name: "any port", verb: "job.submit", was: []rights.Grant{grant("*", nil, nil)},
			is: []rights.Grant{ports("*")}, want: true},
		{name: "ports within any", verb: "job.submit", was: []rights.Grant{grant("*", nil, nil)},
			is: []rights.Grant{ports("443"), grant("*", nil, nil)}, want: true},
		{name: "ports matter to submit only", verb: "job.read", was: []rights.Grant{grant("*", nil, nil)},
			is: []rights.Grant{ports("443")}, want: true},
		{name: "everything, as nobody else", verb: "job.submit", was: []rights.Grant{all},
			is: []rights.Grant{grant("*", nil, nil), grant("*", list("web"), list("*"))}},
	} {
		held := func(grants []rights.Grant) *rights.Permissions {
			return rights.NewBook([]rights.Role{{Name: "x", Allow: grants}},
				[]rights.Binding{{Role: "x", To: "cert:a"}}).For(cert("a"))
		}
		if got := held(c.was).Same(held(c.is), c.verb); got != c.want {
			t.Errorf("%s: same is %v", c.name, got)
		}
	}
}
