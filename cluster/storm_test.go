package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// storm runs three servers with random faults: disks that fail or hang, killed servers, broken networks, and transfers
// of leadership at bad moments. Only one server at a time has a lasting fault, so a majority can always recover. A
// storm checks:
//
//   - L1: a healed majority has a leader that commits, within ten election timeouts;
//   - S4: every acknowledged write is in the state at the end, and was applied once;
//   - S5: in the end, all servers have the same state;
//   - S10: no term has two leaders.
//
// Not safe for concurrent use.
type storm struct {
	*rig
	random *rand.Rand
	season []fault
	disks  map[int]*stormDisk
	down   map[int]bool // killed and not yet restarted
	acked  []string
	writes int
	said   []string
}

const (
	stormRounds  = 12
	stormRecover = 15 * time.Second // enough for a server to restart and catch up after its fault
	leaderLimit  = 10 * time.Second // L1: ten election timeouts
)

func newStorm(t *testing.T, random *rand.Rand) *storm {
	s := &storm{rig: newRig(t), random: random, disks: map[int]*stormDisk{}, down: map[int]bool{}}
	for i := 1; i <= 3; i++ {
		s.disks[i] = &stormDisk{dir: memoryDir(t)}
		s.begin(i)
	}
	t.Cleanup(func() {
		for _, d := range s.disks {
			d.heal()
		}
		if t.Failed() {
			t.Logf("what was done:\n%s", strings.Join(s.said, "\n"))
		}
	})
	s.net.SetDelay(time.Duration(s.random.IntN(60)) * time.Millisecond)
	all := s.faults()
	// With only two kinds of faults in each storm, rare sequences of faults are more likely.
	s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	s.season = all[:2]
	s.leader(20 * time.Second)
	return s
}

