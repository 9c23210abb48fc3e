package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/outspan/outspan/internal/canon"
)

// Ports are the ports of an instance, in order of their names. As CBOR and JSON they are a map from name to number. A
// list is an eighth of the memory of a map, and nothing has to sort it before it counts.
type Ports []Port

// Port is one port: its name in the group's spec, and its number on the node.
type Port struct {
	Name   string
	Number int
}

// Sorted puts the ports in order, in place, and returns them.
func (p Ports) Sorted() Ports {
	slices.SortFunc(p, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
	return p
}

// Get returns the number of a port, and whether there is one of that name.
func (p Ports) Get(name string) (number int, ok bool) {
	for i := range p {
		if p[i].Name == name {
			return p[i].Number, true
		}
	}
	return 0, false
}

// Map is the numbers by name; never nil.
func (p Ports) Map() map[string]int {
	numbers := make(map[string]int, len(p))
	for _, port := range p {
		numbers[port.Name] = port.Number
	}
	return numbers
}

// IsZero lets a codec leave out what is empty.
func (p Ports) IsZero() bool { return len(p) == 0 }

// MarshalJSON implements json.Marshaler.
func (p Ports) MarshalJSON() ([]byte, error) { return json.Marshal(p.Map()) }

// MarshalCBOR implements cbor.Marshaler: a map in canonical form.
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

// UnmarshalCBOR implements cbor.Unmarshaler. It takes what MarshalCBOR makes, and nothing else.
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
