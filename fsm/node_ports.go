package fsm

import (
	"cmp"
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

func comparePorts(a, b PortProblem) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Service, b.Service))
}

// keptPorts is what of the report is kept: known codes, each port and service once, in order.
func keptPorts(r *SelfReport) []PortProblem {
	kept := slices.DeleteFunc(slices.Clone(r.Ports), func(p PortProblem) bool {
		return p.Port < 1 || p.Port > 65535 || !p.Code.Valid() || p.Service != "" && !ValidName(string(p.Service))
	})
	slices.SortStableFunc(kept, comparePorts)
	kept = slices.CompactFunc(kept, func(a, b PortProblem) bool { return comparePorts(a, b) == 0 })
	kept = kept[:min(len(kept), MaxPortProblems)]
	for i := range kept {
		kept[i].Reason = clipText(cmp.Or(kept[i].Reason, string(kept[i].Code)), maxAgentText)
	}
	if len(kept) == 0 {
		return nil
	}
	return slices.Clip(kept)
}

// tellPorts says in an event of each port that it can't be opened, or that it is open again or no longer wanted.
func (s *State) tellPorts(n *Node, now []PortProblem) {
	if slices.Equal(n.Self.Ports, now) {
		return
	}
	s.touch("nodes", "services")
	same := func(a PortProblem) func(PortProblem) bool {
		return func(b PortProblem) bool { return comparePorts(a, b) == 0 }
	}
	for _, p := range now {
		if !slices.ContainsFunc(n.Self.Ports, same(p)) {
			s.tellPort(n, p, "", string(p.Code))
		}
	}
	for _, p := range n.Self.Ports {
		if !slices.ContainsFunc(now, same(p)) {
			s.tellPort(n, p, string(p.Code), "ok")
		}
	}
}

func (s *State) tellPort(n *Node, p PortProblem, before, after string) {
	data := map[string]string{"name": n.Name, "port": strconv.Itoa(p.Port)}
	if p.Service != "" {
		data["service"] = string(p.Service)
	}
	if after != "ok" {
		data["reason"] = p.Reason
	}
	s.emit(Event{Type: EventNodePort, Subject: "node/" + string(n.ID), Before: cmp.Or(before, "ok"), After: after, Data: data})
}

func soundPorts(list []PortProblem) bool {
	sorted := slices.IsSortedFunc(list, func(a, b PortProblem) int { return cmp.Or(comparePorts(a, b), -1) })
	return sorted && len(list) <= MaxPortProblems
}
