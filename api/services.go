package api

import (
	"github.com/outspan/outspan/model"
)

// Service is a service with its backends.
type Service struct {
	Name       model.ServiceName `json:"name"`
	Group      model.GroupID     `json:"group"`
	Port       string            `json:"port"`
	Expose     int               `json:"expose" doc:"every agent forwards this port; 0: none"`
	Generation uint64            `json:"generation" doc:"grows whenever the set of backends changes"`
	Backends   []Backend         `json:"backends" doc:"ready and not draining"`
	Problems   []ServiceProblem  `json:"problems" doc:"nodes on which its exposed port is not open"`
}

// Backend is an instance that receives requests of the service.
type Backend struct {
	Instance model.InstanceID `json:"instance"`
	Node     string           `json:"node"`
	NodeID   model.NodeID     `json:"node_id"`
	Address  string           `json:"address" doc:"ip:port"`
}

// ScrapeTarget is one element of the answer to Prometheus' HTTP service discovery. The answer is a list, and not an
// object with items.
type ScrapeTarget struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}
