package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The kernel enforces the memory limit. If the kernel kills an instance because of the limit, events and the list of
// instances say so.
// proves P30, S1
func testMemoryCap(t *testing.T, c *cluster) {
	require(t)
	if len(memoryCgroups("")) == 0 {
		lacking(t, "a memory cgroup")
	}
	c.run(t, job{name: "web", count: 2, memory: "48MiB"})
	for id := range c.instancesOf("web") {
		dirs := memoryCgroups(filepath.Join(c.name, "*", id+"*"))
		if len(dirs) != 1 {
			t.Errorf("the memory cgroups of instance %s are %v", id, dirs)
			continue
		}
		if limit := memoryLimit(dirs[0]); limit != fmt.Sprint(48<<20) {
			t.Errorf("the kernel's limit of instance %s is %s, want 48 MiB", id, limit)
		}
	}

	text := strings.Replace(job{name: "hungry", count: 1, memory: "16MiB"}.hcl("/usr/bin/tail"),
		`["demo-app"]`, `["/dev/zero"]`, 1)
	text, _, _ = strings.Cut(text, "    check")
	text += "    restart {\n      attempts = 1\n      delay    = \"100ms\"\n    }\n  }\n}\n"
	c.must(t, "job", "run", c.writeText(t, "hungry.hcl", text), "--detach")
	waitFor(t, "the report that it was out of memory", patience, func() error {
		for _, e := range c.events(t) {
			if e.Type == "instance.status_changed" && e.Data["group"] == "hungry/http" &&
				strings.Contains(e.Data["reason"], "oom") {
				return nil
			}
		}
		return errors.New("no event tells it")
	})
	if out := c.must(t, "instance", "ls", "--job", "hungry", "--all", "-o", "json"); !strings.Contains(out, "oom_killed") {
		t.Errorf("the list of instances does not tell it:\n%s", out)
	}
}

// memoryCgroups returns the directories of the memory cgroups whose paths below the root of a hierarchy match a
// pattern. For the pattern "" it returns the roots of the hierarchies that account for memory.
func memoryCgroups(pattern string) []string {
	var found []string
	for _, root := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		dirs, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, dir := range dirs {
			if memoryLimit(dir) != "" || pattern == "" && hasMemory(dir) {
				found = append(found, dir)
			}
		}
	}
	return found
}

// hasMemory reports whether the hierarchy of cgroups at root accounts for memory.
func hasMemory(root string) bool {
	controllers, _ := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	_, err := os.Stat(filepath.Join(root, "memory.usage_in_bytes"))
	return err == nil || strings.Contains(string(controllers), "memory")
}

// memoryLimit returns the memory limit of a cgroup as the kernel shows it, in bytes or "max". It returns "" if the
// directory has no memory limit.
func memoryLimit(dir string) string {
	for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	return ""
}
