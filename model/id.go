package model

import (
	"fmt"
	"strings"
)

// Ids are distinct types, so that a NodeID does not compile as an InstanceID.
type (
	// NodeID names a worker machine permanently. It is a ULID that the agent generates at its first start.
	NodeID string
	// JobName is the name of a job, as the user wrote it.
	JobName string
	// GroupID is "job/group".
	GroupID string
	// InstanceID names one run of a group's program. It is never used again (P27).
	InstanceID string
	// DrainID names a drain. The caller chooses it, or a server generates a ULID.
	DrainID string
	// DeploymentID is "job-version".
	DeploymentID string
	// ServerID names a server. It is stored in the server's data directory.
	ServerID string
	// RequestID is the caller's name for one write. If the same actor sends a write again with the same id and body, the
	// write is carried out only once.
	RequestID string
	// Actor is the origin of a write, such as "cert:alice", "agent:n1", "server:s2", "uid:0@s1" or "leader".
	Actor string
)

// ActorLeader is the actor of decisions that the leader makes itself.
const ActorLeader Actor = "leader"

// ActorAgents is the actor of a log entry with the reports of several agents. A change by one of these reports has the
// reporting agent as its actor.
const ActorAgents Actor = "agents"

// ActorAgent returns the actor for the agent of a node.
func ActorAgent(node string) Actor { return Actor("agent:" + node) }

// NewGroupID joins the names of a job and of a group.
func NewGroupID(job JobName, group string) GroupID { return GroupID(string(job) + "/" + group) }

// Split returns the name of the job and the name of the group.
func (g GroupID) Split() (JobName, string) {
	job, group, _ := strings.Cut(string(g), "/")
	return JobName(job), group
}

// NewDeploymentID returns the id for the deployment of one job version.
func NewDeploymentID(job JobName, version uint64) DeploymentID {
	return DeploymentID(fmt.Sprintf("%s-%d", job, version))
}

// ValidName reports whether name has 1 to 63 characters of a-z, A-Z, 0-9, '-', '_' and '.', and begins with a letter or
// digit. Names of clusters, nodes, jobs, groups, ports and services must be valid, among others.
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
