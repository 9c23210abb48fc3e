package e2e

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/internal/testbed/ctrd"
)

// boxJob is the job file of an exposed service of containers with networks of their own.
const boxJob = `job "box" {
  group "site" {
    count = %d
    container {
      image      = "%s/site:1"
      entrypoint = ["sh", "-c", "exec webserver -p $OUTSPAN_IP:$OUTSPAN_PORT_HTTP -h /www"]
      network    = "bridge"
    }
    budget { min_ready = 2 }
    resources { memory = "48MiB" }
    port "http" { to = 80 }
    service "box" {
      port   = "http"
      expose = %d
    }
    check "alive" {
      type     = "http"
      port     = "http"
      path     = "/index.html"
      interval = "250ms"
    }
    stop { grace = "3s" }
%s  }
}
`

// loneJob is the job file of a group of containers whose slots may have only one holder each. They use the network of
// their node.
const loneJob = `job "lone" {
  group "one" {
    count = %d
    container {
      image      = "%s/site:1"
      entrypoint = ["sh", "-c", "exec sleep 1000000"]
    }
    exclusive {
      lease = "10s"
    }
    resources { memory = "32MiB" }
    stop {
      grace       = "2s"
      drain_delay = "0s"
    }
%s  }
}
`

// crates are what the containers of the cluster need: a registry, its images, and a containerd on each agent's machine.
type crates struct {
	rigs   map[*member]*containerRig
	images []string // references with a digest
	down   map[*member]bool
}

// newCrates starts the registry, where all machines reach it, and the daemons.
func newCrates(x *chaos) *crates {
	x.t.Helper()
	k := &crates{rigs: map[*member]*containerRig{}, down: map[*member]bool{}}
	hub := x.c.name + "-hub"
	x.c.network.ip(x.t, "-n", hub, "addr", "add", "10.83.7.250/24", "dev", "br0")
	listener, err := listenIn("/run/netns/"+hub, "10.83.7.250:0")
	if err != nil {
		x.t.Fatal(err)
	}
	first := newContainerRig(x.t, listener)
	for i, m := range x.c.agents {
		k.rigs[m] = first
		if i > 0 {
			k.rigs[m] = first.another(x.t)
		}
	}
	for i, text := range []string{"one", "two", "three"} {
		image := siteImage(x.t, text, ctrd.File{Name: "work/", Mode: 0o777})
		first.registry.Push(fmt.Sprintf("site:%d", i+1), image)
		k.images = append(k.images, registryName+"/site@"+image.Digest)
	}
	return k
}

// used reports whether the cluster runs containers.
func (k *crates) used() bool { return len(k.rigs) > 0 }

// ports returns the exposed ports.
func (x *chaos) ports() []int {
	if !x.crates.used() {
		return chaosPorts[:1]
	}
	return chaosPorts[:]
}

func (k *crates) registry() *ctrd.Registry {
	for _, rig := range k.rigs {
		return rig.registry
	}
	return nil
}

// choose sets the image of a group that runs one. The first version has a tag, for which an agent asks the registry.
// All others have a digest, so that they can be submitted at any time.
func (k *crates) choose(group map[string]any, n int64) {
	if container, ok := group["container"].(map[string]any); ok && n > 0 {
		container = maps.Clone(container)
		container["image"] = k.images[n%int64(len(k.images))]
		group["container"] = container
	}
}

// changeBox starts a rollout of the service of containers, often to another image, or changes its count. It does
// nothing without containers.
func (w *workload) changeBox(random *rand.Rand) {
	if !w.x.crates.used() {
		return
	}
	if random.IntN(2) == 0 {
		if w.order(random, http.MethodPost, "/v1/jobs", w.spec("box", "box", w.count.Load())).done {
			w.x.book.count("rollouts of containers", 1)
		}
		return
	}
	n := 3 + random.IntN(2)
	if w.order(random, http.MethodPost, "/v1/jobs/box/scale", fmt.Sprintf(`{"count":%d}`, n)).done {
		w.mu.Lock()
		w.box = n
		w.mu.Unlock()
	}
}

