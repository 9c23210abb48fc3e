package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a cluster of servers over real TLS on loopback, with a log that is one machine: every server shows the same
// state, one of them leads.
type rig struct {
	t       testing.TB
	ca      *transport.Authority
	machine *fsm.Machine
	born    time.Time

	mu     sync.Mutex
	index  uint64
	lead   string // name of the leader; "": none
	broken error  // what Propose answers
	after  error  // what Propose answers after it committed
	log    []fsm.Entry

	servers map[string]*server
	waiting api.Waiting
	plan    fsm.JobPlan
	moves   []fsm.Move      // what rebalancing would do
	begin   [][]fsm.Command // and what begins it
	heard   map[fsm.NodeID]int
}

// server is one of the rig's.
type server struct {
	r       *rig
	name    string
	address string
	api     *api.Server
	fresh   bool
	stale   time.Duration // for how long it has heard no leader
}

func newRig(t testing.TB, names ...string) *rig {
	t.Helper()
	r := &rig{t: t, ca: must(transport.NewAuthority("test", 0))(t), machine: fsm.NewMachine(), born: time.Now(), servers: map[string]*server{}, heard: map[fsm.NodeID]int{}}
	if len(names) == 0 {
		names = []string{"s1"}
	}
	r.lead = names[0]
	for _, name := range names {
		r.start(name, api.Limits{RequestsPerSecond: 100_000})
	}
	r.apply(&fsm.ClusterInit{ID: "01CLUSTER", Name: "test", Settings: fsm.DefaultSettings()})
	return r
}

// start runs a server on a free port of loopback.
func (r *rig) start(name string, limits api.Limits) *server {
	r.t.Helper()
	creds := must(r.ca.Credentials(transport.RoleServer, name))(r.t)
	raw := must(transport.ListenTCP(r.t.Context(), "127.0.0.1:0"))(r.t)
	l := must(transport.NewListener(raw, transport.ListenerConfig{Credentials: creds}))(r.t)
	s := &server{r: r, name: name, address: l.Addr().String(), fresh: true, stale: 7 * time.Millisecond}
	peers := transport.NewPeerClient(transport.Dialer{Credentials: creds})
	agents := transport.NewAgentTransport(transport.Dialer{Credentials: creds})
	s.api = must(api.New(api.Config{
		Name: name, Version: "1.2.3", Store: r.machine, Consensus: s, Freshness: s, Liveness: s, Explainer: r, Planner: r,
		Servers:       api.Servers{Roster: r, Ops: r, Snapshots: r, Peers: r, Verifier: r},
		PeerTransport: peers, AgentTransport: agents, Limits: limits,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "outspan_up 1\n") }),
	}))(r.t)
	r.servers[name] = s
	r.serve(l, s.api)
	r.t.Cleanup(func() { peers.Close(); agents.CloseIdleConnections() })
	return s
}

// serve runs a handler on a TLS port until the test ends.
func (r *rig) serve(l *transport.Listener, h http.Handler) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.Run(ctx) })
	r.t.Cleanup(func() { cancel(); wg.Wait() })
	r.serveOn(l.API(), h)
}

func (r *rig) serveOn(l net.Listener, h http.Handler) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = transport.NewHTTPServer(h, transport.HTTPConfig{ShutdownTimeout: 2 * time.Second}).Run(ctx, l)
	})
	r.t.Cleanup(func() { cancel(); wg.Wait() })
}

// client is a caller of a role; of the leader unless servers are named.
func (r *rig) client(role transport.Role, name string, servers ...string) *transport.Client {
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
	return r.client(transport.RoleCLI, "alice", servers...)
}

// apply commits commands as the leader would.
func (r *rig) apply(group ...fsm.Command) uint64 {
	r.t.Helper()
	results, err := r.commit(fsm.Entry{Format: fsm.CurrentFormat, At: r.now(), Wall: r.born.UnixMilli(), Actor: fsm.ActorLeader, Groups: [][]fsm.Command{group}})
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

func (r *rig) now() fsm.Time { return fsm.Time(time.Since(r.born).Milliseconds()) }

func (r *rig) setLeader(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lead = name
}

func (r *rig) fail(before, after error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken, r.after = before, after
}

// Leader implements api.Consensus.
func (s *server) Leader() (transport.ServerInfo, bool, bool) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	l, ok := s.r.servers[s.r.lead]
	if !ok {
		return transport.ServerInfo{}, false, false
	}
	return transport.ServerInfo{ID: fsm.ServerID("id-" + l.name), Name: l.name, APIAddress: l.address}, l == s, true
}

// Propose implements api.Consensus.
func (s *server) Propose(_ context.Context, e fsm.Entry) ([]fsm.Result, error) {
	if _, self, _ := s.Leader(); !self {
		return nil, fsm.Refuse(fsm.CodeNoLeader, "server %s does not lead", s.name)
	}
	s.r.mu.Lock()
	before, after := s.r.broken, s.r.after
	s.r.mu.Unlock()
	if before != nil {
		return nil, before
	}
	results, err := s.r.commit(e)
	if after != nil {
		return nil, after
	}
	return results, err
}

// ReadBarrier implements api.Consensus.
func (s *server) ReadBarrier(context.Context) error { return nil }

// Now implements api.Consensus.
func (s *server) Now() fsm.Time { return s.r.now() }

// CaughtUp implements api.Freshness.
func (s *server) CaughtUp() bool {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.fresh
}

// StaleFor implements api.Freshness.
func (s *server) StaleFor() time.Duration {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.stale
}

