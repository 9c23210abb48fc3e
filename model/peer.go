package model

// PeerState is what the other instances of a group are told about one of it.
type PeerState string

// The states of a peer.
const (
	PeerStarting PeerState = "starting" // it was not ready yet
	PeerReady    PeerState = "ready"
	PeerUnready  PeerState = "unready"  // it was ready, and is not now
	PeerStopping PeerState = "stopping" // it is to stop
	PeerLost     PeerState = "lost"     // its node is offline
)