// containerFaults lists the faults of containers and of what they need. Those of kind ofRuntime touch no member:
// neither requests of users nor what runs may notice them.
func containerFaults() []fault {
	return []fault{
		{name: "kill-agent-and-containerd", kind: ofAgents, begin: killAgentAndRuntime},
		{name: "kill-shim-of-container", kind: ofInstances, begin: killShimOfContainer},
		{name: "registry-down", kind: ofRuntime, begin: func(s *strike) { s.registry(true, 0) }},
		{name: "kill-containerd", kind: ofRuntime, begin: func(s *strike) { s.stopRuntime(s.machine()) }},
		{name: "kill-all-containerd", kind: ofRuntime, begin: func(s *strike) {
			for _, m := range s.x.c.agents {
				s.stopRuntime(m)
			}
		}},
		{name: "registry-slow", kind: ofRuntime, begin: func(s *strike) {
			s.registry(false, time.Duration(200+s.x.random.IntN(1500))*time.Millisecond)
		}},
		{name: "images-deleted", kind: ofRuntime, begin: func(s *strike) { s.deleteImages(len(s.x.c.agents)) }},
	}
}

// machine returns the machine of a random agent. It touches no member.
func (s *strike) machine() *member {
	m := s.x.c.agents[s.x.random.IntN(len(s.x.c.agents))]
	s.say("at %s", m.Name)
	return m
}

// stopRuntime kills containerd of a machine, if it has one. The repair of the strike starts it.
func (s *strike) stopRuntime(m *member) {
	k := s.x.crates
	if k.rigs[m] == nil || k.down[m] {
		return
	}
	k.down[m] = true
	k.rigs[m].kill(s.x.t)
	s.later(func() { s.x.startRuntime(m) })
}

func (x *chaos) startRuntime(m *member) {
	if x.crates.down[m] {
		delete(x.crates.down, m)
		x.crates.rigs[m].restart(x.t)
	}
}

// registry makes the registry drop or delay requests, and deletes the images of some machines, which then need it.
func (s *strike) registry(down bool, pause time.Duration) {
	s.x.crates.registry().Trouble(down, pause)
	s.say("down %t, pause %s", down, pause)
	s.later(func() { s.x.crates.registry().Trouble(false, 0) })
	s.deleteImages(2)
}

// deleteImages deletes all images of some machines, also those that run.
func (s *strike) deleteImages(machines int) {
	x := s.x
	for _, i := range x.random.Perm(len(x.c.agents))[:machines] {
		m := x.c.agents[i]
		if x.crates.down[m] {
			continue
		}
		for _, namespace := range x.crates.rigs[m].ctr(x.t, "default", "namespaces", "list", "-q") {
			names := x.crates.rigs[m].ctr(x.t, namespace, "images", "list", "-q")
			if len(names) > 0 {
				x.crates.rigs[m].ctr(x.t, namespace, slices.Concat([]string{"images", "remove", "--sync"}, names)...)
			}
			x.book.count("images deleted", len(names))
		}
	}
}

// boxed returns the containers that run on a node, by id. If node is "", it returns those of all nodes.
func (x *chaos) boxed(node string) map[string]*alive {
	found := map[string]*alive{}
	for _, a := range x.kernel.onNode(node) {
		if a.job == "box" || a.job == "lone" {
			found[a.id] = a
		}
	}
	return found
}

// killAgentAndRuntime kills an agent that runs containers, and containerd of its machine. Both return in random order.
// The agent often returns before its node is offline, so that the servers replace none of its containers. They run on:
// none may be started again in place.
func killAgentAndRuntime(s *strike) {
	x, m := s.x, s.containerNode()
	if len(s.w.strikes) == 1 {
		s.w.adopts = &adoption{agent: m, read: len(m.logText(x.t)), boxed: x.boxed(m.Name)}
	}
	s.kill(m)
	s.stopRuntime(m)
	if x.random.IntN(3) > 0 {
		s.say("back at once")
		m.start(x.t)
	}
	if x.random.IntN(2) == 0 {
		s.say("containerd last")
		s.later(func() {
			if !m.Running() {
				m.start(x.t)
			}
			time.Sleep(3 * time.Second)
		})
	} else {
		s.later(func() { x.startRuntime(m) })
	}
}

// containerNode is like agent, but prefers the agent of a container.
func (s *strike) containerNode() *member {
	all := s.x.boxed("")
	if len(all) == 0 {
		return s.agent()
	}
	ids := slices.Sorted(maps.Keys(all))
	m := s.x.c.member(all[ids[s.x.random.IntN(len(ids))]].node)
	s.x.used[m] = time.Now()
	s.hit(m)
	return m
}

// restartedByEnd matches the log of a restart after the end of a program, which no check and no person asked for.
var restartedByEnd = regexp.MustCompile(` reason="?(signaled|killed|stopped)`)

// adoption has the containers of an agent when it was killed, by id, and how much its log said by then.
type adoption struct {
	agent *member
	read  int // bytes
	boxed map[string]*alive
}

