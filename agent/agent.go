package agent

import (
	"context"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/oklog/ulid/v2"

	"github.com/outspan/outspan/agent/door"
	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/agent/transfer"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Identity identifies this agent in heartbeats and gossip.
type Identity struct {
	Node        model.NodeID
	Name        string
	BootID      string // the kernel's id of this boot
	Incarnation string // the id of this agent process; each start has a new id
}

// Agent is the worker of one node. Make it with New, then call Run once. Handler, Identity, NotePort, RegisterAgain,
// SetLabels and Status may be called from any goroutine.
type Agent struct {
	cfg         Config
	servers     *answers // also in cfg.Servers
	log         hclog.Logger
	home        *home
	identity    Identity
	beats       Heartbeats
	session     *session
	shared      *shared
	supervisors *supervisors
	forward     *forwarder
	mover       *transfer.Mover
	puller      *puller // nil if this node runs no containers
	guests      guests
	uses        *groupUses
	every       atomic.Int64 // the interval of heartbeats that the servers want, as a time.Duration

	mu       sync.Mutex
	problems map[string]string // the parts of the agent that don't work now, each with the reason
}

// New opens the data directory and finds out what the node can do. It starts no instance and contacts no server. Codes:
// invalid, agent_running (another agent uses the directory), internal (a disk error), and those of driver.New.
func New(cfg Config) (*Agent, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	var shared string
	var err error
	if cfg.Exec.UIDs, shared, err = cfg.Exec.instanceUIDs(os.Geteuid(), ownUIDMap()); err != nil {
		return nil, err
	}
	h, err := openHome(cfg.DataDir, cfg.Log.Named("journal"))
	if err != nil {
		return nil, err
	}
	a, err := newAgent(cfg, h)
	if err != nil {
		h.close()
		return nil, err
	}
	if shared != "" {
		a.log.Warn(shared)
		a.setProblem("instance_uids", shared)
	}
	return a, nil
}

func newAgent(cfg Config, h *home) (*Agent, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	ports := driver.NewPorts(netip.MustParseAddr(cfg.Node.Address))
	var way nodeDoor = innerDoor{door.NewRelay(door.DefaultLimits(), cfg.Log.Named("door"))}
	if cfg.Runtime == nil {
		way = door.NewClient(h.path("door"), cfg.Exec.binary(), cfg.Version)
		if cfg.Runtime, err = newExecRuntime(cfg, h); err != nil {
			return nil, err
		}
	}
	if cfg.Images == nil && cfg.Containers != nil {
		if cfg.Images, err = cfg.Containers.openContainerd(h.node); err != nil {
			return nil, err
		}
	}
	servers := &answers{Servers: cfg.Servers, follows: h.cluster}
	cfg.Servers = servers
	a := &Agent{
		cfg: cfg, servers: servers, log: cfg.Log, home: h, session: newSession(cfg.Node.Labels),
		problems: map[string]string{}, uses: newGroupUses(),
		identity: Identity{Node: h.node, Name: cfg.Name, BootID: boot, Incarnation: ulid.Make().String()},
	}
	a.forward = newForwarder(h.node, cfg.Node.Address, h.path("services"), way, a.setProblem, cfg.Log.Named("forward"))
	reports := newReporter(h.node, cfg.Servers.Report, cfg.Log.Named("report"))
	reports.stale = a.session.lost
	a.shared = &shared{
		node: a.facts, runtime: cfg.Runtime, records: h.records,
		reports: reports, volumes: newVolumes(h.path("volumes")), uids: newUIDs(cfg.Exec.UIDs, h.path("volumes"), cfg.Log),
		ports: ports, lease: newLease(cfg.Runtime.BootNow), host: hostID(boot),
		services: a.forward.exposed, prepare: a.prepareNode, problem: a.setProblem, log: cfg.Log.Named("instance"),
	}
	if cfg.Images != nil {
		a.shared.images = newNodeImages(cfg.Images, cfg.Containers)
	}
	if a.shared.networks = cfg.Networks; a.shared.networks == nil {
		a.shared.networks = cfg.keepNetworks(h.node, h.path("network"))
	}
	a.puller = newPuller(a.shared.images, reports.setImages, cfg.Log.Named("images"))
	a.shared.peers = newPeers(h.node, h.path("peers"), cfg.Log.Named("peers"))
	a.supervisors = newSupervisors(a.shared)
	a.shared.peers.changed = a.supervisors.peersChanged
	reports.holds = a.supervisors.holds
	a.forward.ports.host, a.forward.ports.tell = cfg.Node.Address, reports.setPorts
	a.forward.ports.reserve(cfg.Node.ownPorts()...)
	owners := copyOwners{users: cfg.Exec.users(), uids: a.shared.uids, mapped: ownUIDMap()}
	a.mover = transfer.New(transfer.Config{
		Volumes: h.path("volumes"), BackupDir: cfg.BackupDir, Peers: cfg.Peers, Hold: a.shared.volumes.hold,
		Release: a.shared.volumes.release,
		Owner:   owners.ofSlot, MayRunAs: owners.account, Report: reports.setTransfer, Log: cfg.Log.Named("transfer"),
	})
	return a, nil
}

func newExecRuntime(cfg Config, h *home) (Runtime, error) {
	parent := cfg.Exec.CgroupParent
	switch parent {
	case "":
		parent = "outspan/" + string(h.node) // unique to this agent, even if two agents of the machine have the same name
	case "none":
		parent = ""
	}
	of := cfg.Exec.users()
	of.Dir, of.CgroupParent, of.Executable = filepath.Join(h.dir, "driver"), parent, cfg.Exec.Binary
	of.VolumePaths, of.Logger = cfg.Exec.VolumePaths, cfg.Log.Named("driver")
	of.Seccomp = image.Seccomp
	if cfg.Containers != nil {
		of.Runtime = cfg.Containers.Runtime
	}
	d, err := driver.New(of)
	if err != nil {
		return nil, err
	}
	return execRuntime{d}, nil
}

// Identity returns this agent's identity, which is known before Run.
func (a *Agent) Identity() Identity { return a.identity }

// UseHeartbeats makes the agent send its heartbeats through h. Call it before Run. Without heartbeats the servers soon
// mark the node offline, and exclusive groups with a lease don't start on it.
func (a *Agent) UseHeartbeats(h Heartbeats) {
	a.beats = h
	tell := h.SetAnswered
	a.servers.note.Store(&tell)
	a.shared.reports.facts.tell = h.SetFacts
}

func (a *Agent) facts() nodeFacts {
	a.session.mu.Lock()
	defer a.session.mu.Unlock()
	return nodeFacts{id: a.home.node, name: a.cfg.Name, address: a.cfg.Node.Address, labels: a.session.labels}
}

// SetLabels replaces the node's labels. If they changed, the agent registers again to report them. Running instances
// keep the label values with which they were started.
func (a *Agent) SetLabels(labels map[string]string) {
	a.session.mu.Lock()
	same := maps.Equal(a.session.labels, labels)
	a.session.labels = maps.Clone(labels)
	a.session.mu.Unlock()
	if !same {
		a.session.renew()
	}
}

// RegisterAgain makes the agent register again, for example because it has another certificate: if the servers refused
// the one before, they have given up the present registration.
func (a *Agent) RegisterAgain() { a.session.renew() }

// flushTimeout is how long the agent may take to send its last reports when it stops.
const flushTimeout = 3 * time.Second

// Run adopts the instances that an earlier agent left, and does the agent's work until ctx ends. After that, with
// ShutdownDrain, it asks the servers to drain the node, and waits at most DrainTimeout until no instance runs. With
// ShutdownKeep all programs continue. Run returns when its goroutines have stopped and the data directory is unlocked.
// Code: state_failed (the state that an earlier agent left can't be read).
func (a *Agent) Run(ctx context.Context) error {
	defer a.home.close()
	a.noteRun()
	defer a.noteEnd()
	if a.cfg.Images != nil {
		defer func() { _ = a.cfg.Images.Close() }() // an error does not matter any more
	}
	defer func() {
		if err := a.cfg.Runtime.Close(); err != nil {
			a.log.Warn("runtime did not close cleanly", "error", err)
		}
	}()
	// There are two contexts, because reports must still be sent after all other work has stopped.
	report, stopReport := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopReport(nil)
	work, stopWork := context.WithCancelCause(report)
	defer stopWork(nil)

	defer func() { _ = a.shared.networks.Close() }() // an error does not matter any more
	a.lookAtNetworks()
	a.session.saw(a.home.records.lastSeen())
	if err := a.supervisors.adopt(work); err != nil {
		stopWork(err)
		a.supervisors.wait()
		return err
	}
	checks := newSelfChecks()
	a.startFull(checks)
	a.lookAtRuntime(work, runtimeFirst)
	var reporting, working sync.WaitGroup
	reporting.Go(func() { a.shared.reports.run(report) })
	reporting.Go(func() { a.keepRegistered(report) })
	a.puller.begin(work)
	working.Go(func() { a.puller.run(work) })
	working.Go(func() { a.shared.lease.run(work) })
	working.Go(func() { a.keepAssigned(work) })
	working.Go(func() { a.keepServing(work) })
	working.Go(func() { a.shared.peers.run(work, a.askPeers) })
	working.Go(func() { a.keepProbing(work) })
	working.Go(func() { a.keepChecked(work, checks) })
	working.Go(func() { a.keepRuntime(work) })
	working.Go(func() { a.keepClean(work) })
	working.Go(func() { a.tendNetworks(work) })
	working.Go(func() { a.keepMeasured(work) })
	working.Go(func() { _ = a.mover.Run(work) }) // Mover.Run always returns nil

	<-ctx.Done()
	cause := context.Cause(ctx)
	a.log.Info("ending", "cause", cause, "on_shutdown", a.cfg.OnShutdown)
	if a.cfg.OnShutdown == ShutdownDrain {
		a.drain(report)
	}
	stopWork(cause)
	working.Wait()
	a.supervisors.wait()
	flush, cancel := context.WithTimeout(report, flushTimeout)
	a.shared.reports.drain(flush)
	cancel()
	stopReport(cause)
	reporting.Wait()
	return nil
}

// keepServing forwards connections to services until ctx ends.
func (a *Agent) keepServing(ctx context.Context) {
	a.forward.run(ctx, func(ctx context.Context, r transport.ServicesRequest) (transport.Services, error) {
		if err := a.awaitRegistered(ctx); err != nil {
			return transport.Services{}, err
		}
		return a.cfg.Servers.Services(ctx, r)
	})
}

func (a *Agent) askPeers(ctx context.Context, r transport.PeersRequest) (transport.Peers, error) {
	if err := a.awaitRegistered(ctx); err != nil {
		return transport.Peers{}, err
	}
	return a.cfg.Servers.Peers(ctx, r)
}

// awaitRegistered returns nil once the node is registered. If ctx ends first, it returns the error of ctx.
func (a *Agent) awaitRegistered(ctx context.Context) error {
	for ctx.Err() == nil {
		now, registered := a.session.current()
		if now != (registration{}) {
			return nil
		}
		sleep(ctx, maxWait, registered)
	}
	return ctx.Err()
}

// drain asks the servers to drain the node, waits until no instance runs, and then closes the exposed ports. If the
// servers refuse, or DrainTimeout passes first, the instances that still run continue, and the ports stay open.
func (a *Agent) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.DrainTimeout)
	defer cancel()
	if err := a.cfg.Drain(ctx); err != nil {
		a.log.Error("the drain was not accepted, everything goes on", "error", err)
		return
	}
	for a.supervisors.running() > 0 {
		if !sleep(ctx, 200*time.Millisecond, nil) {
			a.log.Warn("the drain took too long, what still runs goes on", "instances", a.supervisors.running())
			return
		}
	}
	a.forward.withdraw(ctx)
	a.log.Info("drained")
}

// NotePort records why one of the agent's own ports is not open, and reports that to the servers. A nil problem means
// that the port is open.
func (a *Agent) NotePort(port int, problem *model.PortProblem) {
	a.forward.ports.setOwn(port, problem)
	reason := ""
	if problem != nil {
		reason = problem.Reason
	}
	a.setProblem("port "+strconv.Itoa(port), reason)
}

// setProblem records why a part of the agent doesn't work. An empty problem means that the part works again.
func (a *Agent) setProblem(part, problem string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if problem == "" {
		delete(a.problems, part)
		return
	}
	a.problems[part] = problem
}

// warnings returns the warnings that a registration carries: what this node can't enforce, and which parts of the agent
// don't work now.
func (a *Agent) warnings() []string {
	list := append([]string(nil), a.cfg.Runtime.Capabilities().Notes...)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, part := range sortedKeys(a.problems) {
		// Registrations don't carry problems of ports and services, because reports do, and also report when a problem is
		// over.
		if part != "registration" && part != "assignments" && !strings.HasPrefix(part, "service ") &&
			!strings.HasPrefix(part, "port ") {
			list = append(list, part+": "+a.problems[part])
		}
	}
	return list
}
