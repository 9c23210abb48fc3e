package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Settings of the tested cluster. chaosAfter is its offline_after, and is so long that a busy machine is not mistaken
// for a dead one. chaosBeat is the interval of heartbeats.
const (
	chaosAfter    = 5 * time.Second
	chaosBeat     = chaosAfter / 6
	chaosServers  = 3
	chaosAgents   = 6
	chaosElection = 2 * time.Second // raft's election timeout with raft_multiplier = 2
	smokeSeed     = 42387           // seed of runs of at most smokeTime
	smokeTime     = 4 * time.Minute // a run of at most this length begins with the faults of trust, without containers
)

// chaosPatience is the limit of each step of a quiet phase for which no other limit is given.
const chaosPatience = 2 * time.Minute

// chaos breaks one cluster of real processes with random faults from a seed, while users and programs use it.
type chaos struct {
	t      *testing.T
	c      *cluster
	seed   uint64
	random *rand.Rand // for the faults; each worker has its own source
	end    time.Time
	book   *book
	kernel *kernelEye
	story  *story
	work   *workload
	probe  *chaosProbe
	guest  string  // network namespace of the probes
	other  string  // path of another build of the program
	clone  *member // runs on a copy of an agent's data; nil before the first copy
	deck   []fault
	used   map[*member]time.Time // by agent: time of the last fault that may take its node offline
	trust  chaosTrust
	crates *crates
}

// TestChaos breaks servers, agents, instances, networks and disks of a cluster for as long as OUTSPAN_CHAOS says (make
// chaos: 15 min). The cluster is made by outspan up and outspan join, and its certificates last six minutes. Agents are
// revoked and return, stolen certificates and ended tokens are tried, and the keys of the cluster are replaced. In runs
// of more than smokeTime, each machine has a containerd, some jobs run images of a registry, and at the end nothing may
// be left of what ran. The test uses all faults in turn, one or two at a time. After each repair the cluster must
// settle. The process table and the cluster's events are checked all the time. At the end the log of a server is
// checked entry by entry. OUTSPAN_SEED repeats the order of the faults, but not the scheduling of processes.
//
// The servers and agents are real processes.
// proves S1, S2, S3, S4, S5, S7, S8, S9, S12, S13, S19
func TestChaos(t *testing.T) {
	text := os.Getenv("OUTSPAN_CHAOS")
	if text == "" {
		t.Skip("it torments a cluster for as long as OUTSPAN_CHAOS says: make chaos")
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	require(t, "ip", "iptables", "nsenter", "strace", "tc")
	containers := length > smokeTime || slices.ContainsFunc(containerFaults(), func(f fault) bool {
		return slices.Contains(onlyFaults(), f.name)
	})
	if containers {
		require(t, "containerd", "ctr", "runc", "busybox", "/usr/lib/cni/portmap")
	}
	x := newChaos(t, chaosSeed(t, length), containers)
	defer x.report()
	x.begin()
	x.end = time.Now().Add(length)
	if length <= smokeTime {
		x.deck = x.shuffled(slices.Concat(trustFaults(), rotationFaults()))
	}
	x.settle(&window{name: "before the first fault"})
	for n := 1; time.Now().Before(x.end) && x.book.clean() && !x.t.Failed(); n++ {
		x.window(n)
	}
	x.work.stop()
	x.probe.stop()
	x.emptied()
	x.kernel.stop()
	x.judgeLog(x.c.leader(x.t), x.c.status(x.t).Index)
}

// chaosSeed returns OUTSPAN_SEED if it is set. Otherwise it returns smokeSeed for a run of at most smokeTime, and a
// random seed for a longer run.
func chaosSeed(t *testing.T, length time.Duration) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if length <= smokeTime {
		seed = smokeSeed
	}
	if text := os.Getenv("OUTSPAN_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatalf("OUTSPAN_SEED: %v", err)
		}
	}
	return seed
}

