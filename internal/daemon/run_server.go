package daemon

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/audit"
	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/reconcile"
	"github.com/outspan/outspan/series"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
	"github.com/outspan/outspan/transport/metrics"
	"github.com/outspan/outspan/trust"
)

// serverPart is the server part of a process: the replicated state, the TLS port, the unix socket, the API, and the
// loop that decides while this server leads.
type serverPart struct {
	p        *process
	creds    *transport.Credentials
	listener *transport.Listener
	unix     *transport.UnixListener
	peers    *transport.PeerClient
	machine  *fsm.Machine
	cluster  *cluster.Server
	api      *httpapi.Server
	loop     loopMetrics
	compared compareMetrics
	refusals refusals
	joins    joinRefusals
	bodies   *transport.Bodies
	copies   *transport.Copies
	counts   *metrics.Collector
	series   *series.Recorder
	applies  series.Stopwatch // of entries, and syncs of appends to the log
	syncs    series.Stopwatch
	trust    *trust.Engine      // nil if the cluster issues no certificates
	files    *trust.FilesEngine // nil if it does
	audit    *audit.Log         // nil if the configuration has none
	audited  auditMetrics
	signing  *signingIn // nil if the configuration has no provider
	page     *webPage   // nil if the configuration has none
}

func openServer(ctx context.Context, p *process) (_ *serverPart, err error) {
	setCollector()
	s := &serverPart{p: p, machine: fsm.NewMachine(), copies: transport.NewCopies(),
		joins: newJoinRefusals()}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if err := s.openAudit(); err != nil {
		return nil, err
	}
	if err := p.revive(ctx); err != nil {
		return nil, err
	}
	if s.creds, err = p.credentials(pki.RoleServer); err != nil {
		return nil, err
	}
	s.peers = transport.NewPeerClient(transport.Dialer{Credentials: s.creds})
	if s.listener, err = p.listen(ctx, p.cfg.Listen.Port, transport.ListenerConfig{Credentials: s.creds,
		Limits: transport.Limits{MaxAPI: p.cfg.Limits.Connections}, Join: s.joinAnswers(), Tokens: p.cfg.Auth.TakesTokens(),
		Copies: s.copies, Failed: s.auditHandshake}); err != nil {
		return nil, err
	}
	p.own = p.advertised(s.listener)
	if err := s.openTrust(); err != nil {
		return nil, err
	}
	if err := s.openCluster(); err != nil {
		return nil, err
	}
	if s.unix, err = transport.ListenUnix(s.socket(), p.cfg.Name); err != nil {
		return nil, err
	}
	if err := s.openAPI(); err != nil {
		return nil, err
	}
	s.page, err = s.openPage(ctx)
	return s, err
}

// socket returns the path of the unix socket at which the CLI on this machine reaches the server.
func (s *serverPart) socket() string {
	if s.p.cfg.Listen.Socket != "" {
		return s.p.cfg.Listen.Socket
	}
	return filepath.Join(s.p.cfg.DataDir, "api.sock")
}

func (s *serverPart) openCluster() error {
	cfg := s.p.cfg
	keys, err := s.p.gossipKeys()
	if err != nil {
		return err
	}
	dialer := transport.Dialer{Credentials: s.creds}
	settings := model.DefaultSettings()
	if cfg.Settings != nil {
		settings = *cfg.Settings
	}
	s.counts = metrics.New(metrics.Config{
		Version: s.p.program.Version, Store: s.machine, Explainer: explainer{}, Raft: s.raftPart,
		Live: func() map[model.NodeID]fsm.Liveness {
			return s.cluster.Live()
		}, Now: func() model.Time { return s.cluster.Now() },
		Problems: func() map[api.ProblemCode]int { return s.api.ProblemCounts() }, Machine: s.ownMachine,
	})
	s.compared = newCompareMetrics()
	s.cluster, err = cluster.Open(cluster.Config{
		DataDir: cfg.DataDir, Name: cfg.Name, Version: s.p.program.Version, Cluster: cfg.Cluster,
		BootstrapExpect: cfg.Server.BootstrapExpect, NoBegin: s.p.noBegin(), Settings: settings,
		Machine: s.machine, Stream: s.listener.Raft(dialer, s.p.advertised(s.listener)),
		Asker: s.peers,
		Gossip: cluster.PoolConfig{
			Key: keys[0], OtherKeys: bare(keys[1:]), Profile: cluster.Profile(cfg.Gossip.Profile),
			Bind: cfg.Listen.Address, Port: cfg.Listen.GossipPort, Advertise: cfg.Advertise,
			Join: cfg.Server.RetryJoin, Logger: s.p.log.Named("gossip"),
		},
		Lead: s.lead, MayVote: s.mayVote(),
		Applied: s.noteApply, Stored: s.syncs.Note, Certificates: s.certificates,
		Fatal:   s.p.fatal,
		Compare: cluster.CompareConfig{Compared: s.compared.note},
		Raft:    cluster.RaftConfig{Multiplier: cfg.Server.RaftMultiplier},
		Logger:  s.p.log.Named("cluster"),
	})
	if err != nil {
		return err
	}
	s.creds.SetClock(s.cluster.WallClock)
	s.series = s.newSeries()
	return nil
}

