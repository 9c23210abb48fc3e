package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/e2e/linear"
)

// linearBounds are wide, because the test machine may be busy. A leader may check late that its lease of 500 ms has
// ended, and an answer may wait in a socket.
var linearBounds = linear.Bounds{Default: 2 * time.Second, Slack: 2 * time.Second}

// recording is the history of clients of all servers, from startHistory to judge. Faults may happen meanwhile.
type recording struct {
	c       *cluster
	load    *linear.Load
	history *linear.History
	stop    func()
	done    chan struct{}
}

var recordings atomic.Int64

// startHistory starts some clients in the background. The seed determines their operations, but not when they happen.
func (c *cluster) startHistory(t testing.TB, seed uint64) *recording {
	t.Helper()
	name := fmt.Sprintf("lin%d", recordings.Add(1))
	ctx, stop := context.WithCancel(context.Background())
	r := &recording{c: c, history: linear.NewHistory(), stop: stop, done: make(chan struct{})}
	r.load = &linear.Load{Doors: c.doors(4), Jobs: []string{name + "-a", name + "-b"}, Think: 60 * time.Millisecond,
		Seed: seed, Name: name}
	for _, m := range c.agents[:min(2, len(c.agents))] {
		r.load.Nodes = append(r.load.Nodes, m.Name)
	}
	go func() {
		defer close(r.done)
		r.load.Run(ctx, r.history)
	}()
	t.Cleanup(r.end)
	return r
}

// doors returns the servers' unix sockets, which work whatever happens to the network. A door keeps at most the given
// number of idle connections.
func (c *cluster) doors(connections int) []linear.Door {
	var all []linear.Door
	for _, s := range c.servers {
		via := &http.Transport{MaxIdleConnsPerHost: connections,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", s.socket())
			}}
		all = append(all, linear.Door{Name: s.Name, Base: "http://outspan", Via: via})
	}
	return all
}

// end stops the clients and waits until each client has its last answer or has given up.
func (r *recording) end() {
	r.stop()
	<-r.done
}

// judge stops the clients, removes their jobs, and fails the test if their history is not linearizable. All faults must
// have been repaired before.
func (r *recording) judge(t testing.TB) linear.Figures {
	t.Helper()
	r.end()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.load.Settle(ctx, r.history); err != nil {
		t.Errorf("the cluster was to be whole again: %v", err)
	}
	figures := judgeHistory(t, r.history)
	for _, name := range r.load.Jobs {
		if got := r.c.cli(t, "job", "stop", name, "--purge"); got.code != 0 && got.code != 4 {
			t.Errorf("remove the job of a history: %v", got)
		}
	}
	for _, d := range r.load.Doors {
		d.Via.(*http.Transport).CloseIdleConnections()
	}
	return figures
}

func judgeHistory(t testing.TB, h *linear.History) linear.Figures {
	t.Helper()
	dir := t.ArtifactDir()
	if os.Getenv("OUTSPAN_E2E_KEEP") == "1" { // without -artifacts, the test removes its ArtifactDir
		dir = filepath.Join(repository(t), "bin", "linear-"+strings.ReplaceAll(t.Name(), "/", "-"))
	}
	v := h.Judge(linearBounds, dir)
	t.Logf("%s", v.Figures)
	for _, text := range append(v.Violations, v.Undecided...) {
		t.Error(text)
	}
	return v.Figures
}

// linearSeed returns the seed in OUTSPAN_SEED. If that variable is not set, it returns its argument.
func linearSeed(t testing.TB, otherwise uint64) uint64 {
	t.Helper()
	seed := otherwise
	if text := os.Getenv("OUTSPAN_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("OUTSPAN_SEED=%d", seed)
	return seed
}

// In TestLinear, clients read and write through all servers while the leader is killed or paused, three times.
func TestLinear(t *testing.T) {
	long(t)
	c := startCluster(t, options{servers: 3, agents: 2})
	seed := linearSeed(t, 1)
	random := rand.New(rand.NewPCG(seed, seed))
	r := c.startHistory(t, seed)
	for range 3 {
		leader := c.leader(t)
		wait(random, time.Second)
		if random.IntN(2) == 0 {
			leader.Kill()
			wait(random, 4*time.Second)
			leader.start(t)
		} else {
			leader.pause(t)
			wait(random, 6*time.Second)
			leader.unpause(t)
		}
		c.waitVoters(t, 3)
	}
	f := r.judge(t)
	if f.Writes < 20 || f.Reads < 20 {
		t.Errorf("too little was done to prove anything: %s", f)
	}
}

// wait sleeps for a random part of the given time, but at least for a quarter of that time.
func wait(random *rand.Rand, longest time.Duration) {
	time.Sleep(longest/4 + time.Duration(random.Int64N(int64(longest*3/4))))
}
