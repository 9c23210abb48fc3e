package model

import "fmt"

// Warnings lists what is allowed but most likely not intended. Each warning says what to do next. Call it on a spec
// that is not expanded: in an expanded spec, defaults look as if the user had chosen them.
func (j JobSpec) Warnings() []string {
	warnings := []string{}
	for i := range j.Groups {
		switch g := &j.Groups[i]; {
		case g.trustsStart():
			warnings = append(warnings,
				fmt.Sprintf("group %s has auto_revert and no check: a version counts as good once its instances have run for %s. "+
					"Add a check block, or set min_healthy in update { } to the time in which a bad version ends",
					g.Name, g.Update.proof()))
		case g.rollsUnproven():
			warnings = append(warnings,
				fmt.Sprintf("group %s has no check: a program that ends right after its start counts as ready, so a rollout goes "+
					"on to the next instance. "+
					"Add a check block, or set update { min_healthy = \"5s\" }", g.Name))
		}
	}
	return warnings
}

// trustsStart reports whether rollouts of the group revert automatically, but only the exit of a program can show that
// a version is bad.
func (g *GroupSpec) trustsStart() bool {
	return g.Update.AutoRevert && g.Update.MinHealthy == 0 && len(g.Checks) == 0
}

// rollsUnproven reports whether a rollout of the group replaces one instance after another without a way to recognise a
// bad version. It returns false for system groups, because most of their programs serve no clients.
func (g *GroupSpec) rollsUnproven() bool {
	return g.Count > 1 && g.Role != RoleSystem && g.Update.MinHealthy == 0 && len(g.Checks) == 0
}
