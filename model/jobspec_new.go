package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MinContainerMemory is the least memory of a container in bytes: its runtime and its init use some of it.
const MinContainerMemory = 16 << 20

// CheckNew returns the first mistake in an expanded spec that Check must accept, because logs may contain it: what an
// agent refuses at each start, or a gate that can never hold. A new spec must pass both. The error is like that of
// Check.
func (j *JobSpec) CheckNew() *Error {
	for i := range j.Groups {
		g := &j.Groups[i]
		if refusal := cmp.Or(g.checkOwnReady("eviction", g.Eviction.When),
			g.checkOwnReady("replacement", g.Replacement.When), checkRlimits("exec", g.Exec.Rlimits),
			g.checkNewContainer()); refusal != nil {
			return j.inGroup(g, refusal)
		}
	}
	return nil
}

func (g *GroupSpec) checkNewContainer() *Error {
	c := g.Container
	switch {
	case c == nil:
		return nil
	case strings.Count(c.User, ":") > 1:
		return RefuseAt(KeyPath("container", "user"), "user is %q; it must be USER or USER:GROUP", c.User).
			WithHint("write names or numbers, such as \"1000:1000\"")
	case g.Resources.MemoryBytes < MinContainerMemory:
		return RefuseAt(KeyPath("resources", "memory"), "resources.memory is %d bytes; a container needs at least 16 MiB",
			g.Resources.MemoryBytes)
	}
	return checkRlimits("container", c.Rlimits)
}

// RlimitNames returns the names that rlimits may have, which are those of limits.conf.
func RlimitNames() []string {
	return []string{"as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "stack"}
}

func checkRlimits(block string, limits map[string]uint64) *Error {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if !slices.Contains(RlimitNames(), name) {
			return RefuseAt(KeyPath(block, "rlimits"), "rlimits: %q is no limit", name).
				WithHint("the limits are: %s", strings.Join(RlimitNames(), ", "))
		}
	}
	return nil
}

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
