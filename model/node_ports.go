package model

import (
	"fmt"
	"slices"
	"strconv"
)

// The ports on which servers and agents listen by default. No job can have them.
const (
	DefaultPort       = 7640 // the API; on servers raft too
	DefaultGossipPort = 7642
)

func defaultPort(port int) bool { return port == DefaultPort || port == DefaultGossipPort }

// MaxPortProblems bounds how many ports that can't be opened are known of one node.
const MaxPortProblems = 64

// PortCode says, in a closed set, why an agent can't listen on a port.
type PortCode string

// Why a port can't be listened on.
const (
	PortTaken    PortCode = "port_taken"    // another process holds it
	PortReserved PortCode = "port_reserved" // the agent, or a server on its machine, listens there itself
	PortFailed   PortCode = "port_failed"   // the kernel refused for another reason
)

// Valid reports whether c is one of the codes above.
func (c PortCode) Valid() bool {
	return slices.Contains([]PortCode{PortTaken, PortReserved, PortFailed}, c)
}

// PortProblem is a port on which an agent should listen and can't.
type PortProblem struct {
	Port    int         `cbor:"1,keyasint"`
	Service ServiceName `cbor:"2,keyasint,omitempty"` // that exposes it; "": the port is one of the agent's own
	Code    PortCode    `cbor:"3,keyasint"`
	Reason  string      `cbor:"4,keyasint"` // at most 256 bytes
}

// Words says which port it is and why it is not open.
func (p PortProblem) Words() string {
	whose := "port " + strconv.Itoa(p.Port) + " of its agent"
	if p.Service != "" {
		whose = fmt.Sprintf("port %d of service %s", p.Port, p.Service)
	}
	return whose + " is not open: " + p.Reason
}
