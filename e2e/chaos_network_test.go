package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

func networkFaults() []fault {
	return []fault{
		{name: "isolate-leader", kind: ofServers, begin: func(s *strike) { s.isolate(s.leader()) }},
		{name: "isolate-follower", kind: ofServers, begin: func(s *strike) { s.isolate(s.follower()) }},
		{name: "split-servers", kind: ofServers, alone: true, begin: func(s *strike) { // no server reaches another
			s.hit(s.x.c.servers...)
			for i, m := range s.x.c.servers {
				s.cut(m, s.x.c.servers[:i])
			}
		}},
		{name: "cut-leader-follower", kind: ofServers, begin: func(s *strike) {
			m := s.leader()
			s.cut(m, []*member{without(s.x.c.servers, m)[s.x.random.IntN(2)]})
		}},
		{name: "deaf-leader", kind: ofServers, begin: func(s *strike) { // it receives nothing from other servers
			m := s.leader()
			s.lose(m, without(s.x.c.servers, m))
		}},
		{name: "mute-leader", kind: ofServers, begin: func(s *strike) {
			m := s.leader()
			for _, other := range without(s.x.c.servers, m) {
				s.lose(other, []*member{m})
			}
		}},
		{name: "leader-without-agents", kind: ofServers, begin: func(s *strike) { s.cut(s.leader(), s.x.c.agents) }},
		{name: "leader-deaf-for-agents", kind: ofServers, begin: func(s *strike) { s.lose(s.leader(), s.x.c.agents) }},
		{name: "server-without-gossip", kind: ofServers, begin: func(s *strike) {
			m := s.anyServer()
			s.cut(m, without(s.x.c.members(), m), "-p", "udp")
		}},
		{name: "server-without-tcp", kind: ofServers, begin: func(s *strike) {
			m := s.anyServer()
			s.cut(m, without(s.x.c.members(), m), "-p", "tcp")
		}},
		{name: "lossy-server", kind: ofNetwork, begin: func(s *strike) { s.lossy(s.anyServer()) }},
		{name: "slow-server", kind: ofNetwork, begin: func(s *strike) { s.slow(s.anyServer()) }},
		{name: "duplicates-server", kind: ofNetwork, begin: func(s *strike) { s.duplicate(s.anyServer()) }},
		{name: "isolate-agent", kind: ofAgents, begin: func(s *strike) { s.isolate(s.agent()) }},
		{name: "agent-without-servers", kind: ofAgents, begin: func(s *strike) { s.cut(s.agent(), s.x.c.servers) }},
		{name: "agent-without-leader", kind: ofAgents, begin: func(s *strike) {
			s.cut(s.agent(), []*member{s.x.c.leader(s.x.t)})
		}},
		{name: "agent-without-gossip", kind: ofAgents, begin: func(s *strike) {
			m := s.agent()
			s.cut(m, without(s.x.c.members(), m), "-p", "udp")
		}},
		{name: "agent-without-tcp", kind: ofAgents, begin: func(s *strike) {
			m := s.agent()
			s.cut(m, without(s.x.c.members(), m), "-p", "tcp")
		}},
		{name: "deaf-agent", kind: ofAgents, begin: func(s *strike) {
			m := s.agent()
			s.lose(m, without(s.x.c.members(), m))
		}},
		{name: "lossy-agent", kind: ofAgents, begin: func(s *strike) { s.lossy(s.agent()) }},
		{name: "slow-agent", kind: ofAgents, begin: func(s *strike) { s.slow(s.agent()) }},
		{name: "mass-cut", kind: ofNetwork, alone: true, hurtsUsers: true, begin: massCut},
	}
}

// rule adds a rule of iptables at a member until the strike is repaired. chain is CHAIN, or TABLE/CHAIN if the table is
// not filter.
func (s *strike) rule(at *member, chain string, rule ...string) {
	table, chain, ok := strings.Cut(chain, "/")
	if !ok {
		table, chain = "filter", table
	}
	s.x.c.network.iptables(s.x.t, at, slices.Concat([]string{"-t", table, "-A", chain}, rule)...)
	s.later(func() { s.x.c.network.iptables(s.x.t, at, slices.Concat([]string{"-t", table, "-D", chain}, rule)...) })
}

// lose drops the packets that a member receives from the listed members. Without arguments in which, it drops all of
// them. Otherwise it drops only the packets that this match of iptables selects.
func (s *strike) lose(at *member, from []*member, which ...string) {
	for _, m := range from {
		if m != at {
			s.rule(at, "INPUT", slices.Concat([]string{"-s", m.address}, which, []string{"-j", "DROP"})...)
		}
	}
}

