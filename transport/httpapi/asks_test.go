package httpapi_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
)

// randomSubmits is a grant to submit jobs, with some lists of what they may ask for.
func randomSubmits(rng *rand.Rand) rights.Grant {
	pick := func(of ...string) []string { return of[rng.IntN(len(of)):][:1] }
	g := rights.Grant{Verbs: []rights.VerbPattern{"job.submit"}, Users: pick("web", "*"),
		VolumePaths: pick("/srv", "/srv/shop", "/"), Ports: pick("443", "8000-8999", "*"),
		Services: pick("web", "other", "*"), Budgets: pick("team", "t*", "other")}
	for _, list := range g.Lists() {
		if rng.IntN(2) == 0 {
			*list.Patterns = nil
		}
	}
	return g
}

// randomJob is a spec of the job web, and what it asks for as can-i takes it.
func randomJob(rng *rand.Rand) (body api.SubmitBody, asks []string) {
	g := model.GroupSpec{Name: "http", Count: 1, Exec: model.ExecSpec{Command: "/bin/web"}}
	for range rng.IntN(4) {
		switch rng.IntN(6) {
		case 0:
			g.Exec.User = []string{"web", "root"}[rng.IntN(2)]
		case 1:
			g.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal,
				Path: []string{"/srv/shop/db", "/srv/shop", "/etc"}[rng.IntN(3)]}}
		case 2:
			g.Ports = []model.PortSpec{{Name: "http", Static: []int{443, 8080, 9000}[rng.IntN(3)]}}
		case 3:
			g.Services = []model.ServiceSpec{{Name: []string{"web", "other"}[rng.IntN(2)], Port: "http", Expose: 443}}
		case 4:
			g.Services = []model.ServiceSpec{{Name: "web", Port: "http"}}
		case 5:
			g.Budgets = []model.BudgetName{[]model.BudgetName{"team", "other"}[rng.IntN(2)]}
		}
	}
	if g.Exec.User != "" {
		asks = append(asks, "users="+g.Exec.User)
	}
	for _, v := range g.Volumes {
		asks = append(asks, "volume_paths="+v.Path)
	}
	for _, p := range g.Ports {
		asks = append(asks, "ports="+strconv.Itoa(p.Static))
	}
	for _, s := range g.Services {
		asks = append(asks, "services="+s.Name)
		if s.Expose != 0 {
			asks = append(asks, "ports="+strconv.Itoa(s.Expose))
		}
	}
	for _, b := range g.Budgets {
		asks = append(asks, "budgets="+string(b))
	}
	return api.SubmitBody{Job: model.JobSpec{Name: "web", Groups: []model.GroupSpec{g}}}, asks
}

// asker makes a rig in which bob may submit web with these lists, and alice everything.
func asker(t *testing.T, g rights.Grant) *rig {
	t.Helper()
	r := newRig(t)
	r.world()
	g.Verbs, g.Jobs = []rights.VerbPattern{"job.*"}, []string{"web"}
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "web", Allow: []rights.Grant{g}}})
	r.bind("web cert:bob", "admin cert:alice")
	return r
}

// A refusal of each operation that takes a spec names the verb, the job, the group and what is not allowed.
func TestRefusedAsks(t *testing.T) {
	r := asker(t, rights.Grant{VolumePaths: []string{"/srv"}, Ports: []string{"8000-8999"}, Services: []string{"web"},
		Budgets: []string{"team"}})
	bob := r.client(pki.RoleCLI, "bob")
	job := spec("web", 1) // exposes 8080
	for _, tt := range []struct {
		change func(*model.GroupSpec)
		lacks  string
	}{
		{func(*model.GroupSpec) {}, ""},
		{func(g *model.GroupSpec) { g.Exec.User = "root" }, "the user root"},
		{func(g *model.GroupSpec) {
			g.Volumes = []model.VolumeSpec{{Name: "d", Kind: model.VolumeLocal, Path: "/etc"}}
		}, "the volume path /etc"},
		{func(g *model.GroupSpec) { g.Ports = []model.PortSpec{{Name: "http", Static: 443}} }, "the port 443"},
		{func(g *model.GroupSpec) { g.Services[0].Expose = 9000 }, "the port 9000"},
		{func(g *model.GroupSpec) { g.Services[0].Name = "bank" }, "the service bank"},
		{func(g *model.GroupSpec) { g.Budgets = []model.BudgetName{"bank"} }, "the shared budget bank"},
	} {
		one := job
		one.Groups = []model.GroupSpec{job.Groups[0]}
		one.Groups[0].Services = []model.ServiceSpec{job.Groups[0].Services[0]}
		tt.change(&one.Groups[0])
		for _, path := range []string{"/v1/jobs", "/v1/jobs/validate", "/v1/jobs/web/plan"} {
			query := values("")
			if path == "/v1/jobs" {
				query = values("dry_run=true")
			}
			got := said(t, bob, "POST", path, query, api.SubmitBody{Job: one})
			want := "forbidden: cert:bob may not do job.submit on job/web: group http asks for " + tt.lacks + ";"
			if tt.lacks == "" {
				want = "{"
			}
			if !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
			if tt.lacks != "" && !strings.Contains(got, " --ask ") {
				t.Errorf("%s: no question for an administrator: %s", path, got)
			}
		}
	}
}

