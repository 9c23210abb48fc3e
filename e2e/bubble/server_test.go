package bubble

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/internal/testbed/memdisk"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/reconcile"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

const (
	tlsPort    = ":7640"
	gossipPort = ":7642"
)

func gossipKey() []byte { return []byte("a key of the gossip, 32 bytes lo") }

// server is the machine of one server: its process, and its disk, which survives the process.
type server struct {
	w       *world
	name    string
	host    string
	disk    *memdisk.Disk
	mayFail atomic.Bool  // the process may end by itself, because its disk is broken
	stuck   atomic.Bool  // the process ended by itself, because a handover of its leadership did not finish
	skew    atomic.Int64 // how far its wall clock is ahead, in ns
	*serverProcess
}

// serverProcess is one run of a server, wired as in the real program.
type serverProcess struct {
	machine  *fsm.Machine
	cluster  *cluster.Server
	listener *transport.Listener
	peers    *transport.PeerClient
	agents   *reach.HTTPTransport
	api      *httpapi.Server
	store    cluster.LogStore
	log      hclog.Logger

	stopping func()        // stops the process gracefully
	dying    func()        // stops the process immediately
	up       chan struct{} // closed once stopping and dying may be called
	done     chan struct{}

	mu      sync.Mutex
	gone    bool               // the process was killed, or has ended by itself
	fatal   error              // why the process ended by itself
	reports []reconcile.Report // reports of the leader's loop that have errors or refusals
}

func newServer(w *world, i int) *server {
	disk := memdisk.New(filepath.Join(w.root, fmt.Sprintf("s%d", i)), rand.New(rand.NewPCG(w.seed, uint64(i))))
	return &server{w: w, name: fmt.Sprintf("s%d", i), host: serverHost(i), disk: disk}
}

func (s *server) address() string { return s.host + tlsPort }

// start starts a new process with the current contents of the disk.
func (s *server) start() {
	s.w.t.Helper()
	s.w.net.Revive(s.host)
	p := &serverProcess{machine: fsm.NewMachine(), up: make(chan struct{}), done: make(chan struct{}),
		log: s.w.log.Named(s.name)}
	s.serverProcess = p
	creds, err := s.w.ca.Credentials(pki.RoleServer, s.name)
	must(s.w.t, err)
	p.listener, err = transport.NewListener(s.w.net.Listen(s.address()),
		transport.ListenerConfig{Credentials: creds, Logger: p.log.Named("listener")})
	must(s.w.t, err)
	dialer := transport.Dialer{Credentials: creds, Dial: s.w.net.Dialer(s.host)}
	p.peers, p.agents = transport.NewPeerClient(dialer), transport.NewAgentTransport(dialer)
	p.cluster, err = cluster.Open(s.config(dialer))
	must(s.w.t, err)
	p.api, err = httpapi.New(httpapi.Config{
		Name: s.name, Version: "test", Logger: p.log.Named("api"),
		Store: p.machine, Consensus: p.cluster, Freshness: p.cluster, Liveness: p.cluster,
		Explainer: explainer{}, Planner: explainer{},
		Servers:       httpapi.Servers{List: memberLister{p.cluster}, Ops: p.cluster, Snapshots: p.cluster, Peers: p.cluster},
		PeerTransport: p.peers, AgentTransport: p.agents,
	})
	must(s.w.t, err)
	p.run(s.w.history.follow(s.name, p))
}

func (s *server) config(dialer transport.Dialer) cluster.Config {
	p := s.serverProcess
	return cluster.Config{
		DataDir: s.disk.Dir(), Name: s.name, Version: "test", Cluster: clusterName,
		BootstrapExpect: 3, Settings: s.w.settings,
		Machine: p.machine, Stream: p.listener.Raft(dialer, s.address()), Asker: p.peers,
		Gossip: cluster.PoolConfig{
			Key: gossipKey(), Profile: s.w.profile, Transport: s.w.net.Packets(s.host + gossipPort),
			Join: []string{serverHost(1) + gossipPort, serverHost(2) + gossipPort, serverHost(3) + gossipPort},
		},
		Lead: s.lead(p), Fatal: s.fail(p), Logger: p.log.Named("cluster"), Raft: s.w.raft,
		Wall: func() time.Time { return time.Now().Add(time.Duration(s.skew.Load())) },
		Disk: cluster.DiskConfig{BallastBytes: ballast, Space: s.disk.Space,
			OpenLog: func(path string) (cluster.LogStore, error) {
				store, err := cluster.OpenBolt(path)
				if err != nil {
					return nil, err
				}
				p.store = store
				return s.disk.Open(path, store), nil
			}},
	}
}

