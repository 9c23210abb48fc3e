package httpapi

import (
	"fmt"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// closedPorts returns the ports that a node's agent reports as not open. For an offline node, whose agent can't report,
// it returns no ports.
func closedPorts(n *fsm.Node) []api.PortProblem {
	list := []api.PortProblem{}
	if n.Health == model.HealthOffline {
		return list
	}
	for _, p := range n.Self.Ports {
		list = append(list, api.PortProblem(p))
	}
	return list
}

// closedPorts returns the ports of a node that are not open, for the caller: without the names of services that the
// caller may not see.
func (r *reading) closedPorts(n *fsm.Node) []api.PortProblem {
	list := closedPorts(n)
	for i := range list {
		if svc, ok := r.Services.Get(list[i].Service); ok && !r.veil.shows("group", string(svc.Group)) {
			list[i].Service, list[i].Reason = hidden, ""
		}
	}
	return list
}

// closedOn returns the nodes on which the exposed port of a service is not open.
func (r *reading) closedOn(svc *fsm.Service) []api.ServiceProblem {
	list := []api.ServiceProblem{}
	if svc.Expose == 0 {
		return list
	}
	for _, n := range r.Nodes.All() {
		for _, p := range closedPorts(n) {
			if p.Service == svc.Name {
				list = append(list, api.ServiceProblem{Node: veiled(r.veil, "node", n.Name), NodeID: veiled(r.veil, "node", n.ID),
					Port: p.Port, Code: p.Code, Reason: p.Reason})
			}
		}
	}
	return list
}

// ports adds a problem for each port that an agent can't open, except on disabled and offline nodes.
func (p *problems) ports() {
	for _, n := range p.r.Nodes.All() {
		if n.Intent == model.IntentDisabled || n.Health == model.HealthOffline {
			continue
		}
		for _, port := range n.Self.Ports {
			p.add(api.ProblemPort, "node/"+n.Name, openPort(n, port), "%s", port.Words())
		}
	}
}

// openPort returns advice on how to get a port opened.
func openPort(n *fsm.Node, p model.PortProblem) string {
	switch p.Code {
	case model.PortTaken:
		return fmt.Sprintf("on %s: ss -ltnp 'sport = :%d' tells which process it is; stop that, or use another port",
			n.Name, p.Port)
	case model.PortReserved:
		return "expose the service on another port"
	}
	return "look at the log of the agent and of its door on " + n.Name
}
