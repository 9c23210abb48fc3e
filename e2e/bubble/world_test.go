package bubble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/oklog/ulid/v2"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

const clusterName = "bubble"

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // worlds are small and exist for seconds only
	os.Exit(m.Run())
}

// world is a cluster, the machines that it runs on, and what the test knows about them. Only the test's goroutine may
// use a world. Parts that other goroutines use have their own locks.
type world struct {
	t        *testing.T
	net      *memnet.Net
	ca       *transport.Authority
	log      hclog.Logger
	settings model.Settings
	profile  cluster.Profile
	raft     cluster.RaftConfig
	seed     uint64
	root     string // directory of all disks
	servers  []*server
	nodes    []*node
	truth    *truth
	history  *history
	receipts *receipts
	did      map[string]int // number of actions of each kind; counted by chaos.say
	cli      *transport.Client
	registry *registry // nil if the machines run no containers

	supervised atomic.Bool // the test restarts servers that end themselves because a handover of leadership hangs
}

// options configure a world. The zero value means three servers, four nodes, and offline after 2 s.
type options struct {
	nodes    int
	settings func(*model.Settings)
	profile  cluster.Profile // of gossip; default fast
	raft     cluster.RaftConfig
	seed     uint64    // of the network and the disks
	registry *registry // of images; without one, the machines run no containers
}

const networkDelay = 500 * time.Microsecond

// inBubble runs a test on a settled cluster in fake time, and then stops the cluster gracefully. After memberlist has
// shut down, some of its goroutines still wait for a last timeout. The bubble's clock stops when the test returns, so a
// cleanup gives them a minute before that.
func inBubble(t *testing.T, o options, test func(*testing.T, *world)) {
	t.Helper()
	began := time.Now()
	var simulated time.Duration
	var made *world
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) })
		begin := time.Now()
		w := newWorld(t, o)
		w.root = w.tempDir() // its cleanup runs after w.end, so nothing uses it any more
		t.Cleanup(w.end)
		w.begin(cmp.Or(o.nodes, 4))
		test(t, w)
		simulated = time.Since(begin)
		made = w
	})
	if made != nil {
		tallies.count(t, simulated, len(made.history.entries), made.did)
	}
	t.Logf("%s of cluster time in %s", simulated.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	log := hclog.NewNullLogger()
	if level := os.Getenv("BUBBLE_LOG"); level != "" {
		log = hclog.New(&hclog.LoggerOptions{Level: hclog.LevelFromString(level), TimeFormat: "04:05.000"})
	}
	ca, err := transport.NewAuthority(clusterName, 0)
	must(t, err)
	w := &world{t: t, net: memnet.New(), ca: ca, log: log, settings: model.DefaultSettings(), truth: newTruth(t),
		history: newHistory(t), receipts: newReceipts(), did: map[string]int{},
		profile: cmp.Or(o.profile, cluster.ProfileFast), raft: o.raft, seed: o.seed, registry: o.registry}
	w.truth.stops = w.judgeCopies
	w.settings.OfflineAfter = 2 * model.Second
	if o.settings != nil {
		o.settings(&w.settings)
	}
	w.net.SetDelay(networkDelay)
	w.net.Seed(o.seed)
	return w
}

// begin starts three servers and the given number of nodes, and waits until every node is active.
func (w *world) begin(nodes int) {
	w.t.Helper()
	for i := 1; i <= 3; i++ {
		w.servers = append(w.servers, newServer(w, i))
	}
	for _, s := range w.servers {
		s.start()
	}
	w.cli = w.client(pki.RoleCLI, "test", cliHost)
	for i := 1; i <= nodes; i++ {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	w.leader()
	for _, n := range w.nodes {
		n.start()
	}
	w.eventually(30*time.Second, "every node is active", func() bool {
		active := 0
		for _, n := range w.state().Nodes.All() {
			if n.State() == model.NodeActive && !n.Return.Recovering {
				active++
			}
		}
		return active == nodes
	})
}

// end stops everything in the order in which an operator would, and judges the whole history.
func (w *world) end() {
	for _, n := range w.nodes {
		n.stopAgent()
	}
	if w.cli != nil {
		w.cli.Close()
	}
	for _, s := range w.servers {
		s.stop()
	}
	w.history.judge(w.receipts)
}

const cliHost = "10.0.9.1"

func serverHost(i int) string { return fmt.Sprintf("10.0.0.%d", i) }

func nodeHost(i int) string { return fmt.Sprintf("10.0.1.%d", i) }

// tempDir returns a directory for the disks, in /dev/shm if the system has it. On a real disk, these tests would spend
// most of their time forcing entries and journal records to the disk.
func (w *world) tempDir() string {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		return w.t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "outspan-bubble-")
	if err != nil {
		return w.t.TempDir()
	}
	w.t.Cleanup(func() { os.RemoveAll(dir) })
	must(w.t, os.Chmod(dir, 0o711)) //nolint:gosec // users of programs must be able to enter
	return dir
}

