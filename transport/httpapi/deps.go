package httpapi

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Store is the published state of this server (fsm.Machine).
type Store interface {
	// Watch returns the state, and a channel that is closed when a newer one is published.
	Watch() (fsm.State, <-chan struct{})
	// Current returns the state itself, which nobody may change.
	Current() *fsm.State
	// WatchTopic returns a channel that is closed at the next entry that touches the topic. Call cancel when it is no
	// longer needed.
	WatchTopic(fsm.Topic) (woken <-chan struct{}, cancel func())
}

// Consensus is this server's part in the log.
type Consensus interface {
	// Leader returns who leads. self is true only while this server leads, its lease is in force and its first barrier is
	// done. ok is false while no leader is known.
	Leader() (leader transport.ServerInfo, self, ok bool)
	// Propose commits an entry and returns the outcome of its groups once it is applied here. Errors: no_leader if it
	// can't have been committed, unknown if it may have been, disk_full, busy.
	Propose(context.Context, fsm.Entry) ([]fsm.Result, error)
	// ReadBarrier returns once this leader has applied everything that was committed before the call.
	ReadBarrier(context.Context) error
	// Now returns cluster time.
	Now() model.Time
}

// Question is the input of an explanation.
type Question struct {
	State fsm.State
	Live  map[model.NodeID]fsm.Liveness
	Now   model.Time
}

// Explainer explains why things are as they are. It uses the same code as the leader's decisions.
type Explainer interface {
	// Why explains an object: "instance/ID", "node/ID", "job/NAME", "group/JOB/GROUP", "drain/ID", "deployment/ID".
	Why(q Question, subject string) (model.WhyResult, error)
	// Waiting lists what can't be placed or stopped now.
	Waiting(Question) Waiting
	// DrainStatus returns what is left on each node of a drain.
	DrainStatus(Question, model.DrainID) []model.DrainStatus
}

// Planner predicts what would happen. It uses the same code as the leader's decisions.
type Planner interface {
	// Forecast returns what an existing drain will do with each instance.
	Forecast(Question, model.DrainID) []model.Forecast
	// Moves returns the moves of an order to rebalance, and the commands that begin those that nothing blocks.
	Moves(Question) ([]fsm.Move, [][]fsm.Command)
	// Plan returns what submitting a job would do.
	Plan(Question, model.JobSpec) (model.JobPlan, error)
}

// Waiting holds why groups lack instances, why instances that should leave are still there, and what is left on each
// node of the running drains.
type Waiting struct {
	Groups    map[model.GroupID]model.Blocker
	Instances map[model.InstanceID][]model.Blocker
	Drains    map[model.DrainID][]model.DrainStatus
}

// Freshness reports how far this server lags.
type Freshness interface {
	// CaughtUp is false from the start until what was committed before is applied.
	CaughtUp() bool
	// StaleFor is how long ago this server last provably had everything; 0 on the leader.
	StaleFor() time.Duration
	// TakesEntries is false while this server's disk has no room for the log: then its state stays as it is.
	TakesEntries() bool
}

// Liveness is what this server has heard from the agents.
type Liveness interface {
	// Voters returns the newest committed configuration of the servers that this one knows.
	Voters() (index uint64, voters []model.ServerID)
	// Heard notes a sign of life over mTLS.
	Heard(model.NodeID)
	// Live returns the evidence about every node, for the leader's decisions and for people.
	Live() map[model.NodeID]fsm.Liveness
	// LiveOf returns what Live says of one node; ok is false for a node that the state does not have.
	LiveOf(model.NodeID) (live fsm.Liveness, ok bool)
}

// ServerList lists the servers.
type ServerList interface {
	Members(context.Context) ([]ServerEntry, error)
}

// MemberOps changes the set of servers. Its methods block until they are done or ctx ends.
type MemberOps interface {
	// Join makes this server look for another one at address (host:port of its gossip).
	Join(ctx context.Context, address string) error
	Promote(ctx context.Context, id model.ServerID) error
	// Remove removes a server. Without force it fails if quorum would be lost.
	Remove(ctx context.Context, id model.ServerID, force bool) error
	// TransferLeader hands leadership to a server, or with an empty id to the best one; see cluster.Server.
	TransferLeader(ctx context.Context, to model.ServerID) error
}

// Snapshots saves and restores the whole state.
type Snapshots interface {
	// Save writes the state with everything that was acknowledged before the call. It needs a leader.
	Save(context.Context, io.Writer) error
	// SaveStale writes the state of this server, which may lack the newest entries. It needs no leader.
	SaveStale(io.Writer) error
	// Restore replaces the state of the whole cluster. It reads and checks everything before it changes anything.
	Restore(context.Context, io.Reader) error
}

// Peers answers the questions of servers to each other outside the log.
type Peers interface {
	// AnswerPeer answers one question of a server. Only the two servers interpret the question's name and the CBOR of both
	// bodies.
	AnswerPeer(ctx context.Context, question string, body []byte) (answer []byte, err error)
}

// Config is what a Server needs. Optional fields say so.
type Config struct {
	// Name of this server, and the version of the program.
	Name, Version string
	// Format is the newest format that this program writes; default model.CurrentFormat.
	Format uint16
	Logger hclog.Logger // default: none

	Store     Store
	Consensus Consensus
	Freshness Freshness
	Liveness  Liveness
	Explainer Explainer
	Planner   Planner

	Servers Servers

	// PeerTransport calls other servers, and AgentTransport calls agents, both with this server's certificate.
	PeerTransport, AgentTransport http.RoundTripper
	// Metrics answers /metrics; default: 404.
	Metrics http.Handler
	// Limits bounds what one caller may ask for.
	Limits Limits
	// Bodies bounds the bytes of request bodies under way; default: transport.NewBodies(0, 0).
	Bodies *transport.Bodies
	// Refused gets the error of each request that was refused unread. It must not block. Optional.
	Refused func(error)
}

// Servers groups the parts for the servers themselves. Each may be nil: its operations then answer not_supported.
type Servers struct {
	List      ServerList
	Ops       MemberOps
	Snapshots Snapshots
	Peers     Peers
	Verifier  Verifier
}

// Limits bounds requests. The zero value means the defaults.
type Limits struct {
	// RequestsPerSecond of one caller, with a burst of twice as many; default 200.
	RequestsPerSecond int
	// Streams is how many event and log streams may be open, a quarter of them by one caller; default 512.
	Streams int
}

func (l Limits) withDefaults() Limits {
	if l.RequestsPerSecond <= 0 {
		l.RequestsPerSecond = 200
	}
	if l.Streams <= 0 {
		l.Streams = 512
	}
	return l
}
