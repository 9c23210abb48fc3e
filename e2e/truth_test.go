package e2e

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/outspan/outspan/internal/procs"
)

// The functions of this file find out from the kernel what runs. They never ask outspan.

// instances returns, by instance id, the processes of the instances on the given agents. Without arguments, it takes
// all agents. It finds processes by the environment that every instance gets, and ignores zombies.
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
			address := cmp.Or(env["OUTSPAN_HOST_IP"], env["OUTSPAN_IP"]) // a container may have an address of its own
			if env["OUTSPAN_INSTANCE_ID"] != "" && address == m.address && env["OUTSPAN_NODE"] == m.Name {
				found[env["OUTSPAN_INSTANCE_ID"]] = append(found[env["OUTSPAN_INSTANCE_ID"]], p)
			}
		}
	}
	return found
}

// instancesOf is like instances, but returns only the instances of one job.
func (c *cluster) instancesOf(job string, on ...*member) map[string][]procs.Row {
	found := c.instances(on...)
	// One process that names the job is enough: another process of the instance, such as a check, may have exited
	// meanwhile, and then it has no environment any more.
	maps.DeleteFunc(found, func(_ string, ps []procs.Row) bool {
		return !slices.ContainsFunc(ps, func(p procs.Row) bool { return environment(p)["OUTSPAN_JOB"] == job })
	})
	return found
}

// shims returns the process ids of the given agents' shims. Without arguments, it takes all agents.
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

// caged returns the ids of the processes in the given agents' memory cgroups, if the agents use cgroups. It also finds
// processes that have changed their environment.
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

// empty returns the ids of the processes that instances still have on the given agents, found by environment or cgroup.
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

// identities returns, by instance id, a text that identifies the instance's processes. The text changes if a process
// starts or ends, so a test can compare two moments.
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
