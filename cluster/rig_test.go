package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
)

// rig is a cluster of servers in one process, over a network in memory. It runs inside a bubble.
type rig struct {
	t   *testing.T
	net *memnet.Net
	log hclog.Logger

	late time.Duration // pause of each server between Open and Run, as on a busy machine

	mu      sync.Mutex
	servers map[string]*rigServer // by host
	beaters map[model.NodeID]*Beater

	certificates map[string]string // the name in a server's certificate, by host
}

// rigServer is one server of a rig. It may be stopped and started again on the same directory.
type rigServer struct {
	*Server
	rig     *rig
	host    string
	dir     string
	machine *fsm.Machine
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // of Open or Run
	fatal   error // the error that the server passed to Config.Fatal

	mu  sync.Mutex
	led []uint64 // terms in which Lead ran
	now bool     // Lead is running
}

// memStream is raft's stream over the network in memory.
type memStream struct {
	*memnet.Listener
	net  *memnet.Net
	host string
	rig  *rig
}

func (r *rig) stream(host string) memStream {
	return memStream{r.net.Listen(host + ":7640"), r.net, host, r}
}

// Close also breaks accepted connections, as the TLS port's Close does.
func (s memStream) Close() error { return s.CloseAll() }

func (s memStream) DialRaft(address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.net.Dial(ctx, s.host, address)
}

// Changes implements Stream: a rig has no certificates.
func (s memStream) Changes() uint64 { return 0 }

// PeerName returns the name in the certificate of the server at the other end, or "" if the test has set none.
func (s memStream) PeerName(conn net.Conn) string {
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	s.rig.mu.Lock()
	defer s.rig.mu.Unlock()
	return s.rig.certificates[host]
}

// memAsker carries questions between the servers of a rig.
type memAsker struct {
	rig  *rig
	host string
}

func (a memAsker) AskPeer(ctx context.Context, address, question string, body []byte) ([]byte, error) {
	a.rig.mu.Lock()
	to := a.rig.servers[memnet.Host(address)]
	a.rig.mu.Unlock()
	if to == nil || to.Server == nil || !a.rig.net.Reach(a.host, memnet.Host(address)) {
		<-ctx.Done() // a lost packet causes no error
		return nil, ctx.Err()
	}
	return to.AnswerPeer(ctx, question, body)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	log := hclog.NewNullLogger()
	if os.Getenv("CLUSTER_LOG") != "" {
		log = hclog.New(&hclog.LoggerOptions{Level: hclog.LevelFromString(os.Getenv("CLUSTER_LOG"))})
	}
	return &rig{t: t, net: memnet.New(), log: log, servers: map[string]*rigServer{}, beaters: map[model.NodeID]*Beater{}}
}

func host(i int) string { return fmt.Sprintf("10.0.0.%d", i) }

// start opens and runs server i. If edit is not nil, it may change the server's configuration.
func (r *rig) start(i int, edit func(*Config)) *rigServer {
	r.t.Helper()
	s := r.open(i, edit)
	if s.cancel == nil {
		r.t.Fatal(s.err)
	}
	return s
}

// open is like start, but Open may fail. Then the field err of the returned rigServer has the error.
func (r *rig) open(i int, edit func(*Config)) *rigServer {
	r.t.Helper()
	s := &rigServer{rig: r, host: host(i), machine: fsm.NewMachine(), done: make(chan struct{})}
	r.mu.Lock()
	if old := r.servers[s.host]; old != nil {
		s.dir = old.dir
	}
	r.mu.Unlock()
	if s.dir == "" {
		s.dir = filepath.Join(r.t.TempDir(), "data")
	}
	cfg := Config{
		DataDir: s.dir, Name: fmt.Sprintf("s%d", i), Cluster: "test", BootstrapExpect: 3, Machine: s.machine,
		Stream: r.stream(s.host), Asker: memAsker{r, s.host},
		Gossip: PoolConfig{Key: testGossipKey, Profile: ProfileFast, Transport: r.net.Packets(s.host + ":7642"),
			Join: []string{host(1) + ":7642", host(2) + ":7642"}},
		Lead: s.lead, Fatal: func(err error) { s.fatal = err },
		Disk:   DiskConfig{BallastBytes: mib},
		Logger: r.log.Named(fmt.Sprintf("s%d", i)),
	}
	if edit != nil {
		edit(&cfg)
	}
	if s.Server, s.err = Open(cfg); s.err != nil {
		cfg.Stream.Close()
		cfg.Gossip.Transport.Shutdown()
		return s
	}
	r.mu.Lock()
	r.servers[s.host] = s
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.done)
		time.Sleep(r.late)
		s.err = s.Run(ctx)
	}()
	r.t.Cleanup(func() { s.stop() })
	return s
}

