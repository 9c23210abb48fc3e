package model

import (
	"strings"
)

// AgentInfo describes the last registration of a node's agent.
type AgentInfo struct {
	Epoch       uint64   `cbor:"1,keyasint"` // the number of the registration; grows and is never used again
	BootID      string   `cbor:"2,keyasint"` // the kernel's id of the machine's present boot
	Incarnation string   `cbor:"3,keyasint"` // identifies the agent process
	Address     string   `cbor:"4,keyasint"` // the IP address of the node's instances and exposed services
	APIAddress  string   `cbor:"5,keyasint,omitempty"`
	Version     string   `cbor:"6,keyasint,omitempty"`
	Key         []byte   `cbor:"7,keyasint" debug:"secret"` // authenticates heartbeats
	Warnings    []string `cbor:"8,keyasint,omitempty"`      // such as "memory caps not enforced: no cgroup access"
	Format      uint16   `cbor:"9,keyasint,omitempty"`      // the newest format that the agent can read; see Reads
	Machine     string   `cbor:"10,keyasint,omitempty"`     // identifies the machine; see sameIDs
	// when the agent's data directory was created, in Unix ns; later for a copy of the directory; 0 if the file system
	// does not record the time
	Born int64 `cbor:"11,keyasint,omitempty"`
}

// Reads returns the newest format that the agent can read. An agent that reports no format reads format 1.
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

// sameIDs compares the ids of two machines. An id has two parts, separated by a slash: the id of the installed system
// and the id of the firmware. A part that the agent could not read is empty. If neither part is known for both
// machines, decided is false.
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

// Elsewhere reports whether a and b may describe two agents that run at the same time for one node, for example because
// a machine was copied with its data directory. It returns true if their addresses, their data directories or the ids
// of their machines differ.
func (a *AgentInfo) Elsewhere(b *AgentInfo) bool {
	same, decided := a.sameIDs(b)
	return a.Address != b.Address || decided && !same || a.Copied(b)
}

// Copied reports whether the two agents have different data directories, so that one directory is a copy. It returns
// false if one of the creation times is not known.
func (a *AgentInfo) Copied(b *AgentInfo) bool { return a.Born != 0 && b.Born != 0 && a.Born != b.Born }

// OtherMachine reports whether programs of one agent may still run where the other agent can't see them. It returns
// true if the ids of the machines differ. It also returns true if the data directories differ although the boot id is
// the same, as in a copied container. And it returns true if both boot id and address differ, unless the id of the
// firmware proves that the machine is the same.
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

// Intent is how the operator wants a node to be used, while Health is what the servers observe. Neither overwrites the
// other, so a drain survives an outage of the node.
type Intent string

// The intents.
const (
	IntentActive   Intent = "active"
	IntentCordoned Intent = "cordoned"
	IntentDraining Intent = "draining"
	IntentDisabled Intent = "disabled"
)

// Health is the state of a node as the servers observe it.
type Health string

// The states of health.
const (
	HealthOnline   Health = "online"
	HealthDegraded Health = "degraded"
	HealthOffline  Health = "offline"
	// HealthUnreachable means that the node's heartbeats arrive, but its agent gets no answers from the servers. The
	// node's instances continue to run, and no new instances are placed on it.
	HealthUnreachable Health = "unreachable"
)

// NodeState is the single state of a node that people see. It follows from Intent, Health and the agent's troubles.
type NodeState string

// The states that people see: the five of P2, plus cordoned and unreachable.
const (
	NodeDisabled    NodeState = "disabled"
	NodeOffline     NodeState = "offline"
	NodeDraining    NodeState = "draining"
	NodeCordoned    NodeState = "cordoned"
	NodeDegraded    NodeState = "degraded"
	NodeUnreachable NodeState = "unreachable"
	NodeActive      NodeState = "active"
)
