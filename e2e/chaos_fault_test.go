package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// kind says what a fault breaks. Two faults of the same window have different kinds.
type kind string

const (
	ofServers   kind = "servers"
	ofAgents    kind = "agents"
	ofInstances kind = "instances"
	ofNetwork   kind = "network"
	ofRuntime   kind = "runtime" // containerd, images and their registry
)

// fault is one way to break something.
type fault struct {
	name       string
	kind       kind
	alone      bool // never used together with another fault
	rewrites   bool // the fault includes a restore, which undoes acknowledged writes
	hurtsUsers bool // requests of users may fail
	begin      func(*strike)
}

// strike is one use of a fault.
type strike struct {
	x      *chaos
	w      *window
	fault  fault
	on     []*member // members that the strike touches
	down   map[*member]bool
	mayEnd *member // a member that may exit by itself, or nil
	note   string
	hold   time.Duration // the strike lasts at least this long
	mends  []func()
}

// hit records members that the strike is about to touch.
func (s *strike) hit(members ...*member) {
	s.x.story.mu.Lock() // the story reads s.on when it judges events
	defer s.x.story.mu.Unlock()
	s.on = append(s.on, members...)
}

// ends records a member that the strike stops on purpose. mend starts it again.
func (s *strike) ends(m *member) {
	if s.down == nil {
		s.down = map[*member]bool{}
	}
	s.down[m] = true
}

// later registers a step of the strike's repair. mend calls the steps in reverse order.
func (s *strike) later(do func()) { s.mends = append(s.mends, do) }

func (s *strike) mend() {
	for _, do := range slices.Backward(s.mends) {
		do()
	}
	for m := range s.down {
		if !m.Running() {
			m.start(s.x.t)
		}
	}
	s.revive()
}

// revive starts the member in mayEnd again if it has exited. It also clears mayEnd, because the member must not exit
// again.
func (s *strike) revive() {
	if m := s.mayEnd; m != nil && m.hasEnded() {
		s.mayEnd = nil
		m.start(s.x.t)
	}
}

// hasEnded reports whether a member has exited. If the member's log says that it must exit, hasEnded waits up to 10 s
// for the exit, because a fault that delays system calls also delays the exit.
func (m *member) hasEnded() bool {
	if strings.Contains(m.LastLines(1), "this server must not go on") {
		_ = within(10*time.Second, func() error {
			if m.Running() {
				return errors.New("it runs")
			}
			return nil
		})
	}
	return !m.Running()
}

func (s *strike) say(format string, args ...any) { s.note += fmt.Sprintf(format, args...) + " " }

// leader returns the leader, and records it as touched by the strike. follower does the same with a random other
// server.
func (s *strike) leader() *member {
	m := s.x.c.leader(s.x.t)
	s.hit(m)
	return m
}

func (s *strike) follower() *member {
	rest := without(s.x.c.servers, s.x.c.leader(s.x.t))
	m := rest[s.x.random.IntN(len(rest))]
	s.hit(m)
	return m
}

func (s *strike) anyServer() *member {
	m := s.x.c.servers[s.x.random.IntN(len(s.x.c.servers))]
	s.hit(m)
	return m
}

// rest is how long the method agent does not pick one of the first two agents again. A node that goes offline too often
// gets no new instances for a while. renewHeldBack replaces the machines of such nodes, but not these two, because the
// workload needs their labels and the volume of the first one.
const rest = 12 * time.Minute

// agent returns a random agent, and records it as touched by the strike. It also records the time, because the fault
// may take the agent's node offline.
func (s *strike) agent() *member {
	var fit []*member
	for i, m := range s.x.c.agents {
		if used, ok := s.x.used[m]; i > 1 || !ok || time.Since(used) > rest {
			fit = append(fit, m)
		}
	}
	m := fit[s.x.random.IntN(len(fit))]
	s.x.used[m] = time.Now()
	s.hit(m)
	return m
}