func newChaos(t *testing.T, seed uint64, containers bool) *chaos {
	t.Helper()
	x := &chaos{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), book: newBook(), used: map[*member]time.Time{}}
	fmt.Fprintf(os.Stdout, "OUTSPAN_SEED=%d\n", seed) // printed before anything can fail
	o := options{servers: chaosServers, agents: chaosAgents, namespaces: true, managed: true}
	if os.Getenv("OUTSPAN_E2E_PROGRAM") == "" {
		o.bin = shortProgram(t, "chaos")
	}
	x.c = newMembers(t, o)
	x.c.network = newNetwork(t, x.c)
	for _, m := range x.c.members() {
		m.disk(t)
	}
	x.guest = x.c.network.join(t, "guest", "10.83.7.200")
	x.crates = &crates{}
	if containers {
		x.crates = newCrates(x)
	}
	x.other = otherProgram(t)
	return x
}

// settings returns the keys of a member's configuration that outspan up and outspan join don't write.
func (x *chaos) settings(m *member) map[string]string {
	s := m.settings()
	s["gossip"] = "profile = \"lan\""
	if rig := x.crates.rigs[m]; rig != nil {
		s["agent"] += rig.block(m, "")
	}
	if m.role == "server" {
		s["server"] = "raft_multiplier = 2"
		s["settings"] = fmt.Sprintf("offline_after = %q\n  rescheduler = \"off\"", chaosAfter)
	}
	return s
}