// cut drops the packets between a member and the listed members, in both directions. It selects packets as lose does.
func (s *strike) cut(m *member, others []*member, which ...string) {
	s.lose(m, others, which...)
	for _, other := range others {
		s.lose(other, []*member{m}, which...)
	}
}

func (s *strike) isolate(m *member) { s.cut(m, without(s.x.c.members(), m)) }

// lossy drops 2 to 30 % of the packets that a member sends. If the kernel lacks netem, it also drops as many of the
// packets that the member receives.
func (s *strike) lossy(m *member) {
	part := fmt.Sprintf("%.2f", 0.02+0.28*s.x.random.Float64())
	s.say("%s of its packets", part)
	if s.x.netem(s, m, "loss", fmt.Sprintf("%s%%", strings.TrimPrefix(part, "0."))) {
		return
	}
	for _, chain := range []string{"INPUT", "OUTPUT"} {
		s.rule(m, chain, "-m", "statistic", "--mode", "random", "--probability", part, "-j", "DROP")
	}
}

// slow delays and reorders the packets that a member sends. If the kernel lacks netem, it limits their rate instead.
func (s *strike) slow(m *member) {
	if s.x.netem(s, m, "delay", "80ms", "60ms", "reorder", "25%") {
		s.say("80 ms, out of order")
		return
	}
	s.say("512 kbit/s")
	s.traffic(m, "tbf", "rate", "512kbit", "burst", "8kb", "latency", "600ms")
}

// duplicate makes a member send half of its packets twice. If the kernel lacks netem, the member sends all packets to
// other members twice.
func (s *strike) duplicate(m *member) {
	if s.x.netem(s, m, "duplicate", "50%") {
		return
	}
	for _, other := range without(s.x.c.members(), m) {
		s.rule(m, "mangle/POSTROUTING", "-d", other.address, "-j", "TEE", "--gateway", other.address)
	}
}

// netem applies a netem rule to the packets that a member sends. It returns false if the kernel lacks netem.
func (x *chaos) netem(s *strike, m *member, how ...string) bool {
	if !kernelHasNetem(x) {
		return false
	}
	s.traffic(m, append([]string{"netem"}, how...)...)
	return true
}

func kernelHasNetem(x *chaos) bool {
	return hasNetem(func() bool {
		_, err := output(exec.Command("nsenter", "--net="+x.guest, "--", "tc", "qdisc", "add", "dev", "lo", "root",
			"netem", "loss", "0%"), 10*time.Second)
		if err != nil {
			x.book.count("netem missing in this kernel: loss by iptables, delay by a thin line, no reordering", 1)
		}
		return err == nil
	})
}

// hasNetem calls its argument only the first time, and remembers the answer.
var hasNetem = func() func(func() bool) bool {
	var once sync.Once
	var has bool
	return func(ask func() bool) bool {
		once.Do(func() { has = ask() })
		return has
	}
}()

// traffic sets the queueing discipline of the packets that a member sends, until the strike is repaired.
func (s *strike) traffic(m *member, how ...string) {
	args := slices.Concat([]string{"--net=" + s.x.c.network.space(m), "--", "tc", "qdisc", "add", "dev", "eth0", "root"},
		how)
	if out, err := output(exec.Command("nsenter", args...), 10*time.Second); err != nil {
		s.x.t.Fatalf("tc %v at %s: %v\n%s", how, m.Name, err, out)
	}
	s.later(func() {
		_, err := output(exec.Command("nsenter", "--net="+s.x.c.network.space(m), "--", "tc", "qdisc", "del", "dev",
			"eth0", "root"), 10*time.Second)
		if err != nil {
			s.x.t.Errorf("end of the queue at %s: %v", m.Name, err)
		}
	})
}

// massCut cuts off four of the six agents from the servers at once. A hold must begin before any of their nodes is
// marked offline (S12).
func massCut(s *strike) {
	cut := s.x.c.agents[:4]
	s.hit(cut...)
	for _, m := range cut {
		s.x.used[m] = time.Now()
		s.cut(m, s.x.c.servers)
	}
	s.hold = chaosAfter + 2*chaosBeat + 4*time.Second
	s.later(func() {
		s.x.story.mu.Lock()
		defer s.x.story.mu.Unlock()
		if n := len(s.x.story.offline); n > 0 {
			s.x.book.violate("S12: %d of 4 nodes that were cut off at once are marked offline: %+v", n, s.x.story.offline)
		}
	})
}
