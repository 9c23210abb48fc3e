package fsm

import "github.com/outspan/outspan/model"

// Service is a name under which a group publishes a port. Its backends are derived: the group's instances that are
// ready and not draining.
type Service struct {
	Name       model.ServiceName `cbor:"1,keyasint"`
	Group      model.GroupID     `cbor:"2,keyasint"`
	Port       string            `cbor:"3,keyasint"`
	Expose     int               `cbor:"4,keyasint,omitempty"`
	Generation uint64            `cbor:"5,keyasint"` // index of the last change of the backends
}
