package rolefile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/rolefile"
)

// Any text is read or refused, and what is read can be stored, printed and read again.
func FuzzParse(f *testing.F) {
	f.Add(shop)
	f.Add("binding {\n  role = \"viewer\"\n  subjects = [\"cert:*\"]\n  groups = [\"a\"]\n}\n")
	f.Add("role \"x\" {\n  allow {\n    verbs = [\"*\"]\n    nodes = [\"n[1-3]\"]\n    classes = [\"\\\\*\"]\n  }\n}\n")
	f.Add("role \"x\" {\n  allow {\n    verbs = [\"job.run\", 3]\n")
	f.Fuzz(func(t *testing.T, src string) {
		got, err := rolefile.Parse("f.hcl", []byte(src))
		if err != nil {
			return
		}
		for _, b := range got.Bindings {
			if refusal := b.Check(); refusal != nil {
				t.Fatalf("binding %+v: %v", b, refusal)
			}
		}
		for _, r := range got.Roles {
			if refusal := r.Check(); refusal != nil {
				t.Fatalf("role %+v: %v", r, refusal)
			}
		}
		if len(got.Roles) == 0 {
			return
		}
		text, err := rolefile.Print(got.Roles...)
		if err != nil {
			t.Fatal(err)
		}
		again, err := rolefile.Parse("f.hcl", []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(got.Roles, again.Roles); diff != "" {
			t.Errorf("%s\n%s", diff, text)
		}
	})
}
