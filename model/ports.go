package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/outspan/outspan/internal/canon"
)

// Ports are the ports of an instance, in order of their names. CBOR and JSON have a map from name to number. Go has a
// slice, which takes an eighth of the memory of a map.
type Ports []Port

// Port is one port: its name in the group's spec, and its number on the node.
type Port struct {
	Name   string
	Number int
}

// Sorted sorts the ports in place and returns them.
func (p Ports) Sorted() Ports {
	slices.SortFunc(p, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
	return p
}

// Get returns the number of the port with the given name. If there is no such port, ok is false.
func (p Ports) Get(name string) (number int, ok bool) {
	for i := range p {
		if p[i].Name == name {
			return p[i].Number, true
		}
	}
	return 0, false
}

// Map returns the ports as a map from name to number. The map is never nil.
func (p Ports) Map() map[string]int {
	numbers := make(map[string]int, len(p))
	for _, port := range p {
		numbers[port.Name] = port.Number
	}
	return numbers
}

// IsZero reports whether there are no ports. Encoders omit a field that has omitzero if IsZero returns true.
func (p Ports) IsZero() bool { return len(p) == 0 }

// MarshalJSON implements json.Marshaler.
func (p Ports) MarshalJSON() ([]byte, error) { return json.Marshal(p.Map()) }

// MarshalCBOR implements cbor.Marshaler. It writes a map in canonical form.
func (p Ports) MarshalCBOR() ([]byte, error) {
	byKey := p
	if !slices.IsSortedFunc(p, func(a, b Port) int { return canon.Compare(a.Name, b.Name) }) {
		byKey = slices.Clone(p)
		slices.SortFunc(byKey, func(a, b Port) int { return canon.Compare(a.Name, b.Name) })
	}
	b := canon.AppendHead(make([]byte, 0, 32), canon.Map, uint64(len(p)))
	for _, port := range byKey {
		b = canon.AppendText(b, port.Name)
		b = canon.AppendInt(b, int64(port.Number))
	}
	return b, nil
}

// UnmarshalCBOR implements cbor.Unmarshaler. It accepts only the form that MarshalCBOR writes.
func (p *Ports) UnmarshalCBOR(data []byte) error {
	in := canon.NewReader(string(data))
	major, n := in.Head()
	in.Want(major == canon.Map && n <= uint64(in.Left()))
	ports := make(Ports, 0, min(n, 16))
	for i := uint64(0); i < n && !in.Failed(); i++ {
		name, number := in.Text(), in.Int()
		in.Want(utf8.ValidString(name) && (i == 0 || canon.Compare(ports[i-1].Name, name) < 0))
		ports = append(ports, Port{name, int(number)})
	}
	if !in.Done() {
		return fmt.Errorf("ports are no map from names to numbers in canonical form")
	}
	*p = ports.Sorted()
	return nil
}

// The default ports of servers and agents. Job files may not ask for them.
const (
	DefaultPort       = 7640 // the API; on servers also raft and the agents' protocol
	DefaultGossipPort = 7642
)

func defaultPort(port int) bool { return port == DefaultPort || port == DefaultGossipPort }

// MaxPortProblems is the largest number of port problems recorded for one node.
const MaxPortProblems = 64

// PortCode is the reason why an agent can't listen on a port. The set is closed.
type PortCode string

// The port codes.
const (
	PortTaken    PortCode = "port_taken"    // an unrelated process listens on the port
	PortReserved PortCode = "port_reserved" // the agent itself, or a server on its machine, listens on the port
	PortFailed   PortCode = "port_failed"   // any other error
)

// Valid reports whether c is one of these codes.
func (c PortCode) Valid() bool {
	return slices.Contains([]PortCode{PortTaken, PortReserved, PortFailed}, c)
}

// PortProblem is a port on which an agent should listen but can't.
type PortProblem struct {
	Port    int         `cbor:"1,keyasint"`
	Service ServiceName `cbor:"2,keyasint,omitempty"` // the service that exposes the port; empty for the agent's own ports
	Code    PortCode    `cbor:"3,keyasint"`
	Reason  string      `cbor:"4,keyasint"` // at most 256 bytes
}

// Words returns a sentence that names the port and says why it is not open.
func (p PortProblem) Words() string {
	whose := "port " + strconv.Itoa(p.Port) + " of its agent"
	if p.Service != "" {
		whose = fmt.Sprintf("port %d of service %s", p.Port, p.Service)
	}
	return whose + " is not open: " + p.Reason
}