const ballast = 1 << 20

// lead returns a function that runs the leader's loop for one term. The function first checks that the state has
// everything that was acknowledged (S4).
func (s *server) lead(p *serverProcess) func(context.Context, uint64) error {
	return func(ctx context.Context, term uint64) error {
		acknowledged := s.w.receipts.acknowledged() // read before the state, so the state must have all of them
		if err := allThere(acknowledged, p.machine.State()); err != nil {
			s.w.t.Errorf("%s begins to lead in term %d: %v", s.name, term, err)
		}
		return reconcile.New(reconcile.Config{States: p.machine, Evidence: p.cluster, Log: submitter{p.cluster},
			Term: term, Reports: p.note}).Run(ctx)
	}
}

func (p *serverProcess) note(r reconcile.Report) {
	if r.Err == nil && len(r.Refused) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports = append(p.reports, r)
}

// fail returns the function that handles a fatal error of a server: it ends the process immediately, as the real
// program does. The test fails, unless the process may end by itself (mayFail) or a handover of leadership is stuck.
func (s *server) fail(p *serverProcess) func(error) {
	return func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.fatal = err; p.gone {
			return
		}
		if s.w.supervised.Load() && strings.Contains(err.Error(), "leadership transfer has not ended") {
			s.stuck.Store(true)
		} else if !s.mayFail.Load() {
			s.w.t.Errorf("%s ended by itself: %v", s.name, err)
		}
		p.gone = true
		s.w.net.Kill(s.host)
		go func() {
			<-p.up
			p.dying()
		}()
	}
}

// ended reports whether the process was killed or ended by itself.
func (p *serverProcess) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone || p.fatal != nil
}

// die ends the process abruptly. The caller has taken the host off the network, so goroutines of the process that still
// run reach no other machine. restart waits until they have ended.
func (p *serverProcess) die() {
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	p.dying()
}

// submitter is the log to which the leader's loop writes.
type submitter struct{ *cluster.Server }

// Submit implements reconcile.Log.
func (s submitter) Submit(ctx context.Context, e fsm.Entry) (reconcile.Outcome, error) {
	pending, err := s.Server.Submit(ctx, e)
	if err != nil {
		return nil, err // returning pending would give an interface that is not nil, although its pointer is nil
	}
	return pending, nil
}

// run starts the parts of the process, and a goroutine that calls the given function. After a call of stopping,
// everything stops in the order of the real program: the API first and the port last.
func (p *serverProcess) run(also func(context.Context)) {
	port, closePort := context.WithCancel(context.Background())
	consensus, leave := context.WithCancel(context.Background())
	serve, stopServing := context.WithCancel(context.Background())
	watch, stopWatching := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	p.stopping = sync.OnceFunc(func() { close(stopped) })
	start := func(run func()) *sync.WaitGroup {
		var wg sync.WaitGroup
		wg.Go(run)
		return &wg
	}
	web := transport.NewHTTPServer(p.api, transport.HTTPConfig{Agents: p.api.AnswerAgent, Logger: p.log.Named("http")})
	listening := start(func() { _ = p.listener.Run(port) })
	watching := start(func() { also(watch) })
	agreeing := start(func() { _ = p.cluster.Run(consensus) })
	serving := start(func() { _ = web.Run(serve, p.listener.API()) })
	p.dying = func() {
		stopWatching()
		watching.Wait()
		leave()
		closePort()
		p.stopping()
	}
	close(p.up)
	go func() {
		defer close(p.done)
		<-stopped
		stopServing()
		serving.Wait()
		stopWatching()
		watching.Wait()
		leave()
		agreeing.Wait()
		closePort()
		listening.Wait()
		p.peers.Close()
		p.agents.CloseIdleConnections()
	}()
}