// stop shuts the server down and waits until Run has returned.
func (s *rigServer) stop() {
	s.cancel()
	<-s.done
}

// crash cuts the server off from the network and then stops it, so that the others don't learn that it stops.
func (s *rigServer) crash() {
	s.rig.isolate(s.host)
	s.stop()
}

func (r *rig) isolate(host string) {
	for other := range r.servers {
		r.net.Isolate(host, other)
	}
}

func (s *rigServer) lead(ctx context.Context, term uint64) error {
	s.mu.Lock()
	if s.now {
		s.rig.t.Error("two terms led at once")
	}
	s.now = true
	s.led = append(s.led, term)
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.now = false
	s.mu.Unlock()
	return nil
}

func (r *rig) all() []*rigServer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*rigServer
	for _, s := range r.servers {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *rigServer) int { return compareStrings(a.host, b.host) })
	return out
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// running returns the servers whose Run has not returned.
func (r *rig) running() []*rigServer {
	return slices.DeleteFunc(r.all(), func(s *rigServer) bool {
		select {
		case <-s.done:
			return true
		default:
			return false
		}
	})
}

// leader waits until a server leads, has finished its first Barrier, and can reach a majority of the servers. It fails
// the test after limit.
func (r *rig) leader(limit time.Duration) *rigServer {
	r.t.Helper()
	var found *rigServer
	eventually(r.t, limit, "a leader", func() bool {
		found = nil
		for _, s := range r.running() {
			if s.Term() == 0 || s.raft.State() != raft.Leader {
				continue
			}
			reached := 0
			for _, other := range r.running() {
				if r.net.Reach(s.host, other.host) {
					reached++
				}
			}
			if reached*2 > len(r.servers) && (found == nil || s.Term() > found.Term()) {
				found = s
			}
		}
		return found != nil
	})
	return found
}

// threeServersRunning starts three servers and waits for their leader.
func (r *rig) threeServersRunning(edit func(*Config)) {
	r.t.Helper()
	for i := 1; i <= 3; i++ {
		r.start(i, edit)
	}
	r.leader(20 * time.Second)
}

// fewLogs makes a server take snapshots often and keep few entries before them, so that a server that was away needs a
// snapshot.
func fewLogs(c *Config) {
	c.Raft.SnapshotInterval, c.Raft.SnapshotThreshold, c.Raft.TrailingLogs = time.Second, 10, 5
}

// oneBehind runs three servers and crashes a follower. Then it registers 60 nodes and waits until the leader has a
// snapshot. edit must include fewLogs.
func (r *rig) oneBehind(edit func(*Config)) (leader, away *rigServer) {
	r.t.Helper()
	r.threeServersRunning(edit)
	away = r.other(r.leader(time.Second))
	away.crash()
	for i := range 60 {
		r.mustRegister(fmt.Sprintf("n%02d", i))
	}
	eventually(r.t, time.Minute, "a snapshot", func() bool { return r.leader(time.Second).Status().Snapshot > 0 })
	return r.leader(time.Second), away
}

// other returns a running server other than s.
func (r *rig) other(s *rigServer) *rigServer {
	r.t.Helper()
	for _, o := range r.running() {
		if o != s {
			return o
		}
	}
	r.t.Fatalf("no server runs beside %s", s.host)
	return nil
}

// register proposes the registration of a node, a small entry that adds a row.
func (s *rigServer) register(ctx context.Context, name string) error {
	results, err := s.Propose(ctx, nodeEntry(name))
	if err != nil {
		return err
	}
	if results[0].Refusal != nil {
		return results[0].Refusal
	}
	return nil
}

func nodeEntry(name string) fsm.Entry {
	return fsm.Entry{Actor: "cli:test", Groups: [][]fsm.Command{{&fsm.NodeRegister{
		ID: model.NodeID(name), Name: name,
		Agent: model.AgentInfo{BootID: "boot", Incarnation: "1", Address: "127.0.0.1",
			Key: []byte("0123456789abcdef0123456789abcdef")},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}, PortMin: 20000, PortMax: 30000},
	}}}}
}

// mustRegister registers a node at the leader. It tries again after an error, for up to 30 s.
func (r *rig) mustRegister(name string) {
	r.t.Helper()
	eventually(r.t, 30*time.Second, "register "+name, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return r.leader(30*time.Second).register(ctx, name) == nil
	})
}

// agree waits until all running servers have the same state. It fails the test after limit.
func (r *rig) agree(limit time.Duration) {
	r.t.Helper()
	eventually(r.t, limit, "the same state everywhere", func() bool {
		digest := ""
		for _, s := range r.running() {
			d := fsm.Digest(s.machine.State())
			if digest != "" && d != digest {
				return false
			}
			digest = d
		}
		return true
	})
}
