package model

// ServiceName names a service in the cluster.
type ServiceName string

// Backend is one instance that serves.
type Backend struct {
	Instance InstanceID `json:"instance" cbor:"1,keyasint"`
	Node     NodeID     `json:"node" cbor:"2,keyasint"`
	Address  string     `json:"address" cbor:"3,keyasint"` // ip:port
}
