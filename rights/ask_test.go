package rights_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// asking is a group that asks for one thing of each kind, and for two ports.
func asking() model.GroupSpec {
	return model.GroupSpec{Name: "http", Exec: model.ExecSpec{User: "web"},
		Ports:    []model.PortSpec{{Name: "a", Static: 8080}, {Name: "b"}},
		Services: []model.ServiceSpec{{Name: "shop", Port: "a", Expose: 443}, {Name: "inner", Port: "b"}},
		Volumes:  []model.VolumeSpec{{Name: "data", Path: "/srv/shop/../shop/db/"}},
		Budgets:  []model.BudgetName{"team"}}
}

func TestAsks(t *testing.T) {
	g := asking()
	want := "[{users web} {volume_paths /srv/shop/db} {ports 443} {ports 8080} {services inner} {services shop} " +
		"{budgets team}]"
	if got := fmt.Sprint(plain(rights.Asks(&g))); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if none := rights.Asks(&model.GroupSpec{Ports: []model.PortSpec{{Name: "b"}}}); len(none) > 0 {
		t.Errorf("nothing asks for %v", none)
	}
	container := model.GroupSpec{Container: &model.ContainerSpec{Image: "web", User: "web"}}
	if got := fmt.Sprint(plain(rights.Asks(&container))); got != "[{users root} {users web}]" {
		t.Errorf("a container whose image may make it root asks for %s", got)
	}
	container.Container.User = "1000"
	if got := fmt.Sprint(plain(rights.Asks(&container))); got != "[{users 1000}]" {
		t.Errorf("a container with the number of a user asks for %s", got)
	}
}

// plain are asks without their String.
func plain(asks []rights.Ask) (all []struct{ List, Name string }) {
	for _, a := range asks {
		all = append(all, struct{ List, Name string }(a))
	}
	return all
}

// One grant must allow all that a group asks for, and a list that is absent restricts nothing, except users.
func TestMayAsk(t *testing.T) {
	submit := []rights.VerbPattern{"job.*"}
	g := asking()
	asks := rights.Asks(&g)
	all := rights.Grant{Verbs: submit, Users: []string{"web"}, VolumePaths: []string{"/srv/shop"},
		Ports: []string{"8000-8999", "443"}, Services: []string{"shop", "inn*"}, Budgets: []string{"team"}}
	everything := "the user web, the volume path /srv/shop/db, the port 443, the port 8080, the service inner, " +
		"the service shop, the shared budget team"
	with := func(change func(*rights.Grant)) rights.Grant { one := all; change(&one); return one }
	for name, tt := range map[string]struct {
		allow   []rights.Grant
		may     bool
		lacking string
	}{
		"all":     {[]rights.Grant{all}, true, ""},
		"users":   {[]rights.Grant{{Verbs: submit, Users: []string{"web"}}}, true, ""},
		"nothing": {[]rights.Grant{{Verbs: submit}}, false, "the user web"},
		"another user": {[]rights.Grant{with(func(g *rights.Grant) { g.Users = []string{"db"} })}, false,
			"the user web"},
		"a path beside it": {[]rights.Grant{with(func(g *rights.Grant) {
			g.VolumePaths = []string{"/srv/sho", "/srv/shop/d"}
		})}, false,
			"the volume path /srv/shop/db"},
		"a path below it": {[]rights.Grant{
			with(func(g *rights.Grant) { g.VolumePaths = []string{"/srv/shop/db/x"} })}, false,
			"the volume path /srv/shop/db"},
		"every path": {[]rights.Grant{with(func(g *rights.Grant) { g.VolumePaths = []string{"/"} })}, true, ""},
		"any": {[]rights.Grant{with(func(g *rights.Grant) {
			g.VolumePaths, g.Ports = []string{"*"}, []string{"*"}
		})}, true, ""},
		"one port": {[]rights.Grant{
			with(func(g *rights.Grant) { g.Ports = []string{"8000-8079", "443"} })}, false, "the port 8080"},
		"two kinds": {[]rights.Grant{
			with(func(g *rights.Grant) { g.Services, g.Budgets = []string{"x"}, []string{"x"} })}, false,
			"the service inner, the service shop, the shared budget team"},
		"two grants, and none for all": {[]rights.Grant{
			with(func(g *rights.Grant) { g.Ports = []string{"443"} }),
			with(func(g *rights.Grant) { g.Ports = []string{"8080"} })}, false,
			everything},
		"each by another grant": {[]rights.Grant{
			with(func(g *rights.Grant) { g.Budgets = []string{"x"} }),
			with(func(g *rights.Grant) { g.Services = []string{"x"} })}, false,
			everything},
		"another job":       {[]rights.Grant{with(func(g *rights.Grant) { g.Jobs = []string{"bank"} })}, false, ""},
		"one of two grants": {[]rights.Grant{with(func(g *rights.Grant) { g.Jobs = []string{"bank"} }), all}, true, ""},
	} {
		role := rights.Role{Name: "x", Allow: tt.allow}
		if refusal := role.Check(); refusal != nil {
			t.Fatalf("%s: %v", name, refusal)
		}
		p := rights.NewBook([]rights.Role{role}, []rights.Binding{{Role: "x", To: "cert:bob"}}).For(cert("bob"))
		on := rights.Object{Job: "shop", Class: "production", Asks: asks}
		_, may := p.May(rights.SubmitJob, on)
		var lacking []string
		for _, a := range p.Lacking(on) {
			lacking = append(lacking, a.String())
		}
		if got := strings.Join(lacking, ", "); may != tt.may || got != tt.lacking {
			t.Errorf("%s: allowed %v, lacking %s, want %v, %s", name, may, got, tt.may, tt.lacking)
		}
		if p.AsksFreely() {
			t.Errorf("%s: asks freely", name)
		}
	}
}

