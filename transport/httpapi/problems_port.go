package httpapi

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
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

// closedPorts are the ports that a node's agent can't open, as far as it told. Of an offline node nothing is known.
func closedPorts(n *fsm.Node) []PortProblem {
	list := []PortProblem{}
	if n.Health == model.HealthOffline {
		return list
	}
	for _, p := range n.Self.Ports {
		list = append(list, PortProblem(p))
	}
	return list
}

// closedOn are the nodes on which the port of a service is not open.
func (r *reading) closedOn(svc *fsm.Service) []ServiceProblem {
	list := []ServiceProblem{}
	if svc.Expose == 0 {
		return list
	}
	for _, n := range r.Nodes.All() {
		for _, p := range closedPorts(n) {
			if p.Service == svc.Name {
				list = append(list, ServiceProblem{Node: n.Name, NodeID: n.ID, Port: p.Port, Code: p.Code, Reason: p.Reason})
			}
		}
	}
	return list
}

// ports are those that agents can't open.
func (p *problems) ports() {
	for _, n := range p.r.Nodes.All() {
		if n.Intent == model.IntentDisabled || n.Health == model.HealthOffline {
			continue
		}
		for _, port := range n.Self.Ports {
			p.add(ProblemPort, "node/"+n.Name, openPort(n, port), "%s", port.Words())
		}
	}
}

// openPort is how a person opens a port that is not open.
func openPort(n *fsm.Node, p model.PortProblem) string {
	switch p.Code {
	case model.PortTaken:
		return fmt.Sprintf("on %s: ss -ltnp 'sport = :%d' tells which process it is; stop that, or use another port", n.Name, p.Port)
	case model.PortReserved:
		return "expose the service on another port"
	}
	return "look at the log of the agent and of its door on " + n.Name
}
