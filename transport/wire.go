package transport

import (
	"strconv"

	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/model"
)

// The agents' protocol consists of calls over one TLS connection, in frames. Each call has a question and an answer in
// CBOR. The name in the agent's certificate authorises the call: it must be the node's name. All calls are idempotent.

// AgentCall identifies a call of the agents' protocol.
type AgentCall uint8

// The calls, each with its question, its answer and the server that answers.
const (
	CallRegister    AgentCall = 1 // RegisterRequest    -> RegisterReply  (by the leader, committed)
	CallReport      AgentCall = 2 // ReportRequest      -> ReportReply    (by the leader, committed)
	CallAssignments AgentCall = 3 // AssignmentsRequest -> Assignments    (long poll on any caught-up server)
	CallServices    AgentCall = 4 // ServicesRequest    -> Services       (long poll on any caught-up server)
	CallPeers       AgentCall = 5 // PeersRequest       -> Peers          (long poll on any caught-up server)
	CallRenew       AgentCall = 6 // RenewRequest       -> RenewReply     (by the leader, committed)
	CallTrust       AgentCall = 7 // TrustRequest       -> TrustNews      (long poll on any caught-up server)
)

func (c AgentCall) String() string {
	switch c {
	case CallRegister:
		return "register"
	case CallReport:
		return "report"
	case CallAssignments:
		return "assignments"
	case CallServices:
		return "services"
	case CallPeers:
		return "peers"
	case CallRenew:
		return "renew"
	case CallTrust:
		return "trust"
	}
	return "call " + strconv.Itoa(int(c))
}

// ContentTypeCBOR is the media type of messages between servers over HTTP.
const ContentTypeCBOR = "application/cbor"

// RegisterRequest registers a node, as fsm.NodeRegister does. Agent.Key is ignored, because the server issues the key.
type RegisterRequest struct {
	Node  model.NodeID    `cbor:"1,keyasint"`
	Name  string          `cbor:"2,keyasint"`
	Agent model.AgentInfo `cbor:"3,keyasint"`
	Shape model.NodeShape `cbor:"4,keyasint"`
	// Cluster is the text form of the model.History that the node follows, or "" for a new node. A server of another
	// cluster refuses the request, so an agent with the wrong data directory or server address changes nothing in that
	// cluster. A server whose lineage a recovery has replaced refuses it too.
	Cluster string `cbor:"5,keyasint,omitempty"`
	// Seen is the newest state whose assignments the agent acted on.
	Seen model.Seen `cbor:"6,keyasint,omitempty"`
	// Refused says that the agent was refused because another agent had its node, and that no server has accepted the
	// agent since.
	Refused bool `cbor:"7,keyasint,omitempty"`
}

// RegisterReply has what the agent needs to begin.
type RegisterReply struct {
	Epoch     uint64         `cbor:"1,keyasint"`
	Key       []byte         `cbor:"2,keyasint"` // authenticates heartbeats
	Heartbeat model.Duration `cbor:"3,keyasint"` // interval of heartbeats: offline_after/6, from 300 ms to 10 s
	Servers   []ServerInfo   `cbor:"4,keyasint"`
	// Cluster is the text form of the servers' model.History. The agent refuses a History that neither equals nor replaces
	// its own.
	Cluster string `cbor:"5,keyasint"`

	// Voters are the voters in the servers' configuration, and Config is the index of that configuration. Answers to
	// heartbeats that are based on an older configuration renew no lease.
	Config uint64           `cbor:"6,keyasint,omitempty"`
	Voters []model.ServerID `cbor:"7,keyasint,omitempty"`

	// Listens are the addresses (host:port) of the servers' listeners. They come from the configuration, or over TLS from
	// the servers themselves. The addresses in Servers can't be trusted as much: whoever has the gossip key can claim
	// them.
	Listens []string `cbor:"8,keyasint,omitempty"`
}

// ServerInfo has the addresses of a server.
type ServerInfo struct {
	ID         model.ServerID `cbor:"1,keyasint"`
	Name       string         `cbor:"2,keyasint"`
	APIAddress string         `cbor:"3,keyasint"`           // host:port
	Gossip     string         `cbor:"4,keyasint,omitempty"` // host:port, where an agent joins gossip
}