func TestAskedOfRoles(t *testing.T) {
	book := rights.NewBook([]rights.Role{{Name: "x", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"job.submit"}, Users: []string{"web"}, Ports: []string{"443", "80"}},
		{Verbs: []rights.VerbPattern{"job.submit"}, Ports: []string{"443"}, Budgets: []string{"a"}}}}},
		[]rights.Binding{{Role: "x", To: "cert:bob"}, {Role: rights.Admin, To: "cert:root"}})
	want := "map[budgets:[*] ports:[443 80] services:[*] users:[web] volume_paths:[*]]"
	if got := fmt.Sprint(book.For(cert("bob")).Asked()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !book.For(cert("root")).AsksFreely() || !book.For(rights.Caller{Local: true}).AsksFreely() {
		t.Error("an administrator may not ask for everything")
	}
}

// A list of what jobs may ask for stands where submitting is allowed, and has patterns of its kind.
func TestAskPatterns(t *testing.T) {
	for text, want := range map[string]string{
		"job.submit ports 443": "", "job.* ports 8000-8999": "", "job.submit ports *": "",
		"job.submit ports 0": "ports can't have", "job.submit ports 080": "ports can't have", "job.submit ports 9-8": "can't",
		"job.submit ports 80-": "can't", "job.submit ports 70000": "can't", "job.submit ports http": "can't",
		"job.submit volume_paths /srv": "", "job.submit volume_paths /": "", "job.submit volume_paths srv": "can't",
		"job.submit volume_paths /srv/": "can't", "job.submit volume_paths /srv/*": "can't",
		"job.submit volume_paths /srv/../etc": "can't", "job.submit services shop-*": "",
		"job.submit services a[": "services can't have", "job.submit budgets a[": "budgets can't have",
		"job.submit budgets team-?": "", "job.read ports 443": "ports restricts job.submit, which the grant does not allow",
		"node.read users web": "",
	} {
		parts := strings.Fields(text)
		g := rights.Grant{Verbs: []rights.VerbPattern{rights.VerbPattern(parts[0])}}
		lists := g.Lists()
		i := slices.IndexFunc(lists, func(l rights.GrantList) bool { return l.Name == parts[1] })
		*lists[i].Patterns = parts[2:]
		refusal := (&rights.Role{Name: "x", Allow: []rights.Grant{g}}).Check()
		if (refusal == nil) != (want == "") || refusal != nil && !strings.Contains(refusal.Message, want) {
			t.Errorf("%s: %v, want %q", text, refusal, want)
		}
	}
	for _, text := range []string{"", "ports", "ports=", "port=443", "jobs=web"} {
		if _, refusal := rights.ParseAsk(text); refusal == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	if a, refusal := rights.ParseAsk("volume_paths=/srv/../etc/"); refusal != nil || a.Name != "/etc" {
		t.Errorf("%v %v", a, refusal)
	}
}
