package model

import (
	"fmt"
	"strings"
)

// Ids are distinct types, so that a NodeID does not compile as an InstanceID.
type (
	// NodeID names a worker machine for ever. It is minted by the agent at its first start (a ULID).
	NodeID string
	// JobName names a job; it is what the user wrote.
	JobName string
	// GroupID is "job/group".
	GroupID string
	// InstanceID names one run of a group's program; it is never used again (P27).
	InstanceID string
	// DrainID names a drain (a ULID minted by the proposer, or chosen by the caller).
	DrainID string
	// DeploymentID is "job-version".
	DeploymentID string
	// ServerID names a control-plane process; it lives in the server's data directory.
	ServerID string
	// RequestID is the caller's name for one write: the same id with the same body is answered once.
	RequestID string
	// Actor is who asked: "cli:alice", "agent:n1", "server:s2", "uid:0(root)" or "leader".
	Actor string
)

// ActorLeader is the actor of what the reconciling leader decides by itself.
const ActorLeader Actor = "leader"

// ActorAgents is the actor of an entry with the reports of several agents. What each of them causes has the agent of
// its node as its actor.
const ActorAgents Actor = "agents"

// ActorAgent is the agent of a node.
func ActorAgent(node string) Actor { return Actor("agent:" + node) }

// NewGroupID joins a job and a group name.
func NewGroupID(job JobName, group string) GroupID { return GroupID(string(job) + "/" + group) }

// Split returns the job and the name of the group.
func (g GroupID) Split() (JobName, string) {
	job, group, _ := strings.Cut(string(g), "/")
	return JobName(job), group
}

// NewDeploymentID names the deployment of one job version.
func NewDeploymentID(job JobName, version uint64) DeploymentID {
	return DeploymentID(fmt.Sprintf("%s-%d", job, version))
}

// ValidName reports whether a name of a cluster, node, job, group, port or service is 1 to 63 characters of a-z, A-Z,
// 0-9, '-', '_' and '.', and begins with a letter or digit.
func ValidName(name string) bool {
	if name == "" || len(name) > 63 {
		return false
	}
	for i, r := range name {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !alnum && (i == 0 || !strings.ContainsRune("-_.", r)) {
			return false
		}
	}
	return true
}

// BudgetName names a shared budget.
type BudgetName string
