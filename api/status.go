package api

import (
	"time"
)

// Status is the cluster in one look.
type Status struct {
	Cluster     string           `json:"cluster"`
	ClusterID   string           `json:"cluster_id"`
	Leader      string           `json:"leader" doc:"name; empty: none is known"`
	Servers     []Member         `json:"servers"`
	Nodes       map[string]int   `json:"nodes" doc:"by state, and total"`
	Jobs        map[string]int   `json:"jobs" doc:"by status, and total"`
	Instances   map[string]int   `json:"instances" doc:"desired running, by observed state"`
	Drains      []Drain          `json:"drains" doc:"running"`
	Deployments []Deployment     `json:"deployments" doc:"running"`
	Problems    []ProblemRow     `json:"problems" doc:"what a person should look at; some only the leader knows"`
	Hold        Hold             `json:"hold"`
	Paused      bool             `json:"actuation_paused"`
	Differing   []DifferentState `json:"different_states" doc:"servers that were found to have another state than the answering one; see /v1/members/verify"`
	Unconfirmed bool             `json:"restore_unconfirmed" doc:"a snapshot was restored or a server recovered; agents stop nothing the servers don't know until settings resume confirms it"`
	Format      uint16           `json:"format"`
	Version     string           `json:"version" doc:"of the answering server"`
	Index       uint64           `json:"index"`
	Time        time.Time        `json:"time"`
}

// Hold is the brake against mass eviction.
type Hold struct {
	Active bool       `json:"active"`
	Since  *time.Time `json:"since"`
	Reason string     `json:"reason"`
}
