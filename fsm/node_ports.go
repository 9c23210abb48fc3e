package fsm

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/outspan/outspan/model"
)

func comparePorts(a, b model.PortProblem) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Service, b.Service))
}

// keptPorts is what of the report is kept: known codes, each port and service once, in order.
func keptPorts(r *model.SelfReport) []model.PortProblem {
	kept := slices.DeleteFunc(slices.Clone(r.Ports), func(p model.PortProblem) bool {
		return p.Port < 1 || p.Port > 65535 || !p.Code.Valid() || p.Service != "" && !model.ValidName(string(p.Service))
	})
	slices.SortStableFunc(kept, comparePorts)
	kept = slices.CompactFunc(kept, func(a, b model.PortProblem) bool { return comparePorts(a, b) == 0 })
	kept = kept[:min(len(kept), model.MaxPortProblems)]
	for i := range kept {
		kept[i].Reason = model.ClipText(cmp.Or(kept[i].Reason, string(kept[i].Code)), maxAgentText)
	}
	if len(kept) == 0 {
		return nil
	}
	return slices.Clip(kept)
}

// tellPorts says in an event of each port that it can't be opened, or that it is open again or no longer wanted.
func (s *State) tellPorts(n *Node, now []model.PortProblem) {
	if slices.Equal(n.Self.Ports, now) {
		return
	}
	s.touch("nodes", "services")
	same := func(a model.PortProblem) func(model.PortProblem) bool {
		return func(b model.PortProblem) bool { return comparePorts(a, b) == 0 }
	}
	for _, p := range now {
		if !slices.ContainsFunc(n.Self.Ports, same(p)) {
			s.tellPort(n, p, "", string(p.Code))
		}
	}
	for _, p := range n.Self.Ports {
		if !slices.ContainsFunc(now, same(p)) {
			s.tellPort(n, p, string(p.Code), "ok")
		}
	}
}

func (s *State) tellPort(n *Node, p model.PortProblem, before, after string) {
	data := map[string]string{"name": n.Name, "port": strconv.Itoa(p.Port)}
	if p.Service != "" {
		data["service"] = string(p.Service)
	}
	if after != "ok" {
		data["reason"] = p.Reason
	}
	s.emit(Event{Type: EventNodePort, Subject: "node/" + string(n.ID), Before: cmp.Or(before, "ok"), After: after, Data: data})
}

func soundPorts(list []model.PortProblem) bool {
	sorted := slices.IsSortedFunc(list, func(a, b model.PortProblem) int { return cmp.Or(comparePorts(a, b), -1) })
	return sorted && len(list) <= model.MaxPortProblems
}