// ReportRequest is a batch of what an agent observed. Its fields, except Cluster, are those of fsm.NodeReport.
type ReportRequest struct {
	Node      model.NodeID           `cbor:"1,keyasint"`
	Epoch     uint64                 `cbor:"2,keyasint"`
	Full      bool                   `cbor:"3,keyasint,omitempty"`
	Instances []model.InstanceStatus `cbor:"4,keyasint,omitempty"`
	FactsGen  uint64                 `cbor:"5,keyasint,omitempty"` // facts generation of the node
	Transfers []model.TransferReport `cbor:"6,keyasint,omitempty"`

	Cluster string `cbor:"7,keyasint,omitempty"` // the model.History that the agent follows, as text

	Holds       []model.Holding   `cbor:"8,keyasint,omitempty"`
	Incarnation uint64            `cbor:"9,keyasint,omitempty"`
	Self        *model.SelfReport `cbor:"10,keyasint,omitempty"`
}

// ReportReply has the index of a state that contains the report.
type ReportReply struct {
	Index uint64 `cbor:"1,keyasint"`
}

// AssignmentsRequest waits at most Wait for assignments newer than Index.
type AssignmentsRequest struct {
	Node  model.NodeID `cbor:"1,keyasint"`
	Epoch uint64       `cbor:"2,keyasint"`
	// Index is the index of the last answer. It is 0 in the first request of an epoch, and in a request to get every spec
	// again.
	Index uint64         `cbor:"3,keyasint"`
	Wait  model.Duration `cbor:"4,keyasint"` // at most 60 s

	Incarnation uint64 `cbor:"5,keyasint,omitempty"` // of the last answer; Index is an index of this incarnation

	// Seen is the newest state whose assignments the agent acted on. The agent ignores the assignments of older states.
	Seen model.Seen `cbor:"6,keyasint,omitempty"`

	Cluster string `cbor:"7,keyasint,omitempty"` // as in ReportRequest
}

// Assignments has every instance that an agent must run or stop now. It replaces all earlier Assignments. The agent
// also stops an instance that is absent, unless Unconfirmed is true. The agent ignores an answer whose (Incarnation,
// Index) is lower than one that it has seen.
type Assignments struct {
	Incarnation uint64 `cbor:"1,keyasint"`
	Index       uint64 `cbor:"2,keyasint"`
	Unconfirmed bool   `cbor:"3,keyasint,omitempty"` // true after a restore: the agent must stop no absent instance
	// Register says that the agent must register again, because the state has another epoch for the node or has no such
	// node, the node is offline, or the agent has seen a newer state.
	Register  bool            `cbor:"4,keyasint,omitempty"`
	Instances []Assignment    `cbor:"5,keyasint,omitempty"`
	Heartbeat model.Duration  `cbor:"6,keyasint,omitempty"` // the interval from now on; 0 means unchanged
	Transfers []TransferOrder `cbor:"7,keyasint,omitempty"`
	// Confirmed is how long ago, at least, the last restore was confirmed; 0 means that no restore was confirmed.
	Confirmed model.Duration `cbor:"8,keyasint,omitempty"`
	// Keep lists instances that the state does not have and that keep running until a person decides.
	Keep []model.InstanceID `cbor:"9,keyasint,omitempty"`
	// WithGrace lists instances that the state does not have and that must stop. No other instance fills their slots, so
	// the agent lets them use their grace.
	WithGrace []model.InstanceID `cbor:"10,keyasint,omitempty"`
	// Images lists the images that the node needs soon, each as NAME@DIGEST, each digest once. The agent pulls them, and
	// gives up pulls of images that are not listed.
	Images []string `cbor:"11,keyasint,omitempty"`
}

