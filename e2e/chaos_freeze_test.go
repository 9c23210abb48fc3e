package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// freezeDir freezes or thaws all processes in a cgroup of version 1 or 2.
func freezeDir(dir string, frozen bool) error {
	file, word := "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[frozen]
	if _, err := os.Stat(filepath.Join(dir, "cgroup.freeze")); err == nil {
		file, word = "cgroup.freeze", map[bool]string{true: "1", false: "0"}[frozen]
	}
	return os.WriteFile(filepath.Join(dir, file), []byte(word), 0o644)
}

// freezerRoot returns the directory below which cgroups can be frozen.
func freezerRoot() string {
	if _, err := os.Stat("/sys/fs/cgroup/freezer"); err == nil {
		return "/sys/fs/cgroup/freezer"
	}
	return "/sys/fs/cgroup"
}

// freezeInstance freezes the processes of an instance, but not its shim.
func freezeInstance(s *strike) {
	a := s.instance()
	if a == nil {
		return
	}
	dirs, _ := filepath.Glob(filepath.Join(freezerRoot(), s.x.c.name, a.node, a.id+"*"))
	for _, dir := range dirs {
		s.x.kernel.freeze(a.id)
		if err := freezeDir(dir, true); err != nil {
			s.say("not frozen: %v", err) // the instance may have just stopped
		}
		s.later(func() {
			s.x.kernel.thaw(a.id)
			_ = freezeDir(dir, false) // the directory is gone if the product killed the instance and removed its cgroup
		})
	}
}

// freezeMachine freezes an agent, its door, its shims, all its instances and containerd, as a hypervisor does when it
// moves a machine. The repair of the strike thaws them, unless the caller has called thaw before.
func (s *strike) freezeMachine(m *member) (thaw func()) {
	x := s.x
	own, below := filepath.Join(freezerRoot(), x.c.name+"-"+m.Name), filepath.Join(freezerRoot(), x.c.name, m.Name)
	if err := os.MkdirAll(own, 0o755); err != nil {
		x.t.Fatal(err)
	}
	pids := slices.Concat(x.c.shims(m), x.c.doorsOf(m), []int{m.PID()})
	if rig := x.crates.rigs[m]; rig != nil {
		pids = append(pids, rig.daemon.PID())
	}
	for _, pid := range pids {
		_ = os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0o644) // the process may have exited
	}
	if err := freezeDir(own, true); err != nil {
		x.t.Fatalf("freeze %s: %v", m.Name, err)
	}
	for _, a := range x.kernel.onNode(m.Name) {
		x.kernel.freeze(a.id)
	}
	_ = freezeDir(below, true) // this cgroup does not exist if the agent runs no instances
	once := false
	thaw = func() {
		if once {
			return
		}
		once = true
		x.kernel.thawAll()
		for _, dir := range []string{below, own} {
			if err := freezeDir(dir, false); err != nil && !os.IsNotExist(err) {
				x.t.Errorf("thaw %s: %v", m.Name, err)
			}
		}
	}
	s.later(thaw)
	return thaw
}

// thawAll records that all frozen instances run again.
func (k *kernelEye) thawAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, thawed := range k.frozen {
		if thawed.IsZero() {
			k.frozen[id] = time.Now()
		}
	}
}

// confirmDead freezes a machine that has holders of exclusive slots, and falsely confirms that it is dead. When other
// machines have new holders, it thaws the machine. The old holders must be dead within a second after the thaw, so that
// the false confirmation does no harm.
func confirmDead(s *strike) {
	m, x := s.holderNode(), s.x
	var old []*alive
	for _, a := range x.kernel.of("solo") {
		if a.node == m.Name {
			old = append(old, a)
		}
	}
	thaw := s.freezeMachine(m)
	if err := within(chaosPatience, func() error {
		if _, ok := x.story.offlineAt(m); !ok {
			return fmt.Errorf("%s is not offline", m.Name)
		}
		return nil
	}); err != nil {
		x.book.violate("L4: %s is frozen: %v", m.Name, err)
		return
	}
	if f := x.work.order(x.random, http.MethodPost, "/v1/nodes/"+m.Name+"/confirm-dead", `{"force":true}`); !f.done {
		s.say("not confirmed: %s", f.body) // because of a hold, or because the node has returned
		return
	}
	others := func() (n int) {
		for _, a := range x.kernel.of("solo") {
			n += one(a.node != m.Name)
		}
		return n
	}
	if err := within(chaosPatience, func() error {
		if n := others(); n < chaosCounts["solo"] {
			return fmt.Errorf("%d of %d hold", n, chaosCounts["solo"])
		}
		return nil
	}); err != nil {
		x.book.say("no new holder while %s is frozen: %v", m.Name, err)
	}
	thaw()
	thawed := time.Now()
	dead := within(thawLimit+kernelSlack, func() error {
		for _, a := range old {
			if bothLive([]*alive{a}) {
				return fmt.Errorf("%s lives", a.id)
			}
		}
		return nil
	})
	took := time.Since(thawed)
	if gap := x.kernel.starved(); dead != nil && gap > kernelSlack {
		x.book.say("%v after %s, and this machine stood still for %s: not judged", dead, took, gap)
	} else if dead != nil {
		x.book.violate("S2: a holder on %s that was confirmed dead lives %s after thawing: %v", m.Name, took, dead)
	}
	x.book.longest("life of a fenced holder behind its thaw", took)
	s.say("%d holders fenced %s after thawing", len(old), took.Round(time.Millisecond))
}
