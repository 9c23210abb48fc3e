package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport"
)

// bind gives roles to people, and takes those of everybody away. Each binding is "ROLE TO".
func (r *rig) bind(bindings ...string) {
	r.t.Helper()
	var group []fsm.Command
	for _, text := range bindings {
		role, to, _ := strings.Cut(text, " ")
		group = append(group, &fsm.BindingAdd{Role: rights.RoleName(role), To: to})
	}
	r.apply(append(group, &fsm.BindingRemove{Role: rights.Admin, To: "cert:*"})...)
}

// forbidden reports whether a request is refused because of rights.
func forbidden(t testing.TB, c *transport.Client, method, path string, query url.Values, body any) bool {
	t.Helper()
	_, _, err := c.Do(t.Context(), method, path, query, body)
	refusal, ok := errors.AsType[*model.Error](err)
	return ok && refusal.Code == model.CodeForbidden && strings.Contains(refusal.Message, "may not")
}

// isHidden reports whether a read is refused as if its object did not exist.
func isHidden(t testing.TB, c *transport.Client, path string, query url.Values) bool {
	t.Helper()
	_, _, err := c.Do(t.Context(), http.MethodGet, path, query, nil)
	return errors.Is(err, &model.Error{Code: model.CodeNotFound})
}

// operationsOf returns the operations of the OpenAPI document that have a verb, as METHOD, path and verb.
func operationsOf(t *testing.T, r *rig) (all [][3]string) {
	t.Helper()
	paths, _ := get(t, r.cli(), "/openapi.json")["paths"].(map[string]any)
	for path, methods := range paths {
		for method, op := range methods.(map[string]any) {
			if verb, ok := op.(map[string]any)["x-outspan-verb"].(string); ok {
				all = append(all, [3]string{strings.ToUpper(method), path, verb})
			} else if !strings.HasPrefix(path, "/v1/peer/") {
				t.Errorf("%s %s has no verb", method, path)
			}
		}
	}
	return all
}

var pathParam = regexp.MustCompile(`\{[a-z]+\}`)

// Each operation is refused to a person exactly if none of the person's roles has its verb.
func TestMatrixOfRights(t *testing.T) {
	r := newRig(t)
	r.world()
	r.bind("viewer cert:viewer", "operator cert:operator", "deployer cert:deployer", "admin cert:admin",
		"admin cert:alice", "operator token:script")
	script := r.grantToken("script", model.Hour, "deployer") // with a role of its own, and one that it is given
	ops := operationsOf(t, r)
	if len(ops) < 90 {
		t.Fatalf("%d operations", len(ops))
	}
	refused := 0
	for _, name := range []string{"viewer", "operator", "deployer", "admin", "nobody", "script"} {
		book := r.machine.Current().RightsBook()
		who := rights.Caller{Subject: model.Subject{Kind: model.SubjectCert, Name: name}}
		c := r.client(pki.RoleCLI, name)
		refuses := func(method, path string, query url.Values) bool { return forbidden(t, c, method, path, query, nil) }
		if name == "script" {
			who = rights.Caller{Subject: model.Subject{Kind: model.SubjectToken, Name: name},
				Roles: []rights.RoleName{"deployer"}}
			refuses = func(method, path string, query url.Values) bool {
				_, code, text := r.bearer("", method, "s1", path+"?"+query.Encode(), bearerOf(script))
				return code == model.CodeForbidden && strings.Contains(text, "may not")
			}
		}
		for _, op := range ops {
			if op[0] == http.MethodPut && op[1] == "/v1/snapshot" || op[1] == "/v1/events" ||
				strings.HasSuffix(op[1], "/logs") || op[1] == "/v1/page/stream" {
				continue // streams: see TestStreamEndsWithTheRight
			}
			query := url.Values{}
			if op[0] != http.MethodGet {
				query.Set("dry_run", "true")
			}
			path := pathParam.ReplaceAllString(op[1], "n1")
			inside := op[1] == "/v1/why" || op[1] == "/v1/series" // judged by what they show
			want := op[2] != "" && !book.MayAny(who, rights.Verb(op[2])) || inside && name == "nobody"
			if want {
				refused++
			}
			if got := refuses(op[0], path, query); got != want {
				t.Errorf("%s %s %s: refused %v, want %v", name, op[0], path, got, want)
			}
		}
	}
	if refused < 100 {
		t.Errorf("only %d pairs are refused", refused)
	}
}

