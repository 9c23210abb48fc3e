package model

import (
	"strings"
	"testing"
)

// What an agent refuses at each start is refused in new specs. Check accepts it, because logs may contain it.
func TestCheckNewContainer(t *testing.T) {
	limit := func(name string) map[string]uint64 { return map[string]uint64{name: 1} }
	for _, tt := range []struct {
		what      string
		change    func(*GroupSpec)
		key, says string
	}{
		{"a limit that does not exist", func(g *GroupSpec) { g.Container.Rlimits = limit("files") }, "container/rlimits",
			"rlimits: \"files\" is no limit"},
		{"that of a program", func(g *GroupSpec) {
			g.Container, g.Exec = nil, ExecSpec{Command: "/bin/web", Rlimits: limit("files")}
		}, "exec/rlimits", "rlimits: \"files\" is no limit"},
		{"a user with two colons", func(g *GroupSpec) { g.Container.User = "1:2:3" }, "container/user",
			"user is \"1:2:3\"; it must be USER or USER:GROUP"},
		{"too little memory", func(g *GroupSpec) { g.Resources.MemoryBytes = MinContainerMemory - 1 }, "resources/memory",
			"a container needs at least 16 MiB"},
		{"the least", func(g *GroupSpec) {
			g.Resources.MemoryBytes, g.Container.User, g.Container.Rlimits = MinContainerMemory, "1:2", limit("nofile")
		}, "", ""},
		{"little memory for a program", func(g *GroupSpec) {
			g.Container, g.Exec, g.Resources.MemoryBytes = nil, ExecSpec{Command: "/bin/web"}, 4<<20
		}, "", ""},
	} {
		g := GroupSpec{Name: "http", Count: 1, Container: &ContainerSpec{Image: "web"}}
		tt.change(&g)
		spec := (&JobSpec{Name: "web", Groups: []GroupSpec{g}}).Expand()
		if refusal := spec.Check(); refusal != nil {
			t.Errorf("%s: Check refuses it: %v", tt.what, refusal)
		}
		refusal := spec.CheckNew()
		if (refusal == nil) != (tt.says == "") {
			t.Errorf("%s: %v", tt.what, refusal)
			continue
		}
		if refusal != nil && (!strings.Contains(refusal.Message, tt.says) || !strings.HasSuffix(refusal.Key, tt.key)) {
			t.Errorf("%s: %v at %s", tt.what, refusal, refusal.Key)
		}
	}
}
