package model

// ServiceName is the name of a service.
type ServiceName string

// Backend is an instance to which connections of a service are forwarded.
type Backend struct {
	Instance InstanceID `json:"instance" cbor:"1,keyasint"`
	Node     NodeID     `json:"node" cbor:"2,keyasint"`
	Address  string     `json:"address" cbor:"3,keyasint"` // ip:port
}

// PeerState is the state of an instance as the other instances of its group see it.
type PeerState string

// The states of a peer.
const (
	PeerStarting PeerState = "starting" // has not been ready since its last start
	PeerReady    PeerState = "ready"
	PeerUnready  PeerState = "unready"  // was ready, and is not now
	PeerStopping PeerState = "stopping" // is stopping, or should stop
	PeerLost     PeerState = "lost"     // the instance's node is offline
)