// running reports whether the process was started, and has neither ended nor been killed.
func (s *server) running() bool {
	if s.serverProcess == nil || s.ended() {
		return false
	}
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

func (s *server) state() fsm.State {
	if s.serverProcess == nil {
		return fsm.NewState()
	}
	return s.machine.State()
}

// stop stops the process gracefully, and waits for its end. It does nothing if the process was never started.
func (s *server) stop() {
	if s.serverProcess == nil {
		return
	}
	s.stopping()
	<-s.done
}

// kill kills the process, and closes its connections as the kernel would.
func (s *server) kill() {
	s.w.net.Kill(s.host)
	s.die()
}

// powerOff cuts the machine's power: its connections fall silent, and data that was not forced to its disk may be lost.
// The result describes what was lost.
func (s *server) powerOff() string {
	s.w.t.Helper()
	s.w.net.Vanish(s.host)
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	lost, err := s.disk.PowerLoss()
	must(s.w.t, err)
	s.die()
	return lost
}

// restart waits until the previous process has stopped completely, and starts a new one.
func (s *server) restart() {
	s.w.t.Helper()
	<-s.done
	s.start()
}

// memberLister lists the servers in the form that the API uses.
type memberLister struct{ *cluster.Server }

// Members implements httpapi.ServerList.
func (r memberLister) Members(context.Context) ([]httpapi.ServerEntry, error) {
	var entries []httpapi.ServerEntry
	for _, s := range r.Servers() {
		m := httpapi.ServerEntry{Listens: s.Listens, Claimed: !s.Member, Member: api.Member{
			Name: s.Name, ID: s.ID, Address: s.Address, Role: "voter", Leader: s.Leader, Voter: s.Voter,
			State: string(s.Gossip), IndexLag: s.IndexLag,
		}}
		if g, ok := r.Pool().Member(string(s.ID)); ok {
			m.Gossip = g.Address
		}
		entries = append(entries, m)
	}
	return entries, nil
}

// explainer answers the API's questions with the code that makes decisions.
type explainer struct{}

func input(q httpapi.Question) reconcile.Input {
	return reconcile.Input{State: q.State, Live: q.Live, Now: q.Now}
}

// Why implements httpapi.Explainer.
func (explainer) Why(q httpapi.Question, subject string) (model.WhyResult, error) {
	kind, object, _ := strings.Cut(subject, "/")
	if d, ok := q.State.Deployments.Get(model.DeploymentID(object)); ok && kind == "deployment" {
		object = string(d.Job)
	}
	result, refusal := reconcile.Explain(input(q)).Why(object)
	if refusal != nil {
		return result, refusal
	}
	return result, nil
}

// Waiting implements httpapi.Explainer.
func (explainer) Waiting(q httpapi.Question) httpapi.Waiting {
	e := reconcile.Explain(input(q))
	w := httpapi.Waiting{Groups: map[model.GroupID]model.Blocker{}, Instances: map[model.InstanceID][]model.Blocker{}}
	for id := range q.State.Groups.All() {
		if why := e.Pending(id); why != nil {
			w.Groups[id] = model.Blocker{Code: why.Code, Message: why.Message, Unblock: why.Hint}
		}
	}
	for id, inst := range q.State.Instances.All() {
		if inst.Eviction.Requested {
			if waits := e.Waiting(id); len(waits) > 0 {
				w.Instances[id] = waits
			}
		}
	}
	return w
}

// DrainStatus implements httpapi.Explainer.
func (explainer) DrainStatus(q httpapi.Question, id model.DrainID) []model.DrainStatus {
	d, ok := q.State.Drains.Get(id)
	if !ok {
		return nil
	}
	return reconcile.Explain(input(q)).Drain(d)
}

// Forecast implements httpapi.Planner.
func (explainer) Forecast(q httpapi.Question, id model.DrainID) []model.Forecast {
	d, ok := q.State.Drains.Get(id)
	if !ok {
		return nil
	}
	var nodes []string
	for _, part := range d.Nodes {
		nodes = append(nodes, string(part.Node))
	}
	forecast, _ := reconcile.ForecastDrain(input(q), nodes, d.Options)
	return forecast
}

// Moves implements httpapi.Planner.
func (explainer) Moves(q httpapi.Question) ([]fsm.Move, [][]fsm.Command) {
	return reconcile.Moves(input(q))
}

// Plan implements httpapi.Planner.
func (explainer) Plan(q httpapi.Question, spec model.JobSpec) (model.JobPlan, error) {
	plan, refusal := reconcile.PlanJob(input(q), spec)
	if refusal != nil {
		return plan, refusal
	}
	return plan, nil
}