// Whoever may see only some jobs sees those in lists, and the number of the others.
func TestListsShowWhatOneMayRead(t *testing.T) {
	r := newRig(t)
	r.world()
	r.apply(&fsm.JobSubmit{Spec: spec("bank", 1)})
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "web", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"job.*", "instance.*"}, Jobs: []string{"web"}, Users: []string{"www"}}}}})
	r.bind("web cert:bob", "admin cert:alice")
	bob, alice := r.client(pki.RoleCLI, "bob"), r.client(pki.RoleCLI, "alice")
	all := get(t, alice, "/v1/jobs")["items"].([]any)
	mine := get(t, bob, "/v1/jobs")
	items := mine["items"].([]any)
	if len(all) < 2 || len(items) != 1 || items[0].(map[string]any)["name"] != "web" ||
		fmt.Sprint(mine["hidden"]) != fmt.Sprint(len(all)-1) {
		t.Errorf("of %d jobs bob sees %v", len(all), mine)
	}
	for _, one := range all {
		name := one.(map[string]any)["name"].(string)
		for _, path := range []string{"/v1/jobs/" + name, "/v1/why?subject=job/" + name} {
			path, query, _ := strings.Cut(path, "?")
			values := must(url.ParseQuery(query))(t)
			if got := forbidden(t, bob, http.MethodGet, path, values, nil) || isHidden(t, bob, path, values); got !=
				(name != "web") {
				t.Errorf("bob reads %s: refused %v", path, got)
			}
		}
		_, _, err := bob.Do(t.Context(), http.MethodPost, "/v1/jobs/"+name+"/stop", url.Values{"dry_run": {"true"}}, nil)
		if got := errors.Is(err, &model.Error{Code: model.CodeNotFound}); got != (name != "web") {
			t.Errorf("bob stops %s: %v", name, err)
		}
	}
	for user, want := range map[string]bool{"": false, "www": false, "root": true} {
		spec := map[string]any{"job": map[string]any{"name": "web", "groups": []any{map[string]any{"name": "http", "count": 1,
			"exec": map[string]any{"command": "/bin/true", "user": user}}}}}
		if got := forbidden(t, bob, http.MethodPost, "/v1/jobs", url.Values{"dry_run": {"true"}}, spec); got != want {
			t.Errorf("bob runs programs as %q: refused %v", user, got)
		}
	}
	asRoot := spec("web", 1)
	asRoot.Groups[0].Exec.User = "root"
	r.apply(&fsm.JobSubmit{Spec: asRoot}, &fsm.JobSubmit{Spec: spec("web", 1)})
	for version, want := range map[int]bool{1: false, 2: true} {
		body := map[string]any{"version": version}
		dry := url.Values{"dry_run": {"true"}}
		if got := forbidden(t, bob, http.MethodPost, "/v1/jobs/web/revert", dry, body); got != want {
			t.Errorf("bob reverts to version %d: refused %v", version, got)
		}
	}
}