// Assignment is one instance to run or to stop.
type Assignment struct {
	ID         model.InstanceID `cbor:"1,keyasint"`
	Group      model.GroupID    `cbor:"2,keyasint"`
	Slot       int              `cbor:"3,keyasint"`
	Desired    model.Desired    `cbor:"4,keyasint"`
	Spec       *model.GroupSpec `cbor:"5,keyasint,omitempty"` // nil means the spec of an earlier answer in this epoch
	Ports      map[string]int   `cbor:"6,keyasint,omitempty"`
	RestartSeq uint64           `cbor:"7,keyasint,omitempty"`
	Grace      *model.Duration  `cbor:"8,keyasint,omitempty"` // overrides the spec's grace for this stop
	Memory     int64            `cbor:"9,keyasint"`           // the hard cap in bytes, without overhead
	Job        model.JobName    `cbor:"10,keyasint"`
	Prepare    uint64           `cbor:"11,keyasint,omitempty"` // the preparation to run (fsm.Eviction.Seq); 0 means none
	// Gates are the gates on the instance's own facts, which the agent checks once more before the stop signal.
	Gates   []string    `cbor:"12,keyasint,omitempty"`
	Attempt uint64      `cbor:"15,keyasint,omitempty"` // number of instances of the group that were placed before this one
	Fencing uint64      `cbor:"14,keyasint,omitempty"` // the fencing epoch of the instance's volumes
	Cause   model.Cause `cbor:"16,keyasint,omitempty"` // why the instance is stopped, or its stop is prepared
	// Copies has the epoch of the data that each volume must have. A directory with other data is not for this instance.
	Copies map[string]uint64 `cbor:"17,keyasint,omitempty"`
	// Held lists local volumes that a program has used. The agent must not start the instance if their data is missing.
	Held []string `cbor:"18,keyasint,omitempty"`
	// Unsettled says that the slot may have another instance, which a restored state does not know. The agent must not
	// start this instance while Unsettled is true.
	Unsettled bool `cbor:"19,keyasint,omitempty"`
}

// ServicesRequest waits at most Wait for services newer than Index. A server whose state has not reached Index, for
// example after a restore, answers at once.
type ServicesRequest struct {
	Node  model.NodeID   `cbor:"1,keyasint"`
	Index uint64         `cbor:"2,keyasint"`
	Wait  model.Duration `cbor:"3,keyasint"`

	Cluster string `cbor:"4,keyasint,omitempty"` // as in ReportRequest
}

// Services has every service with its backends.
type Services struct {
	Index    uint64            `cbor:"1,keyasint"`
	Services []ServiceBackends `cbor:"2,keyasint,omitempty"`

	Incarnation uint64 `cbor:"3,keyasint,omitempty"` // indexes of different incarnations can't be compared
	Unconfirmed bool   `cbor:"4,keyasint,omitempty"` // after a restore: an instance without a backend may still run
}

// ServiceBackends is one service with its current backends.
type ServiceBackends struct {
	Name       model.ServiceName `cbor:"1,keyasint" json:"name"`
	Expose     int               `cbor:"2,keyasint,omitempty" json:"expose,omitempty"`
	Generation uint64            `cbor:"3,keyasint" json:"generation"`
	Backends   []model.Backend   `cbor:"4,keyasint" json:"backends"`
}

// PeersRequest waits at most Wait for lists of peers that the agent does not have yet. The answer has only lists of
// groups with an instance on the node.
type PeersRequest struct {
	Node        model.NodeID   `cbor:"1,keyasint"`
	Groups      []PeersKnown   `cbor:"2,keyasint"`
	Incarnation uint64         `cbor:"3,keyasint,omitempty"` // of the lists that the agent has
	Wait        model.Duration `cbor:"4,keyasint"`

	Cluster string `cbor:"5,keyasint,omitempty"` // as in ReportRequest
}

// PeersKnown names the newest list of a group that the agent has, by its GroupPeers.At. If At is 0, the agent has no
// list.
type PeersKnown struct {
	Group model.GroupID `cbor:"1,keyasint"`
	At    uint64        `cbor:"2,keyasint,omitempty"`
}

// Peers has the lists that the agent does not have yet. Each list is an encoded GroupPeers. All agents of a group get
// the same bytes, so the server encodes a list once.
type Peers struct {
	Incarnation uint64            `cbor:"1,keyasint"`
	Lists       []cbor.RawMessage `cbor:"2,keyasint,omitempty"`
}

// GroupPeers lists the instances of a group by slot. It has at most MaxPeers instances, or MaxPeersAsked if the group's
// spec has a peers block.
type GroupPeers struct {
	Group   model.GroupID `cbor:"1,keyasint" json:"group"`
	Members []Peer        `cbor:"2,keyasint" json:"members"`
	At      uint64        `cbor:"3,keyasint" json:"-"` // log index of the last change of the list
}

