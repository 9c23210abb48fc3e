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
	// Current is the state itself, which nobody may change.
	Current() *fsm.State
	// WatchTopic returns a channel that is closed at the next entry that touches the topic; cancel gives it up.
	WatchTopic(fsm.Topic) (woken <-chan struct{}, cancel func())
}

// Consensus is this server's part in the log.
type Consensus interface {
	// Leader returns who leads. self is true only while this server leads with its lease in force and its first
	// barrier done. ok is false while no leader is known.
	Leader() (leader transport.ServerInfo, self, ok bool)
	// Propose commits an entry and returns the outcome of its groups once it is applied here. Errors: no_leader when
	// it can't have been committed, unknown when it may have been, disk_full, busy.
	Propose(context.Context, fsm.Entry) ([]fsm.Result, error)
	// ReadBarrier returns once this leader has applied everything that was committed before the call.
	ReadBarrier(context.Context) error
	// Now is cluster time.
	Now() model.Time
}

// Question is what an explanation is of.
type Question struct {
	State fsm.State
	Live  map[model.NodeID]fsm.Liveness
	Now   model.Time
}

// Explainer says why things are as they are, by the same rules that decide.
type Explainer interface {
	// Why explains an object: "instance/ID", "node/ID", "job/NAME", "group/JOB/GROUP", "drain/ID", "deployment/ID".
	Why(q Question, subject string) (model.WhyResult, error)
	// Waiting lists what can't be placed or stopped now.
	Waiting(Question) Waiting
	// DrainStatus is what is left on each node of a drain.
	DrainStatus(Question, model.DrainID) []model.DrainStatus
}

// Planner says what would happen, by the same rules that decide.
type Planner interface {
	// Forecast is what a drain that stands in the state will do with each instance.
	Forecast(Question, model.DrainID) []model.Forecast
	// Moves is what an order to rebalance would do, and the commands that begin each of those moves that nothing keeps.
	Moves(Question) ([]fsm.Move, [][]fsm.Command)
	// Plan is what submitting a job would do.
	Plan(Question, model.JobSpec) (model.JobPlan, error)
}

// Waiting is why groups lack instances, why instances that should go are still there, and what is left on each node of
// the running drains.
type Waiting struct {
	Groups    map[model.GroupID]model.Blocker
	Instances map[model.InstanceID][]model.Blocker
	Drains    map[model.DrainID][]model.DrainStatus
}

// Freshness says how far this server is behind.
type Freshness interface {
	// CaughtUp is false from the start until what was committed before is applied.
	CaughtUp() bool
	// StaleFor is how long ago this server last knew that it had everything; 0 on the leader.
	StaleFor() time.Duration
	// TakesEntries is false while this server's disk has no room for the log: it learns nothing new then.
	TakesEntries() bool
}

// Liveness is what this server heard of the agents.
type Liveness interface {
	// Voters is the newest committed configuration of the servers that this one knows.
	Voters() (index uint64, voters []model.ServerID)
	// Heard notes a sign of life that came over mTLS.
	Heard(model.NodeID)
	// Live is the evidence about every node, for the leader's decisions and for people.
	Live() map[model.NodeID]fsm.Liveness
	// LiveOf is what Live says of one node; ok is false for one that the state does not have.
	LiveOf(model.NodeID) (live fsm.Liveness, ok bool)
}

// Roster lists the servers.
type Roster interface {
	Members(context.Context) ([]RosterEntry, error)
}

// MemberOps changes who the servers are. All of it blocks until it is done or ctx ends.
type MemberOps interface {
	// Join makes this server look for another one at address (host:port of its gossip).
	Join(ctx context.Context, address string) error
	Promote(ctx context.Context, id model.ServerID) error
	// Remove takes a server out. Without force it is refused where quorum would be lost.
	Remove(ctx context.Context, id model.ServerID, force bool) error
	// TransferLeader hands leadership to a server, or with an empty id to the most current one.
	TransferLeader(ctx context.Context, to model.ServerID) error
}

// Snapshots saves and restores the whole state.
type Snapshots interface {
	Save(context.Context, io.Writer) error
	// Restore replaces the state of the whole cluster. It reads and checks everything before it changes anything.
	Restore(context.Context, io.Reader) error
}

// Peers answers what servers ask each other outside the log.
type Peers interface {
	// AnswerPeer answers one question of a server. The names of questions, and the CBOR of both bodies, are between
	// the servers' own two ends.
	AnswerPeer(ctx context.Context, question string, body []byte) (answer []byte, err error)
}

// Config is what a Server needs. Optional fields say so.
type Config struct {
	// Name of this server, and the version of the program.
	Name, Version string
	// Format is the newest that this program writes; default model.CurrentFormat.
	Format uint16
	Logger hclog.Logger // default: none

	Store     Store
	Consensus Consensus
	Freshness Freshness
	Liveness  Liveness
	Explainer Explainer
	Planner   Planner

	Servers Servers

	// PeerTransport reaches other servers, AgentTransport agents; both with this server's certificate.
	PeerTransport, AgentTransport http.RoundTripper
	// Metrics answers /metrics; default: 404.
	Metrics http.Handler
	// Limits bounds what one caller may ask for.
	Limits Limits
	// Bodies bounds the bytes of request bodies under way; default: transport.NewBodies(0, 0).
	Bodies *transport.Bodies
	// Refused gets the reason why a request was refused unread; it must not block. Default: none.
	Refused func(error)
}

// Servers groups what concerns the servers themselves. Each may be nil: its operations then answer not_supported.
type Servers struct {
	Roster    Roster
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
