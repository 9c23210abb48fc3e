package api

import (
	"github.com/outspan/outspan/model"
)

// PortProblem is a port on which a node's agent should listen and can't.
type PortProblem struct {
	Port    int               `json:"port"`
	Service model.ServiceName `json:"service" doc:"that exposes it; empty: the port is one of the agent's own"`
	Code    model.PortCode    `json:"code" doc:"port_taken, port_reserved or port_failed"`
	Reason  string            `json:"reason"`
}

// ServiceProblem is a node on which an exposed port is not open.
type ServiceProblem struct {
	Node   string         `json:"node"`
	NodeID model.NodeID   `json:"node_id"`
	Port   int            `json:"port"`
	Code   model.PortCode `json:"code" doc:"port_taken, port_reserved or port_failed"`
	Reason string         `json:"reason"`
}
