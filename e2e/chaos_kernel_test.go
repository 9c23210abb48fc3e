package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// kernelLook is the time between two readings of the process table. thawLimit is how long a holder may run beside its
// successor after it was thawed. kernelSlack is how late a reading may be.
const (
	kernelLook  = 100 * time.Millisecond
	thawLimit   = time.Second
	kernelSlack = 500 * time.Millisecond
)

// alive is an instance with at least one process, as the kernel shows it.
type alive struct {
	id, job, slot, node string
	processes           []procs.Row
}

// kernelEye reads the process table every kernelLook, and checks S1 and S2. It uses nothing that the product reports.
type kernelEye struct {
	x    *chaos
	done sync.WaitGroup
	quit chan struct{}

	mu     sync.Mutex
	cache  map[string]map[string]string // environment of each process of an instance, by the process's identity
	frozen map[string]time.Time         // by instance that a fault froze: when it was thawed, or zero while it is frozen
	last   time.Time
	gap    time.Duration // the longest time between two readings since the last call of starved
	looks  int
}

func watchKernel(x *chaos) *kernelEye {
	k := &kernelEye{x: x, quit: make(chan struct{}), cache: map[string]map[string]string{}, frozen: map[string]time.Time{}}
	k.done.Go(func() {
		tick := time.NewTicker(kernelLook)
		defer tick.Stop()
		for {
			select {
			case <-k.quit:
				return
			case <-tick.C:
				k.look()
			}
		}
	})
	return k
}

func (k *kernelEye) stop() {
	close(k.quit)
	k.done.Wait()
	k.x.book.count("looks at the process table", k.looks)
}

// look checks what runs now: S2 each time, and S1 every tenth time.
func (k *kernelEye) look() {
	all := k.instances()
	now := time.Now()
	k.mu.Lock()
	if !k.last.IsZero() {
		k.gap = max(k.gap, now.Sub(k.last))
	}
	k.last = now
	k.looks++
	everySecond := k.looks%10 == 0
	k.mu.Unlock()
	k.judgeHolders(all)
	if everySecond {
		k.judgeMemory()
	}
}

// starved returns the longest time between two readings since the last call. If the test machine itself stood still, a
// missed deadline proves nothing.
func (k *kernelEye) starved() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	gap := k.gap
	k.gap = 0
	return gap
}

// instances returns the instances with a running process, as the processes' environments show them. The environment of
// an instance's process is read only once.
func (k *kernelEye) instances() map[string]*alive {
	found, seen := map[string]*alive{}, map[string]map[string]string{}
	for _, p := range procs.Table() {
		if p.Zombie {
			continue
		}
		k.mu.Lock()
		env, known := k.cache[p.String()]
		k.mu.Unlock()
		if !known {
			if env = environment(p); !k.ours(p, env) {
				continue // not cached, because the process may become part of an instance with its next exec
			}
		}
		seen[p.String()] = env
		id := env["OUTSPAN_INSTANCE_ID"]
		if found[id] == nil {
			found[id] = &alive{id: id, job: env["OUTSPAN_JOB"], slot: env["OUTSPAN_SLOT"], node: env["OUTSPAN_NODE"]}
		}
		found[id].processes = append(found[id].processes, p)
	}
	k.mu.Lock()
	k.cache = seen
	k.mu.Unlock()
	return found
}

// ours reports whether a process is of an instance of the cluster. A container's init is none, and a container has no
// OUTSPAN_DIR.
func (k *kernelEye) ours(p procs.Row, env map[string]string) bool {
	if env["OUTSPAN_INSTANCE_ID"] == "" || env["OUTSPAN_NODE"] == "" {
		return false
	}
	if dir := env["OUTSPAN_DIR"]; dir != "" {
		return strings.HasPrefix(dir, k.x.c.dir)
	}
	groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
	return strings.Contains(string(groups), "/"+k.x.c.name+"/")
}

// onNode returns the instances that run on a node, ordered by id. If node is "", it returns the instances on all nodes.
func (k *kernelEye) onNode(node string) (on []*alive) {
	all := k.instances()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if node == "" || all[id].node == node {
			on = append(on, all[id])
		}
	}
	return on
}

// of returns the running instances of one job, ordered by id.
func (k *kernelEye) of(job string) []*alive {
	return slices.DeleteFunc(k.onNode(""), func(a *alive) bool { return a.job != job })
}

// freeze records that a fault froze an instance. thaw records that the instance was thawed.
func (k *kernelEye) freeze(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.frozen[id] = time.Time{}
}

func (k *kernelEye) thaw(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.frozen[id] = time.Now()
}

// harmless reports whether an instance is frozen, or was thawed so recently that its shim may not have killed it yet.
func (k *kernelEye) harmless(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	thawed, was := k.frozen[id]
	return was && (thawed.IsZero() || time.Since(thawed) < thawLimit+kernelSlack)
}

