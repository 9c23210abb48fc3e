package httpapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a cluster of servers over real TLS on loopback. All servers share one fsm.Machine, and so the same state. At
// most one server leads.
type rig struct {
	t       testing.TB
	ca      *transport.Authority
	machine *fsm.Machine
	born    time.Time

	mu     sync.Mutex
	index  uint64
	lead   string // name of the leader; "" means none
	shape  func(*httpapi.ServerEntry)
	remove func(id model.ServerID, force bool) error // nil: only a forced removal succeeds
	twin   string                                    // if not "", one more server with this name is listed
	broken error                                     // if not nil, Propose fails with it and commits nothing
	behind func()                                    // if not nil, the next ReadBarrier calls it
	after  error                                     // if not nil, Propose commits the entry and then fails with it
	log    []fsm.Entry

	servers map[string]*server
	waiting httpapi.Waiting
	plan    model.JobPlan
	moves   []fsm.Move      // what rebalancing would do
	begin   [][]fsm.Command // commands that begin the moves
	heard   map[model.NodeID]int
	live    map[model.NodeID]fsm.Liveness // if not nil, the evidence about the nodes
	panics  model.NodeID                  // Heard panics for this node
	watched map[fsm.Topic]int             // how often somebody began to wait for a topic
}

// server is one server of the rig.
type server struct {
	stop func() // begins to stop its HTTP server, without waiting

	r       *rig
	name    string
	address string
	api     *httpapi.Server
	passing *passing     // its requests to other servers
	asked   atomic.Int64 // number of agents' calls that arrived
	fresh   bool
	stale   time.Duration // how long it has heard no leader
	full    bool          // its disk is full
}

func newRig(t testing.TB, names ...string) *rig {
	t.Helper()
	r := &rig{t: t, ca: must(transport.NewAuthority("test", 0))(t), machine: fsm.NewMachine(), born: time.Now(),
		servers: map[string]*server{}, heard: map[model.NodeID]int{}, watched: map[fsm.Topic]int{}}
	if len(names) == 0 {
		names = []string{"s1"}
	}
	r.lead = names[0]
	for _, name := range names {
		r.start(name, httpapi.Limits{RequestsPerSecond: 100_000})
	}
	r.apply(&fsm.ClusterInit{ID: "01CLUSTER", Name: "test", Settings: model.DefaultSettings()})
	return r
}

// start runs a server on a free port of loopback.
func (r *rig) start(name string, limits httpapi.Limits) *server {
	r.t.Helper()
	return r.startWith(name, func(c *httpapi.Config) { c.Limits = limits })
}

// startWith is like start, but the function edit may change the server's configuration.
func (r *rig) startWith(name string, edit func(*httpapi.Config)) *server {
	r.t.Helper()
	creds := must(r.ca.Credentials(pki.RoleServer, name))(r.t)
	raw := must(transport.ListenTCP(r.t.Context(), "127.0.0.1:0"))(r.t)
	l := must(transport.NewListener(raw, transport.ListenerConfig{Credentials: creds, Tokens: true}))(r.t)
	s := &server{r: r, name: name, address: l.Addr().String(), fresh: true, stale: 7 * time.Millisecond}
	peers := transport.NewPeerClient(transport.Dialer{Credentials: creds})
	s.passing = &passing{RoundTripper: peers}
	agents := transport.NewAgentTransport(transport.Dialer{Credentials: creds})
	config := httpapi.Config{
		Name: name, Version: "1.2.3", Store: store{r.machine, r}, Consensus: s, Freshness: s,
		Liveness: s, Explainer: r, Planner: r, Tokens: true,
		Servers:       httpapi.Servers{List: r, Ops: r, Snapshots: r, Peers: r, Verifier: r, Keyring: r},
		PeerTransport: s.passing, AgentTransport: agents,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "outspan_up 1\n") }),
	}
	edit(&config)
	s.api = must(httpapi.New(config))(r.t)
	r.servers[name] = s
	s.stop = r.serve(l, s.api,
		func(ctx context.Context, who model.Subject, call transport.AgentCall, question []byte) ([]byte, error) {
			s.asked.Add(1)
			return s.api.AnswerAgent(ctx, who, call, question)
		})
	r.t.Cleanup(func() { peers.Close(); agents.CloseIdleConnections() })
	return s
}

// serve answers HTTP requests by the given handler, and agents' calls by the given function, on a TLS port. It serves
// until stop is called or the test ends.
func (r *rig) serve(l *transport.Listener, h http.Handler, agents transport.AnswerAgent) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.Run(ctx) })
	r.t.Cleanup(func() { cancel(); wg.Wait() })
	return r.serveOn(l.API(), h, agents)
}

func (r *rig) serveOn(l net.Listener, h http.Handler, agents transport.AnswerAgent) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = transport.NewHTTPServer(h, transport.HTTPConfig{ShutdownTimeout: 2 * time.Second, Agents: agents}).Run(ctx, l)
	})
	r.t.Cleanup(func() { cancel(); wg.Wait() })
	return cancel
}

// client returns a client with a certificate of the given role and name. It calls the leader unless servers are given.
func (r *rig) client(role pki.Role, name string, servers ...string) *transport.Client {
	r.t.Helper()
	if len(servers) == 0 {
		servers = []string{r.lead}
	}
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, "https://"+r.servers[s].address)
	}
	c := must(transport.NewClient(transport.ClientConfig{
		Addresses: addresses, Credentials: must(r.ca.Credentials(role, name))(r.t), RetryFor: -1,
	}))(r.t)
	r.t.Cleanup(c.Close)
	return c
}

func (r *rig) cli(servers ...string) *transport.Client {
	return r.client(pki.RoleCLI, "alice", servers...)
}

// apply commits commands as the leader would, and returns the entry's index. It fails the test if they are refused.
func (r *rig) apply(group ...fsm.Command) uint64 {
	r.t.Helper()
	results, err := r.commit(fsm.Entry{Format: model.CurrentFormat, At: r.now(), Wall: r.born.UnixMilli(),
		Actor: model.ActorLeader, Groups: [][]fsm.Command{group}})
	if err != nil {
		r.t.Fatal(err)
	}
	if results[0].Refusal != nil {
		r.t.Fatalf("%T: %v", group[0], results[0].Refusal)
	}
	return results[0].Index
}

func (r *rig) commit(e fsm.Entry) ([]fsm.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	data, err := fsm.EncodeEntry(e)
	if err != nil {
		return nil, err
	}
	r.index++
	r.log = append(r.log, e)
	return r.machine.Apply(r.index, 1, data)
}

func (r *rig) lastEntry() fsm.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log[len(r.log)-1]
}

func (r *rig) entries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.log)
}

func (r *rig) now() model.Time { return model.Time(time.Since(r.born).Milliseconds()) }

func (r *rig) setLeader(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lead = name
}

func (r *rig) panicAt(id model.NodeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.panics = id
}

func (r *rig) fail(before, after error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken, r.after = before, after
}

var _ httpapi.Store = (*fsm.Machine)(nil)