// disk gives a member a file system of its own, so that it can be filled. An agent that has run containers keeps a copy
// of its program there.
func (m *member) disk(t *testing.T) {
	t.Helper()
	if err := os.Mkdir(m.data(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", m.data(), "tmpfs", 0, "size=256m,mode=700"); err != nil {
		lacking(t, fmt.Sprintf("the right to mount a tmpfs (%v)", err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(m.data(), unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// begin makes and starts the cluster, its workload, and the parts that watch it.
func (x *chaos) begin() {
	x.t.Helper()
	x.found()
	x.c.waitEligible(x.t, x.c.agents...)
	x.story = newStory(x)
	x.kernel = watchKernel(x)
	x.work = newWorkload(x)
	x.work.submitAll()
	x.c.weigh(x.t)
	x.probe = probeService(x)
	x.work.start()
}

// window is one fault, or two together, and the quiet phase that follows.
type window struct {
	name    string
	number  int
	began   time.Time
	mended  time.Time
	strikes []*strike
	adopts  *adoption  // of a fault that kills an agent and containerd; nil otherwise
	history *recording // what clients read and write through all servers; nil if the fault undoes acknowledged writes
}

// touches reports whether a fault of the window touches a member.
func (w *window) touches(m *member) bool {
	return slices.ContainsFunc(w.strikes, func(s *strike) bool { return slices.Contains(s.on, m) })
}

// well returns the number of servers that no fault of the window touches.
func (w *window) well(x *chaos) (count int) {
	for _, s := range x.c.servers {
		if !w.touches(s) {
			count++
		}
	}
	return count
}

// onlyServers reports whether the window's faults touch only servers, and no fault has hurtsUsers. In such a window no
// request of a user may fail.
func (w *window) onlyServers() bool {
	for _, s := range w.strikes {
		if s.fault.hurtsUsers || slices.ContainsFunc(s.on, func(m *member) bool { return m.role == "agent" }) {
			return false
		}
	}
	return true
}

// window begins one or two faults, waits while they last, repairs them, and waits until the cluster has settled.
func (x *chaos) window(n int) {
	x.t.Helper()
	w := &window{number: n, began: time.Now()}
	x.story.enter(w)
	drawn := x.draw()
	if !drawn[0].rewrites {
		w.history = x.c.startHistory(x.t, x.random.Uint64())
	}
	for _, f := range drawn {
		s := &strike{x: x, w: w, fault: f}
		w.strikes = append(w.strikes, s)
		w.name += " " + f.name
		x.book.count("fault "+f.name, 1)
		f.begin(s)
		x.book.say("%d: %s on %v: %s", n, f.name, names(s.on), s.note)
	}
	x.hold(w)
	for _, s := range slices.Backward(w.strikes) {
		s.mend()
	}
	w.mended = time.Now()
	x.book.say("%d: mended", n)
	x.settle(w)
	x.probe.judge(w)
}

// draw takes the next faults from the shuffled deck: usually one, sometimes two of different kinds.
func (x *chaos) draw() []fault {
	first := x.next(func(fault) bool { return true })
	drawn := []fault{first}
	if x.random.IntN(3) == 0 && !first.alone {
		if second := x.next(func(f fault) bool { return !f.alone && f.kind != first.kind }); second.name != "" {
			drawn = append(drawn, second)
		}
	}
	return drawn
}

// next takes the first fault for which fits returns true from the deck. If there is none, it returns an empty fault. It
// fills and shuffles the deck again only when the deck is empty, so that every fault is used.
func (x *chaos) next(fits func(fault) bool) fault {
	if only := onlyFaults(); len(only) > 0 {
		skip := func(f fault) bool { return !slices.Contains(only, f.name) }
		if x.deck = slices.DeleteFunc(x.deck, skip); len(x.deck) == 0 {
			x.deck = x.shuffled(slices.DeleteFunc(x.faults(), skip))
		}
	} else if len(x.deck) == 0 {
		x.deck = x.shuffled(x.faults())
	}
	i := slices.IndexFunc(x.deck, fits)
	if i < 0 {
		return fault{}
	}
	f := x.deck[i]
	x.deck = slices.Delete(x.deck, i, i+1)
	return f
}

// onlyFaults returns the names of the only faults that are used, for debugging. If it is empty, all are.
func onlyFaults() []string {
	return strings.FieldsFunc(os.Getenv("OUTSPAN_CHAOS_FAULTS"), func(r rune) bool { return r == ',' })
}

func (x *chaos) shuffled(deck []fault) []fault {
	x.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

// hold waits while the faults last. Meanwhile it looks for members that exit although no fault allows them to.
func (x *chaos) hold(w *window) {
	length := time.Duration(2000+x.random.IntN(8000)) * time.Millisecond
	for _, s := range w.strikes {
		length = max(length, s.hold)
	}
	for until := time.Now().Add(length); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		x.lookForDead(w)
	}
}

// lookForDead records a violation for each member that exited although no fault allows it to, and starts the member
// again.
func (x *chaos) lookForDead(w *window) {
	for _, m := range x.c.members() {
		allowed := slices.ContainsFunc(w.strikes, func(s *strike) bool { return s.mayEnd == m || s.down[m] })
		if !m.Running() && !allowed {
			x.book.violate("%s ended by itself in window %d (%s):\n%s", m.Name, w.number, w.name, m.LastLines(30))
			m.start(x.t)
		}
	}
}

// book records what was done, what was counted, and what was wrong.
type book struct {
	mu     sync.Mutex
	began  time.Time
	lines  []string
	counts map[string]int
	most   map[string]time.Duration
	wrong  []string
}

func newBook() *book {
	return &book{began: time.Now(), counts: map[string]int{}, most: map[string]time.Duration{}}
}

func (b *book) say(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.write(fmt.Sprintf(format, args...))
}

func (b *book) write(text string) {
	line := fmt.Sprintf("%s %8s %s", time.Now().Format("15:04:05.000"), time.Since(b.began).Round(time.Millisecond), text)
	b.lines = append(b.lines, line)
	if os.Getenv("OUTSPAN_CHAOS_LOG") != "" {
		fmt.Fprintln(os.Stdout, line)
	}
}

// violate records a violation. The run ends after the current window.
func (b *book) violate(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if len(b.wrong) < 20 && !slices.Contains(b.wrong, text) {
		b.wrong = append(b.wrong, text)
	}
	b.write("WRONG " + text)
}

func (b *book) clean() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.wrong) == 0
}

func (b *book) count(what string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[what] += n
}

// greatest keeps the greatest number for each name. longest keeps the longest duration for each name.
func (b *book) greatest(what string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[what] = max(b.counts[what], n)
}

func (b *book) longest(what string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.most[what] = max(b.most[what], d)
}