// client returns a client that may call any of the servers, with a new certificate for role and name.
func (w *world) client(role pki.Role, name, host string) *transport.Client {
	w.t.Helper()
	creds, err := w.ca.Credentials(role, name)
	must(w.t, err)
	var addresses []string
	for _, s := range w.servers {
		addresses = append(addresses, "https://"+s.address())
	}
	c, err := transport.NewClient(transport.ClientConfig{Addresses: addresses, Credentials: creds,
		Dial: w.net.Dialer(host), RetryFor: time.Minute})
	must(w.t, err)
	return c
}

// leader waits until a running server leads and has done the first Barrier of its term, and returns that server.
func (w *world) leader() *server {
	w.t.Helper()
	var found *server
	w.eventually(30*time.Second, "a leader", func() bool {
		found = w.leads()
		return found != nil
	})
	return found
}

// leads returns the running server that leads and has done the first Barrier of its term. If there are several, it
// returns the one with the highest term, and if there is none, nil.
func (w *world) leads() (found *server) {
	var term uint64
	for _, s := range w.servers {
		if !s.running() {
			continue
		}
		if _, self, _ := s.cluster.Leader(); self && s.cluster.Term() > term {
			found, term = s, s.cluster.Term()
		}
	}
	return found
}

func (w *world) lead(s *server) {
	w.t.Helper()
	w.eventually(30*time.Second, s.name+" leads", func() bool {
		leader := w.leader()
		if leader != s {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = leader.cluster.TransferLeader(ctx, s.cluster.ID()) // eventually tries again
		}
		return w.leads() == s
	})
}

// followers lists the servers that run and do not lead.
func (w *world) followers() []*server {
	leader := w.leads()
	var out []*server
	for _, s := range w.servers {
		if s.running() && s != leader {
			out = append(out, s)
		}
	}
	return out
}

// state returns the latest state that any server has published, even if that server has died since. A server that has
// just started may not have applied all committed entries yet.
func (w *world) state() fsm.State {
	newest := w.history.last()
	for _, s := range w.servers {
		if st := s.state(); st.Index >= newest.Index {
			newest = st
		}
	}
	return newest
}

// eventually waits until ok returns true, and returns how long that took. It fails the test after limit.
func (w *world) eventually(limit time.Duration, what string, ok func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > limit {
			w.t.Fatalf("%s: not within %s\n%s", what, limit, w.picture())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

// never fails the test if bad returns true within the given time.
func (w *world) never(during time.Duration, what string, bad func() bool) {
	w.t.Helper()
	for until := time.Now().Add(during); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if bad() {
			w.t.Fatalf("%s\n%s", what, w.picture())
		}
	}
}

// agree waits until all running servers have applied the same index. history checks that their states at that index are
// equal.
func (w *world) agree() {
	w.t.Helper()
	w.eventually(30*time.Second, "the same state everywhere", func() bool {
		index := uint64(0)
		for _, s := range w.servers {
			if !s.running() {
				continue
			}
			if i := s.state().Index; index != 0 && i != index {
				return false
			}
			index = s.state().Index
		}
		return true
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// send makes a write through the API. For up to two minutes it repeats the write with the same request id until its
// outcome is known, as the command line advises users to do.
func (w *world) send(path string, body any) ([]byte, error) {
	id := ulid.Make().String()
	raw, err := w.sendAs(id, path, body)
	w.receipts.note(model.RequestID(id), "POST "+path, err)
	return raw, err
}

func (w *world) sendAs(id, path string, body any) ([]byte, error) {
	query := url.Values{"request_id": {id}}
	for until := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		raw, _, err := w.cli.Do(context.Background(), http.MethodPost, path, query, body)
		var refused *model.Error
		if err == nil || time.Now().After(until) || !errors.As(err, &refused) {
			return raw, err
		}
		switch refused.Code {
		case model.CodeUnreachable, model.CodeUnknownOutcome, model.CodeNoLeader, model.CodeBusy, model.CodeTimeout:
		default:
			return raw, err
		}
	}
}

// brief returns a context that ends after 2 s, for a request that may hang.
func (w *world) brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*time.Second)
}
