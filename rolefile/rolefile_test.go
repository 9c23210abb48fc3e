package rolefile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/rolefile"
)

const shop = `role "shop" {
  allow {
    verbs = ["job.*", "instance.logs"]
    jobs  = ["shop-*"]
    users = ["web"]
  }
  allow {
    verbs = ["node.read"]
  }
}
`

func TestParse(t *testing.T) {
	got, err := rolefile.Parse("shop.hcl", []byte(shop+`
binding {
  role     = "shop"
  subjects = ["cert:alice"]
  groups   = ["shop"]
}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := rolefile.File{
		Roles: []rights.Role{{Name: "shop", Allow: []rights.Grant{
			{Verbs: []rights.VerbPattern{"job.*", "instance.logs"}, Jobs: []string{"shop-*"}, Users: []string{"web"}},
			{Verbs: []rights.VerbPattern{"node.read"}}}}},
		Bindings: []rights.Binding{{Role: "shop", To: "cert:alice"}, {Role: "shop", To: "group:shop"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	text, err := rolefile.Print(got.Roles...)
	if err != nil || text != shop {
		t.Errorf("printed as\n%s%v", text, err)
	}
}

func TestMistakes(t *testing.T) {
	allow := func(name, key, value string) string {
		return fmt.Sprintf("role %q {\n  allow {\n    %s = [%q]\n  }\n}\n", name, key, value)
	}
	grant := func(verb, list string) string {
		return fmt.Sprintf("role \"x\" {\n  allow {\n    verbs = [%q]\n    %s\n  }\n}\n", verb, list)
	}
	for src, want := range map[string]string{
		allow("x", "verbs", "node.dran"):   `f.hcl:3,13: No such verb: there is no verb "node.dran"; did you mean node.drain?`,
		allow("x", "verb", "node.drain"):   "f.hcl:3,5: Unsupported argument",
		allow("X", "verbs", "node.drain"):  `f.hcl:1,1: "X" is no name of a role`,
		allow("admin", "verbs", "*"):       "the role admin is built in",
		grant("node.read", `jobs = ["a"]`): "f.hcl:2,3: jobs can't restrict node.read",
		grant("job.read", "jobs = []"): "f.hcl:4,12: Empty list: jobs is an empty " +
			"list, which would allow nothing; write the jobs that the grant is for; without the key it is for all of them.",
		grant("job.*", "users = []"):    "f.hcl:4,13: Empty list: users",
		grant("job.*", `jobs = ["a["]`): `f.hcl:4,12: Wrong name: "a[" is no pattern`,

		allow("x", "verbs", "*") + "binding {\n  role = \"x\"\n}\n": "f.hcl:6,1: the binding of the role x names nobody",
		"binding {\n  role = \"x\"\n}\n":                            "names nobody",
		"binding {\n  role = \"x\"\n  subjects = [\"alice\"]\n}\n":  "is neither a subject that can have roles nor a group",
		"":                 "has no role and no binding",
		"job \"x\" {\n}\n": "f.hcl:1,1: Unsupported block type",
	} {
		_, err := rolefile.Parse("f.hcl", []byte(src))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, want %s", src, err, want)
		}
	}
}
