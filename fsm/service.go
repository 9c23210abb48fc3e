package fsm

// ServiceName names a service in the cluster.
type ServiceName string

// Service is a name that a group publishes. Its backends are derived: the group's instances that are ready and not draining.
type Service struct {
	Name       ServiceName `cbor:"1,keyasint"`
	Group      GroupID     `cbor:"2,keyasint"`
	Port       string      `cbor:"3,keyasint"`
	Expose     int         `cbor:"4,keyasint,omitempty"`
	Generation uint64      `cbor:"5,keyasint"` // the index of the last change to the set of backends
}

// Backend is one instance that serves.
type Backend struct {
	Instance InstanceID `json:"instance" cbor:"1,keyasint"`
	Node     NodeID     `json:"node" cbor:"2,keyasint"`
	Address  string     `json:"address" cbor:"3,keyasint"` // ip:port
}
