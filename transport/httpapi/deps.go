package httpapi

import (
	"context"
	"crypto/x509"
	"io"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/audit"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Store gives access to the published state of this server. fsm.Machine implements it.
type Store interface {
	// Watch returns the state, and a channel that is closed when a newer state is published.
	Watch() (fsm.State, <-chan struct{})
	// Current returns the published state without copying it. Callers must not change the state.
	Current() *fsm.State
	// WatchTopic returns a channel that is closed at the next entry that touches the topic. cancel must be called when the
	// channel is no longer needed.
	WatchTopic(fsm.Topic) (woken <-chan struct{}, cancel func())
	// Changes begins to collect which rows entries touch. The caller must close it.
	Changes() *fsm.Changes
}

// Consensus writes to the replicated log, and reports who leads.
type Consensus interface {
	// Leader returns who leads. self is true only while this server leads and a barrier has confirmed its leadership. ok
	// is false while no leader is known.
	Leader() (leader transport.ServerInfo, self, ok bool)
	// Propose commits an entry and returns the results of its groups once the entry is applied here. Codes: unknown if the
	// entry may have been committed; no_leader, disk_full, busy or timeout if it was not committed.
	Propose(context.Context, fsm.Entry) ([]fsm.Result, error)
	// ReadBarrier returns once this leader has applied everything that was committed before the call. Codes: no_leader,
	// timeout, disk_full.
	ReadBarrier(context.Context) error
	// Now returns the current cluster time.
	Now() model.Time
}

// Question is the input of the methods of Explainer and Planner.
type Question struct {
	State fsm.State
	Live  map[model.NodeID]fsm.Liveness
	Now   model.Time
}

// Explainer explains the state of objects, such as why a group lacks instances. It uses the same code as the leader's
// decisions.
type Explainer interface {
	// Why explains the object that subject names: "instance/ID", "node/ID", "job/NAME", "group/JOB/GROUP", "drain/ID" or
	// "deployment/ID".
	Why(q Question, subject string) (model.WhyResult, error)
	// Waiting returns what can't be placed or stopped now, and what remains to be done in the running drains.
	Waiting(Question) Waiting
	// DrainStatus returns what remains to be done on each node of a drain.
	DrainStatus(Question, model.DrainID) []model.DrainStatus
}

// Planner predicts what would happen. It uses the same code as the leader's decisions.
type Planner interface {
	// Forecast returns what an existing drain will do with each instance.
	Forecast(Question, model.DrainID) []model.Forecast
	// Moves returns the moves that would balance the nodes, and the commands that begin those moves that nothing blocks.
	Moves(Question) ([]fsm.Move, [][]fsm.Command)
	// Plan returns what submitting a job would do.
	Plan(Question, model.JobSpec) (model.JobPlan, error)
}

// Waiting has the reasons why groups lack instances and why instances that should leave have not left, and what remains
// to be done on each node of the running drains.
type Waiting struct {
	Groups    map[model.GroupID]model.Blocker
	Instances map[model.InstanceID][]model.Blocker
	Drains    map[model.DrainID][]model.DrainStatus
}

// Freshness reports how far this server lags.
type Freshness interface {
	// CaughtUp is false after a start until this server has applied everything that the leader had applied when this
	// server first heard from it.
	CaughtUp() bool
	// StaleFor returns how long ago this server last provably had all committed entries. It returns 0 on the leader.
	StaleFor() time.Duration
	// TakesEntries returns false while this server's disk has no room for the log. The state does not change meanwhile.
	TakesEntries() bool
}

// Liveness reports what this server has heard from the agents, and which servers vote.
type Liveness interface {
	// Voters returns the index and the voters of the newest committed configuration that this server knows.
	Voters() (index uint64, voters []model.ServerID)
	// Heard records that the agent of a node made a request over mTLS, which shows that the node is alive.
	Heard(model.NodeID)
	// Live returns the evidence about every node, for the leader's decisions and for people.
	Live() map[model.NodeID]fsm.Liveness
	// LiveOf returns the evidence about one node. ok is false if the state does not contain the node.
	LiveOf(model.NodeID) (live fsm.Liveness, ok bool)
}

// ServerList lists the servers.
type ServerList interface {
	Members(context.Context) ([]ServerEntry, error)
}

// MemberOps changes the set of servers. Its methods block until they are done or ctx ends.
type MemberOps interface {
	// Join makes this server contact the gossip of another server, at address (host:port).
	Join(ctx context.Context, address string) error
	Promote(ctx context.Context, id model.ServerID) error
	// Remove removes a server from the cluster. If force is false, Remove fails if quorum would be lost.
	Remove(ctx context.Context, id model.ServerID, force bool) error
	// TransferLeader hands leadership to a server. If to is empty, TransferLeader chooses the server; see cluster.Server.
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

// Peers answers questions that servers ask each other outside the log.
type Peers interface {
	// AnswerPeer answers a question of another server. httpapi does not interpret the question, its body or the answer.
	AnswerPeer(ctx context.Context, question string, body []byte) (answer []byte, err error)
}

// GossipKeys knows the gossip keys of a cluster that makes them itself. Its methods don't block. Codes: busy if the
// state has no keys yet; not_found if the keyring lacks a key; integrity_check_failed.
type GossipKeys interface {
	// GossipKeys returns the keys of a state, and which members don't use them yet.
	GossipKeys(*fsm.State) (api.GossipKeys, error)
	// RotateGossip returns the commands that begin a rotation, or none while one is in progress.
	RotateGossip(*fsm.State) ([]fsm.Command, error)
	// ForceGossip lets the rotation in progress pass over members that are off.
	ForceGossip(*fsm.State)
}

// Config is what a Server needs. Comments name the defaults and the optional fields.
type Config struct {
	// Name is this server's name, and Version the program's version.
	Name, Version string
	// Format is the newest format that this program writes; default model.CurrentFormat.
	Format uint16
	Logger hclog.Logger // default: nothing is logged

	Store     Store
	Consensus Consensus
	Freshness Freshness
	Liveness  Liveness
	Explainer Explainer
	Planner   Planner

	Servers Servers

	// Wall is the wall clock by which access tokens end, and which answers show; default time.Now. It must not block.
	Wall func() time.Time

	// Managed says that the cluster makes its certificates itself, so that it may revoke them. Then a server without
	// contact to a leader refuses people over TCP.
	Managed bool

	// Tokens says that this server takes access tokens.
	Tokens bool

	// SignIn signs people in. It needs Tokens. It is nil if there is no provider.
	SignIn *SignIn

	// JoinRoot returns the root that join tokens name in a cluster that does not make its certificates itself. If it is
	// nil, machines join such a cluster with certificates that people make.
	JoinRoot func() (*x509.Certificate, error)

	// Renew issues an agent's next certificate. Only the leader calls it, with the subject in the agent's certificate.
	// transport.ShownFrom(ctx) is that certificate, also if another server forwarded the call. If Renew is nil, agents get
	// not_supported.
	Renew func(ctx context.Context, who model.Subject, q transport.RenewRequest) (transport.RenewReply, error)

	// Gossip knows the gossip keys. It is nil if they are files, which the cluster can't change.
	Gossip GossipKeys

	// CA replaces the cluster's CA. It is nil if the cluster makes no certificates.
	CA CARotation
	// Trust answers agents' calls for news. If it is nil, they get not_supported.
	Trust Trust

	// SignPerson signs certificates of people. Only the leader calls it. If it is nil, people get not_supported.
	SignPerson SignPerson

	// HashBody hashes the body of a write with a request id by a key of the cluster; see trust.Engine.HashBody. It is nil
	// if the cluster has no keyring: then, and while the state has no keys, hashes are the first half of the SHA-256.
	HashBody func(state *fsm.State, like string, body []byte) string

	// PeerTransport calls other servers, and AgentTransport calls agents, both with this server's certificate.
	PeerTransport, AgentTransport http.RoundTripper
	// Metrics answers /metrics. If it is nil, the path does not exist.
	Metrics http.Handler
	Limits  Limits
	// Bodies limits the bytes of request bodies that are held in memory; default transport.NewBodies(0, 0).
	Bodies *transport.Bodies
	// Refused gets the errors of requests that are refused because of the caller, the caller's rate, the request's size,
	// or the server's load. It must not block. Optional.
	Refused func(error)
	// Beyond gets the share of each request that is refused because its caller has used up that share. It must not block.
	// Optional.
	Beyond func(Share)
	// Copies notes agents that two machines seem to be. Optional.
	Copies *transport.Copies
	// Audit gets a line for each write, each refusal, and each read that reveals; see verbs.go. Optional.
	Audit *audit.Log
	// Series keeps the figures of the last day. If it is nil, their operation answers not_supported.
	Series Series
}

// Servers has the parts for operations on the servers themselves. If a part is nil, the operations that need it answer
// not_supported.
type Servers struct {
	List      ServerList
	Ops       MemberOps
	Snapshots Snapshots
	Peers     Peers
	Verifier  Verifier
	Keyring   Keyring // nil if the cluster makes no certificates
}

// Limits limits requests and streams. The zero value means the defaults.
type Limits struct {
	// RequestsPerSecond is the limit for one caller, with a burst of twice as many; default 200. The leader also counts
	// the requests that other servers forward.
	RequestsPerSecond int
	// Streams is how many event and log streams may be open; default 512. One caller may have a quarter of them.
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
