package cluster

import (
	"context"

	"github.com/outspan/outspan/fsm"
)

// Peer is another server and the host:port of its TLS listener.
type Peer struct {
	ID      fsm.ServerID
	Address string
}

// Peers asks other servers questions outside the log, over mTLS with role server on both sides. A call ends with
// its ctx, which always has a deadline. Whoever serves these calls must have checked that the caller's certificate
// has the role server, and hands them to Server.AnswerTick and Server.AnswerAges.
type Peers interface {
	Tick(ctx context.Context, to Peer, t Tick) (TickReply, error)
	Ages(ctx context.Context, to Peer, q AgeQuery) (AgeReply, error)
}

// Tick is what the leader tells every other server once a second.
type Tick struct {
	Leader fsm.ServerID `json:"leader" cbor:"1,keyasint"`
	Term   uint64       `json:"term" cbor:"2,keyasint"`
	Now    fsm.Time     `json:"now" cbor:"3,keyasint"` // cluster time at the leader
}

// TickReply is how a server is.
type TickReply struct {
	Server    fsm.ServerID `json:"server" cbor:"1,keyasint"`
	Term      uint64       `json:"term" cbor:"2,keyasint"`
	LastIndex uint64       `json:"last_index" cbor:"3,keyasint"` // of its log
	Applied   uint64       `json:"applied" cbor:"4,keyasint"`    // by its state machine
	Installs  uint64       `json:"installs" cbor:"5,keyasint"`   // snapshots installed since it started
	Format    uint16       `json:"format" cbor:"6,keyasint"`     // newest that it can read
	Room      Room         `json:"room" cbor:"7,keyasint"`
}

// AgeQuery asks for how long a server has not heard some nodes.
type AgeQuery struct {
	Leader fsm.ServerID `json:"leader" cbor:"1,keyasint"`
	Term   uint64       `json:"term" cbor:"2,keyasint"`
	Nodes  []AgeOf      `json:"nodes" cbor:"3,keyasint"`
	// GiveUp asks the server to renew no lease of these epochs any more if its own age of the node has reached the
	// threshold.
	GiveUp    bool         `json:"give_up,omitempty" cbor:"4,keyasint,omitempty"`
	Threshold fsm.Duration `json:"threshold" cbor:"5,keyasint"`
}

// AgeOf is a node in an AgeQuery.
type AgeOf struct {
	Node  fsm.NodeID `json:"node" cbor:"1,keyasint"`
	Epoch uint64     `json:"epoch" cbor:"2,keyasint"`
}

// AgeReply is the answer, in the order of the question.
type AgeReply struct {
	Server fsm.ServerID `json:"server" cbor:"1,keyasint"`
	Calm   bool         `json:"calm" cbor:"2,keyasint"`
	Ages   []AgeIs      `json:"ages" cbor:"3,keyasint"`
}

// AgeIs is the age of one node in an AgeReply.
type AgeIs struct {
	Node  fsm.NodeID   `json:"node" cbor:"1,keyasint"`
	Age   fsm.Duration `json:"age" cbor:"2,keyasint"`
	Heard bool         `json:"heard" cbor:"3,keyasint"`
}

// opinion turns an answer into evidence.
func (r AgeReply) opinion() Opinion {
	o := Opinion{Server: r.Server, Calm: r.Calm, Ages: make(map[fsm.NodeID]Age, len(r.Ages))}
	for _, a := range r.Ages {
		o.Ages[a.Node] = Age{Since: durationOf(a.Age), Heard: a.Heard}
	}
	return o
}