// holderNode is like agent, but prefers the agent of an instance of the exclusive job solo.
func (s *strike) holderNode() *member {
	holders := s.x.kernel.of("solo")
	if len(holders) == 0 {
		return s.agent()
	}
	m := s.x.c.member(holders[s.x.random.IntN(len(holders))].node)
	s.x.used[m] = time.Now()
	s.hit(m)
	return m
}

// instance returns a random running instance, or nil if nothing runs. It records the instance's agent as touched by the
// strike.
func (s *strike) instance() *alive {
	all := s.x.kernel.onNode("")
	if len(all) == 0 {
		return nil
	}
	a := all[s.x.random.IntN(len(all))]
	s.hit(s.x.c.member(a.node))
	s.say("%s of %s", a.id, a.job)
	return a
}

// faults lists all faults, in a fixed order. next shuffles them.
func (x *chaos) faults() []fault {
	all := slices.Concat(processFaults(), networkFaults(), diskFaults(), memberFaults(), rotationFaults(),
		trustFaults(), returnFaults())
	if x.crates.used() {
		all = append(all, containerFaults()...)
	}
	return all
}

func processFaults() []fault {
	return []fault{
		{name: "kill-leader", kind: ofServers, begin: func(s *strike) { s.kill(s.leader()) }},
		{name: "kill-follower", kind: ofServers, begin: func(s *strike) { s.kill(s.follower()) }},
		{name: "kill-majority", kind: ofServers, alone: true, begin: func(s *strike) {
			leader, follower := s.leader(), s.follower()
			s.kill(leader)
			s.kill(follower)
		}},
		{name: "kill-all-servers", kind: ofServers, alone: true, begin: func(s *strike) {
			s.hit(s.x.c.servers...)
			for _, m := range s.x.c.servers {
				s.kill(m)
			}
		}},
		{name: "kill-leader-after-return", kind: ofServers, alone: true, begin: leaderAfterReturn},
		{name: "stop-leader", kind: ofServers, begin: func(s *strike) { s.pause(s.leader()) }},
		{name: "stop-follower", kind: ofServers, begin: func(s *strike) { s.pause(s.follower()) }},
		{name: "kill-agent", kind: ofAgents, begin: func(s *strike) { s.kill(s.agent()) }},
		{name: "stop-agent", kind: ofAgents, begin: func(s *strike) { s.pause(s.agent()) }},
		{name: "kill-door", kind: ofAgents, begin: func(s *strike) { s.door(syscall.SIGKILL) }},
		{name: "stop-door", kind: ofAgents, begin: func(s *strike) {
			s.hold = 12 * time.Second // the agent replaces a door that has not answered for 10 s
			s.door(syscall.SIGSTOP)
		}},
		{name: "kill-instance", kind: ofInstances, begin: killInstance},
		{name: "kill-shim", kind: ofInstances, begin: killShim},
		{name: "stop-instance", kind: ofInstances, begin: stopInstance},
		{name: "freeze-instance", kind: ofInstances, begin: freezeInstance},
		{name: "freeze-machine", kind: ofAgents, begin: func(s *strike) { s.freezeMachine(s.agent()) }},
		{name: "freeze-holder-confirm-dead", kind: ofAgents, alone: true, begin: confirmDead},
		{name: "machine-dies", kind: ofAgents, begin: machineDies},
	}
}

func (s *strike) kill(m *member) {
	s.ends(m)
	m.Kill()
}

// pause stops a process until the strike is repaired, as swapping or a debugger may.
func (s *strike) pause(m *member) {
	_ = m.Signal(syscall.SIGSTOP)
	s.later(func() { _ = m.Signal(syscall.SIGCONT) })
}

// leaderAfterReturn kills the leader when another server was just started again and may still lag. What agents were
// assigned while that server was down must remain valid.
func leaderAfterReturn(s *strike) {
	back, leader := s.follower(), s.leader()
	back.Kill()
	time.Sleep(time.Duration(s.x.random.IntN(3000)) * time.Millisecond)
	back.start(s.x.t)
	s.kill(leader)
}

