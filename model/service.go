package model

// ServiceName names a service in the cluster.
type ServiceName string

// Backend is one instance that serves.
type Backend struct {
	Instance InstanceID `json:"instance" cbor:"1,keyasint"`
	Node     NodeID     `json:"node" cbor:"2,keyasint"`
	Address  string     `json:"address" cbor:"3,keyasint"` // ip:port
}

// PeerState is the state of an instance as the other instances of its group see it.
type PeerState string

// The states of a peer.
const (
	PeerStarting PeerState = "starting" // it was not ready yet
	PeerReady    PeerState = "ready"
	PeerUnready  PeerState = "unready"  // it was ready, and is not now
	PeerStopping PeerState = "stopping" // it is to stop
	PeerLost     PeerState = "lost"     // its node is offline
)