// Whoever may read rights sees in a refusal, and by can-i, which role would allow it.
func TestRefusedAsksNameTheRole(t *testing.T) {
	r := asker(t, rights.Grant{Ports: []string{"8080"}})
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "reader", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"auth.read"}}}}}, &fsm.BindingAdd{Role: "reader", To: "cert:bob"},
		&fsm.RoleSet{Role: rights.Role{Name: "wide", Allow: []rights.Grant{{Verbs: []rights.VerbPattern{"job.submit"},
			Ports: []string{"9000"}}}}}, &fsm.BindingAdd{Role: "wide", To: "group:ops"}, &fsm.BindingRemove{
			Role: rights.Admin, To: "cert:alice"})
	bob := r.client(pki.RoleCLI, "bob")
	job := spec("web", 1)
	job.Groups[0].Services[0].Expose = 9000
	got := said(t, bob, "POST", "/v1/jobs", values("dry_run=true"), api.SubmitBody{Job: job})
	if !strings.Contains(got, "asks for the port 9000; the role wide allows it to group:ops") {
		t.Error(got)
	}
	v := get(t, bob, "/v1/auth/can-i?verb=job.submit&object=web&ask=ports=9000&ask=services=web")
	if fmt.Sprint(v["allowed"], v["lacking"], v["would"]) != "false [the port 9000] [map[role:wide to:group:ops]]" {
		t.Errorf("can-i says %v", v)
	}
	for _, query := range []string{"verb=job.submit&ask=ports=1", "verb=job.stop&object=web&ask=ports=1",
		"verb=job.submit&object=web&ask=port"} {
		if got := said(t, bob, "GET", "/v1/auth/can-i", values(query), nil); !strings.HasPrefix(got, "invalid: ") {
			t.Errorf("%s: %s", query, got)
		}
	}
}

// A revert is judged by what the version asks for, and pinned to it: a job that was purged and made again has other
// versions.
func TestRevertAsksAgain(t *testing.T) {
	r := asker(t, rights.Grant{})
	asks := spec("web", 1)
	asks.Groups[0].Exec.User = "root"
	bare := spec("web", 1)
	bare.Groups[0].Exec.Args = []string{"x"}
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "all", Allow: []rights.Grant{{Verbs: []rights.VerbPattern{"job.*"}}}}},
		&fsm.BindingAdd{Role: "all", To: "cert:carl"}, &fsm.JobSubmit{Spec: asks}, &fsm.JobSubmit{Spec: bare})
	for _, name := range []string{"bob", "carl"} {
		c := r.client(pki.RoleCLI, name)
		got := said(t, c, "POST", "/v1/jobs/web/revert", values("dry_run=true"), map[string]any{"version": 2})
		if !strings.Contains(got, "job.submit on job/web: group http asks for the user root") {
			t.Errorf("%s reverts to root: %s", name, got)
		}
		post(t, c, "/v1/jobs/web/revert", map[string]any{"version": 1})
		revert := r.lastEntry().Groups[0][0].(*fsm.JobRevert)
		if revert.IfTarget == 0 {
			t.Errorf("%s: the revert is not pinned", name)
		}
		r.apply(&fsm.JobSubmit{Spec: bare})
	}
}

// A dry run shows what submitted jobs may ask for, before and after.
func TestChangeOfAsks(t *testing.T) {
	r := asker(t, rights.Grant{Users: []string{"web"}})
	v := decode(t, []byte(said(t, r.client(pki.RoleCLI, "alice"), "PUT", "/v1/roles/web", values("dry_run=true"),
		map[string]any{"allow": []any{
			map[string]any{"verbs": []string{"job.*"}, "jobs": []string{"web"}, "ports": []string{"443"}}}})))
	want := "[map[asks:[map[after:[] before:[web] list:users] map[after:[443] before:[*] list:ports]] " +
		"differs:[job.submit] gains:[] loses:[] subject:cert:bob]]"
	if got := fmt.Sprint(v["changes"]); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