// A right that is restricted to a class is enough for a new job of that class. What is hidden is not counted where a
// filter chooses, because the count would tell of it.
func TestRightsToNewThings(t *testing.T) {
	r := newRig(t)
	r.world()
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "batch", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"job.*", "volume.*"}, Jobs: []string{"new*"}, Classes: []string{"batch"}}}}})
	r.bind("batch cert:bob", "admin cert:alice")
	bob := r.client(pki.RoleCLI, "bob")
	for class, want := range map[string]bool{"batch": false, "production": true, "": true} {
		job := map[string]any{"name": "new1", "groups": []any{map[string]any{"name": "g", "count": 1,
			"exec": map[string]any{"command": "/bin/true"}}}}
		if class != "" {
			job["class"] = class
		}
		got := forbidden(t, bob, http.MethodPost, "/v1/jobs", url.Values{"dry_run": {"true"}}, map[string]any{"job": job})
		if got != want {
			t.Errorf("bob makes a job of class %q: refused %v", class, got)
		}
	}
	asked := url.Values{"verb": {"job.submit"}, "object": {"new1"}, "as": {"cert:bob"}}
	if got := get(t, r.client(pki.RoleCLI, "alice"), "/v1/auth/can-i?"+asked.Encode()); got["object"] != "job/new1" ||
		fmt.Sprint(got["allowed"]) != "false" { // a job has class production unless it says otherwise
		t.Errorf("can-i: %v", got)
	}
	if got := get(t, bob, "/v1/jobs?filter=name~w"); got["hidden"] != nil || len(got["items"].([]any)) != 0 {
		t.Errorf("a filter finds %v", got)
	}
	_, _, err := bob.Do(t.Context(), http.MethodGet, "/v1/auth/can-i", url.Values{"verb": {"node.drain"},
		"object": {"drain/gone"}}, nil)
	wantCode(t, err, model.CodeNotFound)
}

// can-i says what happens (1000 random pairs of a person and an operation on an object).
func TestCanIAgrees(t *testing.T) {
	r := newRig(t)
	r.world()
	rng := rand.New(rand.NewPCG(1, 1))
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	patterns := []rights.VerbPattern{"*", "node.*", "job.*", "instance.*"}
	for _, v := range rights.Verbs() {
		patterns = append(patterns, rights.VerbPattern(v.Verb))
	}
	var bindings []string
	for i := range 8 {
		g := rights.Grant{}
		for range 6 {
			g.Verbs = append(g.Verbs, patterns[rng.IntN(len(patterns))])
		}
		role := rights.Role{Name: rights.RoleName(fmt.Sprintf("r%d", i)), Allow: []rights.Grant{g}}
		switch rng.IntN(3) {
		case 0:
			role.Allow[0].Jobs = []string{pick("web", "db*", "*")}
		case 1:
			role.Allow[0].Nodes = []string{pick("n1", "n*", "x")}
		}
		if role.Check() != nil { // a list excludes one of its verbs for ever
			role.Allow[0].Jobs, role.Allow[0].Nodes = nil, nil
		}
		role.Allow = append(role.Allow, randomSubmits(rng))
		r.apply(&fsm.RoleSet{Role: role})
		bindings = append(bindings, fmt.Sprintf("r%d cert:p%d", i, i))
	}
	r.bind(append(bindings, "admin cert:alice")...)
	alice := r.client(pki.RoleCLI, "alice")
	acts := []struct{ method, path, verb, object string }{
		{"POST", "/v1/nodes/n1/cordon", "node.cordon", "node/n1"}, {"POST", "/v1/nodes/n2/drain", "node.drain", "node/n2"},
		{"GET", "/v1/nodes/n1", "node.read", "node/n1"}, {"GET", "/v1/jobs/web", "job.read", "job/web"},
		{"POST", "/v1/jobs/web/stop", "job.stop", "job/web"}, {"POST", "/v1/jobs/web/restart", "job.restart", "job/web"},
		{"GET", "/v1/settings", "settings.read", ""}, {"GET", "/v1/tokens", "trust.read", ""},
		{"GET", "/v1/instances/inst-a", "instance.read", "instance/inst-a"},
		{"POST", "/v1/instances/inst-a/evict", "instance.evict", "instance/inst-a"},
		{"GET", "/v1/classes/batch", "class.read", "class/batch"}, {"GET", "/v1/roles", "auth.read", ""},
		{"POST", "/v1/jobs", "job.submit", "job/web"}, {"POST", "/v1/jobs", "job.submit", "job/web"},
		{"POST", "/v1/jobs", "job.submit", "job/web"}, {"POST", "/v1/jobs", "job.submit", "job/web"},
	}
	clients := map[string]*transport.Client{}
	yes, submitted := 0, map[bool]int{}
	for range 1000 {
		name, act := fmt.Sprintf("p%d", rng.IntN(8)), acts[rng.IntN(len(acts))]
		if clients[name] == nil {
			clients[name] = r.client(pki.RoleCLI, name)
		}
		query := url.Values{}
		if act.method == http.MethodPost {
			query.Set("dry_run", "true")
		}
		asked := url.Values{"verb": {act.verb}, "object": {act.object}, "as": {"cert:" + name}}
		var body any
		if act.verb == "job.submit" {
			body, asked["ask"] = randomJob(rng)
		}
		said := get(t, alice, "/v1/auth/can-i?"+asked.Encode())["allowed"].(bool)
		if got := !forbidden(t, clients[name], act.method, act.path, query, body); got != said {
			t.Fatalf("%s %s %s %s: allowed %v, and can-i says %v", name, act.method, act.path, asked["ask"], got, said)
		}
		if said {
			yes++
		}
		if act.verb == "job.submit" {
			submitted[said]++
		}
	}
	if yes < 50 || yes > 950 {
		t.Errorf("%d of 1000 were allowed", yes)
	}
	if submitted[true] < 30 || submitted[false] < 30 {
		t.Errorf("jobs that were allowed and not: %v", submitted)
	}
}