// lead runs the leader's loop for one term, until ctx ends.
func (s *serverPart) lead(ctx context.Context, term uint64) error {
	told := map[string]bool{}
	report := func(r reconcile.Report) {
		s.loop.note(r)
		for _, skip := range append(r.Plan.Skipped, r.Skipped...) {
			if text := skip.String(); !told[text] && len(told) < toldSkips { // later decisions report the same skip again
				told[text] = true
				s.p.log.Error("left out of the plan: no log entry can hold it", "what", text)
			}
		}
	}
	loop := reconcile.New(reconcile.Config{
		States: s.machine, Evidence: s.cluster, Log: submitter{s.cluster}, Term: term, Reports: report,
	})
	ctx, stop := context.WithCancel(ctx)
	var founding sync.WaitGroup
	defer founding.Wait()
	defer stop()
	if s.trust != nil {
		founding.Go(func() { s.trust.Lead(ctx) })
	}
	return loop.Run(ctx)
}

const toldSkips = 100 // the most log lines about skipped groups that are written in one term

// submitter adapts cluster.Server to reconcile.Log, which has its own type for the outcome of an entry.
type submitter struct{ *cluster.Server }

// Submit implements reconcile.Log.
func (s submitter) Submit(ctx context.Context, e fsm.Entry) (reconcile.Outcome, error) {
	pending, err := s.Server.Submit(ctx, e)
	if err != nil {
		return nil, err // a nil pointer in an interface would not be nil
	}
	return pending, nil
}

func (s *serverPart) openAPI() (err error) {
	registry := s.p.registry
	s.loop = newLoopMetrics()
	s.refusals, s.bodies = newRefusals(), transport.NewBodies(0, 0)
	beyond := newBeyondShares()
	registry.MustRegister(slices.Concat(s.loop.collectors(), s.compared.collectors(), s.audited.collectors(),
		[]prometheus.Collector{s.counts, s.refusals, beyond, s.joins})...)
	var renew func(context.Context, model.Subject, transport.RenewRequest) (transport.RenewReply, error)
	var gossip httpapi.GossipKeys
	var ring httpapi.Keyring
	var trusts httpapi.Trust // an Engine that is nil would not be a nil Trust
	var ca httpapi.CARotation
	var signPerson httpapi.SignPerson
	var hashBody func(*fsm.State, string, []byte) string
	var joinRoot func() (*x509.Certificate, error)
	if s.trust != nil {
		renew, gossip, ring, trusts, ca = s.trust.Renew, s.trust, s.trust, s.trust, s.trust
		signPerson, hashBody = s.trust.SignPerson, s.trust.HashBody
	} else if s.p.cfg.TLS.Issue != "" {
		joinRoot = s.files.Root
	}
	var signing *httpapi.SignIn
	if s.signing, signing, err = signIn(s.p.cfg.Name, s.p.cfg.Auth.OIDC, s.cluster.WallClock,
		s.p.log.Named("oidc")); err != nil {
		return err
	}
	s.api, err = httpapi.New(httpapi.Config{
		Name: s.p.cfg.Name, Version: s.p.program.Version, Logger: s.p.log.Named("api"),
		Store: s.machine, Wall: s.cluster.WallClock, Consensus: s.cluster, Freshness: s.cluster, Liveness: s.cluster,
		Explainer: explainer{}, Planner: new(planner),
		Servers: httpapi.Servers{List: memberLister{s.cluster}, Ops: s.cluster, Snapshots: s.cluster,
			Peers: s.peerAnswers(), Verifier: verifier{s.cluster}, Keyring: ring},
		Managed: s.trust != nil, JoinRoot: joinRoot, Tokens: s.p.cfg.Auth.TakesTokens(), SignIn: signing,
		Renew: renew, Gossip: gossip, Trust: trusts, CA: ca, SignPerson: signPerson, HashBody: hashBody,
		PeerTransport: s.peers, AgentTransport: transport.NewAgentTransport(transport.Dialer{Credentials: s.creds}),
		Metrics: s.p.metrics(),
		Limits:  httpapi.Limits{RequestsPerSecond: s.p.cfg.Limits.RequestsPerSecond},
		Bodies:  s.bodies, Refused: s.refusals.count, Beyond: beyond.count, Copies: s.copies,
		Audit: s.audit, Series: s.series,
	})
	return err
}