// judgeAdopted checks that the containers that ran when a window's fault killed their agent have a process of that
// time, if the servers still want them. The next agent may not have ended any.
func (x *chaos) judgeAdopted(w *window) {
	if w.adopts == nil || len(w.strikes) != 1 || !x.book.clean() {
		return
	}
	for line := range strings.Lines(w.adopts.agent.logText(x.t)[w.adopts.read:]) {
		_, id, _ := strings.Cut(line, " instance=")
		id, _, _ = strings.Cut(id, " ")
		if w.adopts.boxed[id] != nil && strings.Contains(line, "program is restarted") && restartedByEnd.MatchString(line) {
			x.book.violate("S15: container %s of %s was killed in place of being adopted: %s", id, w.adopts.agent.Name, line)
		}
	}
	for id, now := range x.boxed("") {
		old := w.adopts.boxed[id]
		if old == nil {
			continue
		}
		if !slices.ContainsFunc(now.processes, func(p procs.Row) bool {
			return slices.ContainsFunc(old.processes, func(o procs.Row) bool { return o.PID == p.PID && o.Start == p.Start })
		}) {
			x.book.violate("S15: container %s on %s was not adopted: it runs as %v, and ran as %v", id, now.node, now.processes,
				old.processes)
		}
		x.book.count("containers adopted", 1)
	}
}

// killShimOfContainer kills the shim of a container. The agent must see that, and start the container again.
func killShimOfContainer(s *strike) {
	all := s.x.boxed("")
	if len(all) == 0 {
		return
	}
	ids := slices.Sorted(maps.Keys(all))
	a := all[ids[s.x.random.IntN(len(ids))]]
	s.hit(s.x.c.member(a.node))
	s.say("%s of %s", a.id, a.job)
	if pid := s.x.shimOf(a); pid > 0 {
		procs.Kill(pid)
	}
}

// emptyMachine removes what the kernel and containerd keep of an agent that died, as a new machine has none of it.
func (x *chaos) emptyMachine(m *member) {
	x.t.Helper()
	rig := x.crates.rigs[m]
	if rig == nil {
		return
	}
	if !x.crates.down[m] {
		rig.kill(x.t)
	}
	delete(x.crates.down, m)
	if err := errors.Join(unmountBelow(m.data()), rig.daemon.Wipe()); err != nil {
		x.t.Fatalf("empty the machine of %s: %v", m.Name, err)
	}
	const script = `iptables-save | grep -v -e outspan -e CNI- | iptables-restore
ip -o link show type bridge | cut -d: -f2 | xargs -rn1 ip link delete
ip -o link show type veth | cut -d: -f2 | cut -d@ -f1 | grep -v eth0 | xargs -rn1 ip link delete`
	out, err := output(exec.Command("nsenter", "--net="+x.c.network.space(m), "--", "sh", "-c", script), 10*time.Second)
	if err != nil && out != "" {
		x.t.Fatalf("empty the network of %s: %v\n%s", m.Name, err, out)
	}
	rig.restart(x.t)
}

// unmountBelow unmounts everything below a directory.
func unmountBelow(dir string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, dir+"/") {
			err = errors.Join(err, unix.Unmount(at, unix.MNT_DETACH))
		}
	}
	return err
}

// emptied stops all jobs and prunes all images, and checks that nothing is left: no process, shim or cgroup of an
// instance, no network of a container, and nothing at all in any containerd. It does nothing without containers.
func (x *chaos) emptied() {
	x.t.Helper()
	if !x.crates.used() || !x.book.clean() || x.t.Failed() {
		return
	}
	x.c.reset(x.t)
	x.wait("L2: nothing left behind in the kernel", 30*time.Second, func() error { return x.kernel.leaks() })
	for _, m := range x.c.agents {
		x.c.must(x.t, "image", "prune", "--node", m.Name)
	}
	for _, m := range x.c.agents {
		// An agent may forget an instance only with the next answer to its poll, which takes up to 45 s.
		x.wait("L2: nothing left in a containerd", 75*time.Second, func() error {
			rig := x.crates.rigs[m]
			for _, namespace := range rig.ctr(x.t, "default", "namespaces", "list", "-q") {
				if err := rig.holdsNothing(x.t, namespace); err != nil {
					return fmt.Errorf("%s of %s: %w", namespace, m.Name, err)
				}
			}
			return nil
		})
	}
	x.c.nothingOfBridge(x.t, x.c.agents...)
}