// A drain of several nodes is refused with the names of those that the caller may not drain.
func TestRefusedDrainNamesNodes(t *testing.T) {
	r := newRig(t)
	r.world()
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "one", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"node.drain"}, Nodes: []string{"n1"}}}}})
	r.bind("viewer cert:vera", "one cert:bob", "admin cert:alice")
	for name, want := range map[string]string{"vera": "node/n1, node/n2, node/n3;", "bob": "node/n2, node/n3;"} {
		got := said(t, r.client(pki.RoleCLI, name), "POST", "/v1/drains", values("dry_run=true"),
			map[string]any{"nodes": []string{"n1", "n2", "n3"}})
		first, _, _ := strings.Cut(want, ",")
		if !strings.HasPrefix(got, "forbidden: cert:"+name+" may not do node.drain on "+want) ||
			!strings.HasSuffix(got, "can-i node.drain "+first+" --as cert:"+name) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A stream ends within a second after its reader has lost the right, and no other stream does.
func TestStreamEndsWithTheRight(t *testing.T) {
	r := newRig(t)
	r.world()
	r.bind("viewer cert:vera", "viewer cert:victor", "admin cert:alice")
	open := func(name string) (ended chan struct{}) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		resp := must(r.client(pki.RoleCLI, name).Open(ctx, reach.Request{Path: "/v1/events"}))(t)
		ended = make(chan struct{})
		go func() {
			defer close(ended)
			defer resp.Body.Close()
			for b := make([]byte, 4096); ; {
				if _, err := resp.Body.Read(b); err != nil {
					return
				}
			}
		}()
		return ended
	}
	vera, victor := open("vera"), open("victor")
	r.apply(&fsm.BindingRemove{Role: "viewer", To: "cert:vera"})
	select {
	case <-vera:
	case <-time.After(10 * time.Second): // generous; a second is what the state promises
		t.Error("the stream goes on")
	}
	select {
	case <-victor:
		t.Error("another stream ended too")
	default:
	}
	if !forbidden(t, r.client(pki.RoleCLI, "vera"), http.MethodGet, "/v1/events", nil, nil) {
		t.Error("another stream can be opened")
	}
}
