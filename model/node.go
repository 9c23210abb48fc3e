package model

import (
	"strings"
)

// AgentInfo is what an agent reported at its last registration.
type AgentInfo struct {
	Epoch       uint64   `cbor:"1,keyasint"` // names the registration; it grows, and none is used again
	BootID      string   `cbor:"2,keyasint"` // of the kernel
	Incarnation string   `cbor:"3,keyasint"` // of the agent process
	Address     string   `cbor:"4,keyasint"` // where the agent's services and API listen: an IP address
	APIAddress  string   `cbor:"5,keyasint,omitempty"`
	Version     string   `cbor:"6,keyasint,omitempty"`
	Key         []byte   `cbor:"7,keyasint" debug:"secret"` // authenticates heartbeats
	Warnings    []string `cbor:"8,keyasint,omitempty"`      // such as "memory caps not enforced: no cgroup access"
	Format      uint16   `cbor:"9,keyasint,omitempty"`      // the newest format that the agent can read; see Reads
	Machine     string   `cbor:"10,keyasint,omitempty"`     // identifies the machine; see sameIDs
	// when its data directory was made, in ns since 1970; a copy is younger. 0: the file system does not record it
	Born int64 `cbor:"11,keyasint,omitempty"`
}

// Reads returns the newest format that an agent can read. An agent that reports none reads format 1.
func (a *AgentInfo) Reads() uint16 { return max(a.Format, 1) }

// NodeShape is what a node offers.
type NodeShape struct {
	Capacity   Resources         `cbor:"1,keyasint"`
	Reserved   Resources         `cbor:"2,keyasint"`
	Labels     map[string]string `cbor:"3,keyasint,omitempty"`
	Attributes map[string]string `cbor:"4,keyasint,omitempty"`
	PortMin    int               `cbor:"5,keyasint"`
	PortMax    int               `cbor:"6,keyasint"`
}

// sameIDs compares the ids of two machines. An id has parts between slashes: the installed system and the firmware. An
// agent leaves out a part that it can't read. decided is false if no part is known for both.
func (a *AgentInfo) sameIDs(b *AgentInfo) (same, decided bool) {
	theirs := strings.Split(b.Machine, "/")
	for i, id := range strings.Split(a.Machine, "/") {
		if i >= len(theirs) || id == "" || theirs[i] == "" {
			continue
		}
		if id != theirs[i] {
			return false, true
		}
		decided = true
	}
	return decided, decided
}

// Elsewhere reports whether two agents of one node may run at the same time, as after a machine was copied with its
// data directory. Their addresses or data directories differ, or they are on different machines.
func (a *AgentInfo) Elsewhere(b *AgentInfo) bool {
	same, decided := a.sameIDs(b)
	return a.Address != b.Address || decided && !same || a.Copied(b)
}

// Copied reports whether the two agents have different data directories, so that one of these is a copy.
func (a *AgentInfo) Copied(b *AgentInfo) bool { return a.Born != 0 && b.Born != 0 && a.Born != b.Born }

// OtherMachine reports whether programs of one agent may still run where the other agent can't see them. That is so if
// the ids of the machines differ, and after the same boot if the data directories differ (a copied container). It is
// also so if both boot id and address differ, unless the firmware's id proves that the machine is the same.
func (a *AgentInfo) OtherMachine(b *AgentInfo) bool {
	same, decided := a.sameIDs(b)
	if decided && !same || a.BootID == b.BootID && a.Copied(b) {
		return true
	}
	return a.BootID != b.BootID && a.Address != b.Address && !(same && a.firmware() != "" && a.firmware() == b.firmware())
}

func (a *AgentInfo) firmware() string {
	_, id, _ := strings.Cut(a.Machine, "/")
	return id
}

// Intent is what the operator wants of a node; Health is what the detector found. Neither overwrites the other, so a
// drain survives an outage of the node.
type Intent string

// The intents.
const (
	IntentActive   Intent = "active"
	IntentCordoned Intent = "cordoned"
	IntentDraining Intent = "draining"
	IntentDisabled Intent = "disabled"
)

// Health is the state of a node as the detector sees it.
type Health string

// The states of health.
const (
	HealthOnline   Health = "online"
	HealthDegraded Health = "degraded"
	HealthOffline  Health = "offline"
	// HealthUnreachable means that the node's heartbeats arrive and its agent gets no answers: what runs there goes on,
	// and new instances are not placed there.
	HealthUnreachable Health = "unreachable"
)

// NodeState is the one state that people see.
type NodeState string

// The shown states: the five of P2, plus cordoned.
const (
	NodeDisabled    NodeState = "disabled"
	NodeOffline     NodeState = "offline"
	NodeDraining    NodeState = "draining"
	NodeCordoned    NodeState = "cordoned"
	NodeDegraded    NodeState = "degraded"
	NodeUnreachable NodeState = "unreachable"
	NodeActive      NodeState = "active"
)
