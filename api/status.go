package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Status is an overview of the cluster.
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

// Hold is the state of HOLD, the protection against mass eviction.
type Hold struct {
	Active    bool       `json:"active"`
	Since     *time.Time `json:"since"`
	Reason    string     `json:"reason"`
	CalmSince *time.Time `json:"calm_since" doc:"since then few enough nodes have been out, and no whole failure domain beside others; it ends 60 s later"`
	CalmNodes int        `json:"calm_nodes" doc:"while it is active: so many nodes are few enough, unheard ones included"`
	Domain    string     `json:"domain" doc:"while it is active: a whole failure domain that is out beside other nodes now, by the answering server's evidence; the HOLD lasts while there is one"`
	Nodes     []OutNode  `json:"nodes" doc:"while it is active: those that are out or unheard now, by the answering server's evidence"`
}

// OutNode is a node that counts toward HOLD.
type OutNode struct {
	Node     string       `json:"node" doc:"name"`
	NodeID   model.NodeID `json:"node_id"`
	Why      OutReason    `json:"why" enum:"offline,silent,sick,unheard"`
	LastSeen *time.Time   `json:"last_seen" doc:"by the answering server"`
}

// OutReason says why a node counts toward HOLD.
type OutReason string

// The reasons.
const (
	OutOffline OutReason = "offline" // it is written offline
	OutSilent  OutReason = "silent"  // its heartbeats are late, and no other server hears it
	OutSick    OutReason = "sick"    // its own agent reports troubles
	OutUnheard OutReason = "unheard" // no server has heard it yet, such as after a change of leaders; it may be well
)

// Health is the answer to health and readiness probes.
type Health struct {
	Status string `json:"status" enum:"ok"`
	Name   string `json:"name"`
	Leader bool   `json:"leader" doc:"this server leads"`
	Index  uint64 `json:"index"`
	Disk   Disk   `json:"disk" enum:"enough,low,full,unknown" doc:"room on the disk of its data_dir"`
}

// DifferentState is a server whose state differed from that of the answering server in a comparison.
type DifferentState struct {
	Name  string         `json:"name"`
	ID    model.ServerID `json:"id"`
	Index uint64         `json:"index" doc:"at which the states were compared"`
	Time  time.Time      `json:"time" doc:"when that was"`
}

// Verification is a comparison of the states of all servers.
type Verification struct {
	Verdict string           `json:"verdict" enum:"equal,differs,undecided,incomplete" doc:"undecided: servers differ, and no state has a majority of the voters; incomplete: those that could be compared are equal"`
	Index   uint64           `json:"index" doc:"of the states that were compared"`
	Format  uint16           `json:"format" doc:"of these states"`
	Digest  string           `json:"digest" doc:"SHA-256 of the state that a majority of the voters has; empty: none has a majority"`
	Items   []VerifiedServer `json:"items"`
}

// VerifiedServer is one server of a Verification.
type VerifiedServer struct {
	Name    string         `json:"name"`
	ID      model.ServerID `json:"id"`
	Address string         `json:"address"`
	Voter   bool           `json:"voter"`
	Leader  bool           `json:"leader"`
	Version string         `json:"version"`
	Verdict string         `json:"verdict" enum:"equal,differs,behind,unreachable"`
	Index   uint64         `json:"index" doc:"of the state that was compared; the newest that it has where none was; 0: not known"`
	Digest  string         `json:"digest" doc:"empty where none was compared"`
	Detail  string         `json:"detail" doc:"why it was not compared, what in its state contradicts itself, or when it was found to differ"`
	Tables  []TableDiff    `json:"tables" doc:"that differ from those of the majority, or where none has one, from those of the server that was asked"`
}

// TableDiff is a table of one server that differs from the expected one.
type TableDiff struct {
	Name           string `json:"name"`
	Rows           int    `json:"rows"`
	Digest         string `json:"digest"`
	ExpectedRows   int    `json:"expected_rows"`
	ExpectedDigest string `json:"expected_digest"`
}