// Heard implements api.Liveness.
func (s *server) Heard(id fsm.NodeID) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.heard[id]++
}

// Live implements api.Liveness.
func (s *server) Live() map[fsm.NodeID]fsm.Liveness {
	return map[fsm.NodeID]fsm.Liveness{"01N1": {Age: 1500, Gossip: fsm.GossipAlive}}
}

// Why implements api.Explainer.
func (r *rig) Why(_ api.Question, subject string) (fsm.WhyResult, error) {
	return fsm.WhyResult{Subject: subject, State: "ready", Chain: []fsm.WhyLink{{Index: 3, Wall: 1000, Cause: fsm.CauseScaleUp, Actor: "leader", Text: "placed"}},
		Considered: []fsm.Considered{{Node: "01N1", Score: 7}, {Node: "01N2", ExcludedBy: fsm.CodeNoMemory}}, Next: "nothing"}, nil
}

// Waiting implements api.Explainer.
func (r *rig) Waiting(api.Question) api.Waiting { return r.waiting }

// DrainStatus implements api.Explainer.
func (r *rig) DrainStatus(q api.Question, id fsm.DrainID) []fsm.DrainStatus {
	d, ok := q.State.Drains.Get(id)
	if !ok {
		return nil
	}
	var all []fsm.DrainStatus
	for _, n := range d.Nodes {
		one := fsm.DrainStatus{Node: n.Node}
		for i := range q.State.InstancesOn(n.Node) {
			one.Remaining = append(one.Remaining, fsm.NodeRemaining{Instance: i.ID, Class: i.ClassOf(), State: string(i.Status.Observed), Blocker: fsm.CodeReplacementPending})
			one.Blockers = append(one.Blockers, fsm.Blocker{Code: fsm.CodeReplacementPending, Instance: i.ID, Message: "its replacement is not ready", Unblock: "wait"})
		}
		all = append(all, one)
	}
	return all
}

// Forecast implements api.Planner.
func (r *rig) Forecast(q api.Question, id fsm.DrainID) []fsm.Forecast {
	var all []fsm.Forecast
	for _, s := range r.DrainStatus(q, id) {
		for _, i := range s.Remaining {
			all = append(all, fsm.Forecast{Node: s.Node, Instance: i.Instance, Group: "web/http", Class: i.Class, Action: fsm.ActionMove, Target: "01N2"})
		}
	}
	return all
}

// Moves implements api.Planner.
func (r *rig) Moves(api.Question) ([]fsm.Move, [][]fsm.Command) { return r.moves, r.begin }

// Plan implements api.Planner.
func (r *rig) Plan(_ api.Question, spec fsm.JobSpec) (fsm.JobPlan, error) {
	p := r.plan
	p.Job = spec.Name
	return p, nil
}

// Members implements api.Roster.
func (r *rig) Members(context.Context) ([]api.Member, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []api.Member
	for _, name := range []string{"s1", "s2", "s3"} {
		if s, ok := r.servers[name]; ok {
			all = append(all, api.Member{Name: name, ID: fsm.ServerID("id-" + name), Address: s.address, Role: "voter", Leader: r.lead == name, Voter: true, State: "alive", Version: "1.2.3"})
		}
	}
	return all, nil
}

// Join implements api.MemberOps.
func (r *rig) Join(context.Context, string) error { return nil }

// Promote implements api.MemberOps.
func (r *rig) Promote(context.Context, fsm.ServerID) error { return nil }

// Remove implements api.MemberOps.
func (r *rig) Remove(_ context.Context, id fsm.ServerID, force bool) error {
	if !force {
		return fsm.Refuse(fsm.CodeConflict, "without server %s there is no quorum", id).WithHint("use force")
	}
	return nil
}

// TransferLeader implements api.MemberOps.
func (r *rig) TransferLeader(_ context.Context, to fsm.ServerID) error {
	r.setLeader(string(to)[len("id-"):])
	return nil
}

// Save implements api.Snapshots.
func (r *rig) Save(_ context.Context, w io.Writer) error {
	return fsm.WriteSnapshot(w, r.machine.Snapshot())
}

// Restore implements api.Snapshots.
func (r *rig) Restore(_ context.Context, from io.Reader) error {
	_, err := fsm.ReadSnapshot(from)
	return err
}

// AnswerPeer implements api.Peers.
func (r *rig) AnswerPeer(_ context.Context, question string, body []byte) ([]byte, error) {
	return append([]byte(question+":"), body...), nil
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// get reads JSON into a map, so that a test sees what a script would.
func get(t testing.TB, c *transport.Client, path string) map[string]any {
	t.Helper()
	raw, _, err := c.Do(t.Context(), http.MethodGet, path, nil, nil)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return decode(t, raw)
}

func post(t testing.TB, c *transport.Client, path string, body any) map[string]any {
	t.Helper()
	raw, _, err := c.Do(t.Context(), http.MethodPost, path, nil, body)
	if err != nil {
		t.Fatalf("POST %s: %v", path, err)
	}
	return decode(t, raw)
}

func decode(t testing.TB, raw []byte) map[string]any {
	t.Helper()
	v := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("answer is no JSON object: %v\n%s", err, raw)
	}
	return v
}

// eventually waits until ok says yes.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen in 15 s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func values(query string) url.Values {
	v, err := url.ParseQuery(query)
	if err != nil {
		panic(err)
	}
	return v
}

// isTrue reports whether a field of decoded JSON says true.
func isTrue(v any) bool {
	b, ok := v.(bool)
	return ok && b
}