// judgeHolders checks S2: each exclusive slot has at most one running instance.
func (k *kernelEye) judgeHolders(all map[string]*alive) {
	holders := map[string][]*alive{}
	for _, a := range all {
		if slices.Contains(exclusiveJobs, a.job) && !k.harmless(a.id) {
			holders[a.job+"/"+a.slot] = append(holders[a.job+"/"+a.slot], a)
		}
	}
	for slot, list := range holders {
		if len(list) < 2 || !bothLive(list) {
			continue
		}
		var text []string
		for _, a := range list {
			text = append(text, fmt.Sprintf("%s on %s (processes %v)", a.id, a.node, a.processes))
		}
		k.x.book.violate("S2: slot %s has two living holders: %s", slot, strings.Join(text, " and "))
	}
}

// bothLive reports whether every listed instance still has a process. It reads the processes again, because some may
// have exited while the table was read.
func bothLive(list []*alive) bool {
	for _, a := range list {
		if !slices.ContainsFunc(a.processes, func(p procs.Row) bool {
			now, ok := procs.RowOf(p.PID)
			return ok && now.Start == p.Start && !now.Zombie
		}) {
			return false
		}
	}
	return true
}

// judgeMemory checks S1: the sum of the memory limits of a node's cgroups is at most the node's memory.
func (k *kernelEye) judgeMemory() {
	for _, m := range k.x.c.agents {
		sum := int64(0)
		for _, dir := range memoryCgroups(filepath.Join(k.x.c.name, m.Name, "*")) {
			if procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")); len(procs) > 0 {
				limit, _ := strconv.ParseInt(memoryLimit(dir), 10, 64)
				sum += limit
			}
		}
		if sum > chaosMemory {
			k.x.book.violate("S1: the hard caps of what runs on %s are %d MiB, it has %d", m.Name,
				sum>>20, int64(chaosMemory)>>20)
		}
	}
}

// judgeWitness checks S2 with the file to which the holders of one exclusive slot write. Each line has an instance, its
// fencing epoch if it has one, its node and the uptime. A holder must not write after a later holder has written. Only
// a thawed holder may, because it runs for a moment before its shim kills it.
func (k *kernelEye) judgeWitness(job string) {
	text, err := os.ReadFile(k.x.witness(job))
	if err != nil {
		k.x.book.violate("the witness of %s: %v", job, err)
		return
	}
	epochs, last, highest := map[string]int{}, "", -1 // the job base has no epochs
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for n, line := range lines {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] == last {
			continue // an incomplete line, or the same holder again
		}
		id, epoch := words[0], 0
		if len(words) > 3 {
			epoch, _ = strconv.Atoi(words[1])
		}
		context := strings.Join(lines[max(0, n-8):n+1], "\n")
		first, known := epochs[id]
		switch {
		case !known && len(words) > 3 && epoch <= highest:
			k.x.book.violate("S2: holder %s of %s begins with epoch %d behind %d (instance, epoch, node, uptime):\n%s", id,
				job, epoch, highest, context)
		case known && epoch != first:
			k.x.book.violate("S2: holder %s of %s writes under another epoch than its own:\n%s", id, job, context)
		case known && k.thawed(id):
			continue // a thawed holder may write with its old epoch until its shim kills it
		case known:
			k.x.book.violate("S2: holder %s of %s writes again behind %s (instance, epoch, node, uptime):\n%s",
				id, job, last, context)
		}
		epochs[id], last, highest = epoch, id, max(highest, epoch)
	}
	k.x.book.greatest("holders of "+job, len(epochs))
}

// thawed reports whether an instance was ever frozen.
func (k *kernelEye) thawed(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, was := k.frozen[id]
	return was
}

// leaks returns an error if there are cgroups or shims of instances that don't run. Cgroups and shims must disappear
// soon after their instance.
func (k *kernelEye) leaks() error {
	running := map[string]bool{}
	for _, a := range k.onNode("") {
		running[a.id] = true
	}
	for _, m := range k.x.c.agents {
		for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			dirs, _ := filepath.Glob(filepath.Join(pattern, k.x.c.name, m.Name, "*"))
			for _, dir := range dirs {
				info, err := os.Stat(dir)
				if err != nil || !info.IsDir() {
					continue
				}
				if !slices.ContainsFunc(slices.Collect(maps.Keys(running)), func(id string) bool {
					return strings.HasPrefix(filepath.Base(dir), id)
				}) {
					return fmt.Errorf("cgroup %s is of nothing that runs", dir)
				}
			}
		}
	}
	if shims := k.x.c.shims(); len(shims) != len(running) {
		return fmt.Errorf("%d shims %v keep %d instances", len(shims), shims, len(running))
	}
	return nil
}
