package model

import (
	"testing"
)

// No role implies a lease. While the servers are unreachable, an instance keeps running unless its own group has a
// lease.
func TestNoRoleImpliesALease(t *testing.T) {
	facts := &RoleCheckSpec{Exec: []string{"/bin/facts"}}
	for _, preset := range rolePresets() {
		g := GroupSpec{Name: "g", Count: 3, Role: preset.role, Exec: ExecSpec{Command: "/bin/x"}, RoleCheck: facts}
		spec := JobSpec{Name: "j", Groups: []GroupSpec{g}}.Expand()
		if spec.Groups[0].Fenced() {
			t.Errorf("%s runs under a lease that nobody asked for", preset.role)
		}
		if one := spec.Groups[0].OneHolder(); one != (preset.identity == "same") {
			t.Errorf("%s: one holder is %v", preset.role, one)
		}
		g.Exclusive = &ExclusiveSpec{}
		if spec = (JobSpec{Name: "j", Groups: []GroupSpec{g}}).Expand(); !spec.Groups[0].Fenced() ||
			spec.Groups[0].Exclusive.Lease != Minute {
			t.Errorf("%s with a lease of the default length: %+v", preset.role, spec.Groups[0].Exclusive)
		}
	}
}
