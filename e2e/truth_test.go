package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/outspan/outspan/internal/procs"
)

// What runs, as the kernel shows it. Nothing in this file asks the product.

// instances returns the processes of each instance on these agents, or on all if none is given. It finds them by the
// environment that every instance gets. A process that has exited and waits to be reaped doesn't count.
func (c *cluster) instances(on ...*member) map[string][]procs.Row {
	if len(on) == 0 {
		on = c.agents
	}
	found := map[string][]procs.Row{}
	for _, p := range procs.Descendants() {
		if p.Zombie {
			continue
		}
		env := environment(p)
		for _, m := range on {
			if env["OUTSPAN_INSTANCE_ID"] != "" && env["OUTSPAN_IP"] == m.address && env["OUTSPAN_NODE"] == m.Name {
				found[env["OUTSPAN_INSTANCE_ID"]] = append(found[env["OUTSPAN_INSTANCE_ID"]], p)
			}
		}
	}
	return found
}

// instancesOf returns the processes of each instance of one job.
func (c *cluster) instancesOf(job string, on ...*member) map[string][]procs.Row {
	found := c.instances(on...)
	// A process that has exited since, such as a check, has no environment any more. One process that names the job is
	// enough.
	maps.DeleteFunc(found, func(_ string, ps []procs.Row) bool {
		return !slices.ContainsFunc(ps, func(p procs.Row) bool { return environment(p)["OUTSPAN_JOB"] == job })
	})
	return found
}

// shims returns the process ids of the shims of these agents, or of all if none is given.
func (c *cluster) shims(on ...*member) []int {
	if len(on) == 0 {
		on = c.agents
	}
	var pids []int
	for pid, p := range procs.Descendants() {
		args := strings.Split(p.Args(), "\x00")
		if p.Zombie || len(args) < 2 || args[1] != "shim" {
			continue
		}
		for _, m := range on {
			if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, m.data()+"/") }) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// caged returns the processes in the memory cgroups of these agents, if the agents use cgroups. The kernel counts them
// there, whatever a process does to its environment.
func (c *cluster) caged(on ...*member) []int {
	var pids []int
	for _, m := range on {
		for _, root := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
			_ = filepath.WalkDir(filepath.Join(root, c.name, m.Name), func(path string, d os.DirEntry, err error) error {
				if err != nil || d.Name() != "cgroup.procs" {
					return nil //nolint:nilerr // a cgroup that is gone has no processes
				}
				text, _ := os.ReadFile(path)
				for _, word := range strings.Fields(string(text)) {
					if pid, err := strconv.Atoi(word); err == nil {
						pids = append(pids, pid)
					}
				}
				return nil
			})
		}
	}
	return pids
}

// empty returns the processes that still run on these agents, by their environments or their cgroups.
func (c *cluster) empty(on ...*member) (left []int) {
	return append(pidsOf(c.instances(on...)), c.caged(on...)...)
}

func pidsOf(instances map[string][]procs.Row) []int {
	var pids []int
	for _, ps := range instances {
		for _, p := range ps {
			pids = append(pids, p.PID)
		}
	}
	slices.Sort(pids)
	return pids
}

// identities returns the identity of each instance's processes, to compare earlier processes with later ones.
func identities(instances map[string][]procs.Row) map[string]string {
	all := map[string]string{}
	for id, ps := range instances {
		var names []string
		for _, p := range ps {
			names = append(names, p.String())
		}
		slices.Sort(names)
		all[id] = strings.Join(names, " ")
	}
	return all
}