func (s *storm) say(format string, args ...any) {
	s.said = append(s.said, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// begin starts server i. Its Lead returns up to 2 s late, as if it waited for an outcome. After a fatal error the
// server is unreachable at once, as if its process had exited.
func (s *storm) begin(i int) {
	late := time.Duration(s.random.IntN(3)) * time.Second
	s.net.Revive(host(i))
	s.start(i, func(c *Config) {
		c.DataDir, c.Disk.OpenLog = s.disks[i].dir, s.disks[i].open
		// With frequent snapshots and short logs, a server that was away often needs a snapshot.
		c.Raft.SnapshotInterval, c.Raft.SnapshotThreshold, c.Raft.TrailingLogs = 2*time.Second, 16, 4
		lead, fatal := c.Lead, c.Fatal
		c.Fatal = func(err error) {
			s.net.Kill(host(i))
			fatal(err)
		}
		c.Lead = func(ctx context.Context, term uint64) error {
			err := lead(ctx, term)
			time.Sleep(late)
			return err
		}
	})
}

// server returns the rigServer that the latest start of server i made.
func (s *storm) server(i int) *rigServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[host(i)]
}

// supervise restarts servers that stopped by themselves, as systemd would. It does not restart a server that was killed
// or whose disk is broken.
func (s *storm) supervise() {
	for i := 1; i <= 3; i++ {
		if s.down[i] || s.disks[i].broken() {
			continue
		}
		select {
		case <-s.server(i).done:
			s.say("start %d again: it ended: %v", i, s.server(i).err)
			s.begin(i)
		default:
		}
	}
}

// write registers a new node. It tries the servers that lead, one after another, until one of them acknowledges the
// write. It reports whether the write was acknowledged.
func (s *storm) write() bool {
	s.writes++
	name := fmt.Sprintf("n%04d", s.writes)
	for _, one := range s.running() {
		if one.Term() == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := one.register(ctx, name)
		cancel()
		if err == nil {
			s.acked = append(s.acked, name)
			return true
		}
	}
	return false
}

// work writes repeatedly for the duration d. Between writes it calls supervise, and sometimes a random function from
// things.
func (s *storm) work(d time.Duration, things ...func()) {
	for until := time.Now().Add(d); time.Now().Before(until); {
		s.supervise()
		s.write()
		if len(things) > 0 && s.random.IntN(4) == 0 {
			things[s.random.IntN(len(things))]()
		}
		time.Sleep(time.Duration(50+s.random.IntN(300)) * time.Millisecond)
	}
}

// commits checks L1: a write is acknowledged within the limit. The failure message includes why.
func (s *storm) commits(limit time.Duration, why string) {
	s.t.Helper()
	began := time.Now()
	for !s.write() {
		if time.Since(began) > limit {
			s.t.Fatalf("L1: %s; a majority is healed, and for %s nothing was committed\n%s", why, limit, s.picture())
		}
		s.supervise()
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *storm) picture() string {
	var lines []string
	for i := 1; i <= 3; i++ {
		one := s.server(i)
		state := one.machine.State()
		lines = append(lines, fmt.Sprintf("%d: %s, leads in term %d, state at %d, log to %d, down %v, disk broken %v", i,
			one.raft.State(), one.Term(), state.Index, one.raft.LastIndex(), s.down[i], s.disks[i].broken()))
	}
	return strings.Join(lines, "\n")
}

func (s *storm) round() {
	f, i := s.season[s.random.IntN(len(s.season))], 1+s.random.IntN(3)
	if s.random.IntN(2) == 0 {
		i = s.leads()
	}
	s.say("%s: %d (%s)", f.name, i, s.server(i).raft.State())
	if s.random.IntN(2) == 0 {
		s.burst()
	}
	f.begin(i)
	if s.random.IntN(2) == 0 {
		s.commits(f.limit, fmt.Sprintf("server %d is %s", i, f.name))
	}
	s.work(time.Duration(s.random.Int64N(int64(f.lasts))), s.transfer, s.transfer, s.blink, s.flap)
	s.commits(f.limit, fmt.Sprintf("server %d is %s", i, f.name))
	f.end(i)
	s.say("%d is well again", i)
	s.work(stormRecover)
	s.commits(leaderLimit, "everything is mended")
	s.lean(i)
}

// lean checks that server number on has recovered from its fault. It cuts off another server that does not lead, so
// that the cluster needs server number on for a majority.
func (s *storm) lean(on int) {
	i := on
	for i == on || i == s.leads() {
		i = 1 + s.random.IntN(3)
	}
	s.say("without %d", i)
	for j := 1; j <= 3; j++ {
		s.net.Isolate(host(i), host(j))
	}
	s.work(2 * time.Second)
	s.commits(leaderLimit, fmt.Sprintf("server %d has had time to recover, and %d is cut off", on, i))
	for j := 1; j <= 3; j++ {
		s.net.Mend(host(i), host(j))
	}
	s.work(stormRecover)
}

// leads returns the number of a server that leads, or 1 if no server leads.
func (s *storm) leads() int {
	for i := 1; i <= 3; i++ {
		if s.server(i).Term() != 0 {
			return i
		}
	}
	return 1
}

// judge checks S4, S5 and S10 at the end.
func (s *storm) judge() {
	s.t.Helper()
	deadline := time.Now().Add(stormRecover)
	digests := func() (all []string) {
		for _, one := range s.running() {
			all = append(all, fsm.Digest(one.machine.State()))
		}
		return slices.Compact(all)
	}
	for len(digests()) != 1 || len(s.running()) != 3 {
		if time.Now().After(deadline) {
			s.t.Fatalf("S5: all are mended, and after %s they differ\n%s", stormRecover, s.picture())
		}
		s.supervise()
		time.Sleep(50 * time.Millisecond)
	}
	state := s.running()[0].machine.State()
	for _, name := range s.acked {
		n, ok := state.Nodes.Get(model.NodeID(name))
		if !ok || n.Registrations != 1 {
			s.t.Errorf("S4: the acknowledged write %s is there: %v, and was applied %d times", name, ok, times(n))
		}
	}
	s.t.Logf("%d of %d writes were acknowledged", len(s.acked), s.writes)
	terms := map[uint64]string{}
	for _, one := range s.all() {
		one.mu.Lock()
		for _, term := range one.led {
			if other, twice := terms[term]; twice && other != one.host {
				s.t.Errorf("S10: term %d was led by %s and %s", term, other, one.host)
			}
			terms[term] = one.host
		}
		one.mu.Unlock()
	}
}

func times(n *fsm.Node) uint64 {
	if n == nil {
		return 0
	}
	return n.Registrations
}

func TestStorm(t *testing.T) {
	for _, seed := range stormSeeds(t) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("OUTSPAN_SEED=%d", seed)
			inLeakyBubble(t, func(t *testing.T) {
				s := newStorm(t, rand.New(rand.NewPCG(seed, seed)))
				for range stormRounds {
					s.round()
				}
				s.judge()
			})
		})
	}
}

// inLeakyBubble is inBubble for tests that interrupt transfers of leadership. If a server loses leadership during a
// transfer, some goroutines of raft and of await can wait forever. inLeakyBubble accepts these, and fails the test if
// other goroutines are left.
func inLeakyBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	defer func() {
		reason := recover()
		if reason == nil {
			return
		}
		if !strings.HasPrefix(fmt.Sprint(reason), "deadlock: main bubble goroutine has exited") {
			panic(reason)
		}
		for _, one := range strings.Split(goroutines(), "\n\n") {
			head, _, _ := strings.Cut(one, "\n")
			known := strings.Contains(one, "cluster.await.func") || strings.Contains(one, "raft.(*Raft).leadershipTransfer(") ||
				strings.Contains(one, "raft.(*Raft).leaderLoop.func")
			if strings.Contains(head, "synctest bubble") && !known && !t.Failed() {
				t.Errorf("a goroutine is left: %s", one)
			}
		}
	}()
	inBubble(t, test)
}
