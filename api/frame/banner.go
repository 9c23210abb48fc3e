package frame

import "github.com/outspan/outspan/api"

// Banner says who answers, and how the cluster is as a whole. It is sent when it changes.
type Banner struct {
	Server  string `json:"server"` // that answers
	Build   string `json:"build"`  // its version
	Cluster string `json:"cluster"`
	Leader  string `json:"leader"` // empty: none is known

	// The rest is only for those who may see the status (server.read).
	Status   bool                    `json:"status"` // whether the rest is filled in
	Hold     bool                    `json:"hold,omitempty"`
	Paused   bool                    `json:"paused,omitempty"`
	Restored bool                    `json:"restore_unconfirmed,omitempty"`
	Problems map[api.ProblemCode]int `json:"problems,omitzero"` // the number by code, a few seconds old; nil: unknown
}

// Counts are the numbers of what the stream's scope includes. They are sent when they change.
type Counts struct {
	Nodes     map[string]int `json:"nodes"`     // by state, and total
	Instances map[string]int `json:"instances"` // that have not ended, by observed state, and total
	// What the caller may not read is only counted, and only if the scope is everything.
	HiddenNodes     int `json:"hidden_nodes,omitempty"`
	HiddenInstances int `json:"hidden_instances,omitempty"`
}