// How many instances a list of peers may have. The limit is needed because each change of a group's list is sent to
// every agent that runs the group. A larger group needs a service instead of a list.
const (
	MaxPeers      = 100
	MaxPeersAsked = 1000 // for a group whose spec has a peers block
)

// Peer is one instance of a group, as shown to the group's other instances.
type Peer struct {
	Slot     int              `cbor:"1,keyasint" json:"slot"`
	Instance model.InstanceID `cbor:"2,keyasint" json:"instance"`
	Node     string           `cbor:"3,keyasint" json:"node"` // name of the node
	Address  string           `cbor:"4,keyasint" json:"address"`
	Ports    map[string]int   `cbor:"5,keyasint,omitempty" json:"ports,omitempty"`
	State    model.PeerState  `cbor:"6,keyasint" json:"state"`
}

// RenewRequest asks for the agent's next certificate. If an answer was lost, the agent repeats the same request, so
// that the cluster knows one new key and not two.
//
// If Request is empty, the agent confirms that its files have the certificate of this connection. From then on the key
// before it no longer counts. The reply has no Chain.
type RenewRequest struct {
	// Request is a request for a certificate as pki.NewRequest makes it, for a new key and the agent's own name.
	Request []byte `cbor:"1,keyasint,omitempty"`
}

// RenewReply has the agent's next certificate, and what the agent needs to reach the cluster with it.
type RenewReply struct {
	Chain      [][]byte `cbor:"1,keyasint"` // as DER: the certificate, then CAs between it and the root
	Roots      [][]byte `cbor:"2,keyasint"` // all CAs that count, as DER
	GossipKeys [][]byte `cbor:"3,keyasint"` // the first one encrypts, all decrypt
	Servers    []string `cbor:"4,keyasint"` // host:port of the servers' API
}

// TrustRequest says which keys the agent uses, and waits at most Wait for news that differ from those that it knows.
type TrustRequest struct {
	Name string `cbor:"1,keyasint"` // of the agent, as in its certificate
	// Roots and Gossip are the pki.RootsDigest and the pki.GossipDigest of the keys that the agent uses and has in its
	// files. Empty Roots mean that a change is not in its files yet, so the servers keep what it said before. An empty
	// Gossip means that the agent does not gossip.
	Roots  []byte `cbor:"2,keyasint,omitempty"`
	Gossip []byte `cbor:"3,keyasint,omitempty"`
	Known  []byte `cbor:"4,keyasint,omitempty"` // the TrustNews.Digest of the news that the agent knows
	// At is the TrustNews.At of the newest news that the agent knows. A server with an older state refuses the request,
	// unless it leads.
	At   uint64         `cbor:"5,keyasint,omitempty"`
	Wait model.Duration `cbor:"6,keyasint"` // at most 60 s

	Cluster string `cbor:"7,keyasint,omitempty"` // as in ReportRequest
}

// TrustNews is what the cluster trusts now. It replaces all earlier news. If Digest is that of the request, the lists
// are empty, because the agent has them.
type TrustNews struct {
	Digest     []byte    `cbor:"1,keyasint"` // of the other fields, except At
	At         uint64    `cbor:"2,keyasint"` // the fsm.State.MomentNumber of the server's state
	Roots      [][]byte  `cbor:"3,keyasint"` // all CAs that count, as DER
	GossipKeys [][]byte  `cbor:"4,keyasint"` // the first one encrypts, all decrypt
	Servers    []string  `cbor:"5,keyasint"` // host:port of the servers' API, at most 32
	Revoked    []Revoked `cbor:"6,keyasint,omitempty"`
}

// MaxRevoked is how many revoked members TrustNews has at most. They are the newest.
const MaxRevoked = 1000

// Revoked says that certificates of a server or agent are void: those whose pki.AdmittedAt is below VoidBefore.
type Revoked struct {
	Kind       model.SubjectKind `cbor:"1,keyasint" json:"kind"`
	Name       string            `cbor:"2,keyasint" json:"name"`
	VoidBefore uint64            `cbor:"3,keyasint" json:"void_before"`
}