// raftPart returns the state of this server's raft, for the metrics.
func (s *serverPart) raftPart() metrics.Raft {
	st := s.cluster.Status()
	return metrics.Raft{Leader: st.Leads, Term: st.Term, Applied: st.StateIndex,
		Lag: st.CommitIndex - min(st.AppliedIndex, st.CommitIndex)}
}

// run serves until ctx ends or one of its goroutines fails. It stops in reverse order of the start: the API finishes
// the open requests, then leadership is handed over, and then the port closes.
func (s *serverPart) run(ctx context.Context) error {
	defer s.release()
	base := context.WithoutCancel(ctx)
	port, closePort := context.WithCancel(base)
	defer closePort()
	consensus, leave := context.WithCancel(base)
	defer leave()
	serve, stopServing := context.WithCancel(base)
	defer stopServing()

	recording, stopRecording := context.WithCancel(base)
	defer stopRecording()

	failed := make(chan error, 8)
	start := func(ctx context.Context, run func(context.Context) error) *sync.WaitGroup {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
		return &wg
	}
	web := transport.NewHTTPServer(s.api, transport.HTTPConfig{
		Agents: s.api.AnswerAgent, Bodies: s.bodies, Refused: s.refusals.count, Logger: s.p.log.Named("http"),
	})
	auditing := new(sync.WaitGroup)
	if s.audit != nil {
		auditing = start(recording, s.audit.Run)
	}
	listening := start(port, s.listener.Run)
	agreeing := start(consensus, s.cluster.Run)
	counting, recalling := start(consensus, s.counts.Run), start(consensus, s.series.Run)
	trusting := new(sync.WaitGroup)
	if s.trust != nil {
		trusting = start(consensus, s.trust.Run)
	} else {
		trusting = start(consensus, s.files.Run)
	}
	serving := start(serve, func(ctx context.Context) error {
		return web.Run(ctx, s.listener.API(), net.Listener(s.unix))
	})

	showing := new(sync.WaitGroup)
	if s.page != nil {
		showing = start(serve, s.page.run)
	}
	asking := new(sync.WaitGroup)
	if s.signing != nil {
		asking = start(serve, s.signing.run)
	}

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-failed:
	}
	stopServing()
	serving.Wait()
	showing.Wait()
	asking.Wait()
	leave()
	agreeing.Wait()
	counting.Wait()
	recalling.Wait()
	trusting.Wait()
	closePort()
	listening.Wait()
	stopRecording()
	auditing.Wait()
	return failure
}

func (s *serverPart) reload(cfg *config.Config) error {
	s.listener.SetLimits(transport.Limits{MaxAPI: cfg.Limits.Connections})
	if s.audit != nil {
		s.audit.Reopen()
	}
	s.api.SetLimits(httpapi.Limits{RequestsPerSecond: cfg.Limits.RequestsPerSecond})
	return errors.Join(s.page.reload(cfg.UI), s.listener.Reload())
}

// release closes what openServer opened.
func (s *serverPart) release() {
	if s.cluster != nil {
		_ = s.cluster.Close() // its error does not matter any more
	}
	if s.unix != nil {
		_ = s.unix.Close() // its error does not matter any more
	}
	if s.listener != nil {
		_ = s.listener.API().Close() // its error does not matter any more
	}
	if s.page != nil {
		_ = s.page.listener.API().Close() // its error does not matter any more
	}
}