// door sends a signal to the process that forwards an agent's exposed ports. The agent replaces that process if it is
// dead or does not answer.
func (s *strike) door(signal syscall.Signal) {
	m := s.x.c.agents[s.x.random.IntN(len(s.x.c.agents))]
	s.hit(m)
	for _, pid := range s.x.c.doorsOf(m) {
		_ = syscall.Kill(pid, signal)
		s.later(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	}
}

func killInstance(s *strike) {
	if a := s.instance(); a != nil {
		for _, p := range a.processes {
			procs.Kill(p.PID)
		}
	}
}

func killShim(s *strike) {
	a := s.instance()
	if a == nil {
		return
	}
	if pid := s.x.shimOf(a); pid > 0 {
		procs.Kill(pid)
	}
}

// shimOf returns the process id of an instance's shim. It returns 0 if it finds no shim.
func (x *chaos) shimOf(a *alive) int {
	table := procs.Table()
	for _, pid := range x.c.shims(x.c.member(a.node)) {
		if strings.Contains(table[pid].Args(), "/"+a.id+"\x00") {
			return pid
		}
	}
	return 0
}

// stopInstance sends SIGSTOP to an instance and its shim together.
func stopInstance(s *strike) {
	a := s.instance()
	if a == nil {
		return
	}
	s.signalled(a)
}

func (s *strike) signalled(a *alive) {
	pids := pidsOf(map[string][]procs.Row{a.id: a.processes})
	if shim := s.x.shimOf(a); shim > 0 {
		pids = append(pids, shim)
	}
	s.x.kernel.freeze(a.id)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	s.later(func() {
		s.x.kernel.thaw(a.id)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	})
}

// machineDies kills an agent and everything that it runs. The servers must mark its node offline in time (L4).
func machineDies(s *strike) {
	m := s.agent()
	s.ends(m)
	s.hold = chaosAfter + 2*chaosBeat + 4*time.Second
	began := time.Now()
	s.stopRuntime(m)
	m.die(s.x.t)
	s.later(func() {
		limit := chaosAfter + 2*chaosBeat + 2*time.Second
		at, marked := s.x.story.offlineAt(m)
		if !marked {
			at, marked = s.x.waitOffline(m)
		}
		gap := s.x.kernel.starved()
		switch took := at.Sub(began); {
		case len(s.w.strikes) > 1 || gap > time.Second:
			s.x.book.say("the death of %s is judged by nobody: %d faults, machine stood still for %s",
				m.Name, len(s.w.strikes), gap)
		case !marked || took > limit+time.Second:
			s.x.book.violate("L4: %s died and was marked offline after %s (ever: %t), want %s", m.Name, took, marked, limit)
		default:
			s.x.book.longest("detection of a dead machine", took)
		}
	})
}

// waitOffline logs the state of a node that should be offline by now, and waits up to 10 s until the node is offline.
func (x *chaos) waitOffline(m *member) (at time.Time, marked bool) {
	var node json.RawMessage
	err := x.get("/v1/nodes/"+m.Name, &node)
	x.book.say("%s is not offline yet: %s (%v)", m.Name, node, err)
	_ = within(10*time.Second, func() error {
		if at, marked = x.story.offlineAt(m); !marked {
			return errors.New("not yet")
		}
		return nil
	})
	return at, marked
}

// For a server whose log says that it must exit, hasEnded waits until the server has exited. For any other running
// server it returns false at once.
func TestHasEnded(t *testing.T) {
	for _, tt := range []struct {
		says  string
		ended bool
	}{{"this server must not go on", true}, {"a failed write", false}} {
		m := (&cluster{dir: t.TempDir()}).newMember("server", "s1", "127.0.0.1")
		if err := os.WriteFile(m.Log, []byte("[INFO] leading\n[ERROR] "+tt.says+": error=\"the disk hangs\"\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		m.Command = []string{"sleep", "1"}
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		if got := m.hasEnded(); got != tt.ended {
			t.Errorf("%s: ended %v", tt.says, got)
		}
		<-m.Ended
	}
}
