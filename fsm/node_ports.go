package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

func comparePorts(a, b model.PortProblem) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Service, b.Service))
}

// keptPorts returns those port problems of a report that the state keeps: valid ones, each pair of port and service
// once, in order, at most MaxPortProblems.
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

// eventPorts is the largest number of ports that a list in an event names.
const eventPorts = 16

// tellPorts emits one event if the set of ports that can't be opened has changed, or the code of one of these ports.
// The event lists the ports that are closed now or have another code, and the ports that are open again or no longer
// wanted. next is the row that is about to be written.
func (s *State) tellPorts(n, next *Node) {
	now := next.Self.Ports
	if slices.Equal(n.Self.Ports, now) {
		return
	}
	s.touch("nodes", "services")
	closed, open := portsBeyond(now, n.Self.Ports, samePortCode), portsBeyond(n.Self.Ports, now, samePort)
	if len(closed)+len(open) == 0 {
		return // only the text of a reason changed
	}
	s.noteLeftOut(&next.Self.Events, lastPorts, portCodes(n.Self.Ports))
	s.emit(next.portsEvent(portCodes(n.Self.Ports), closed, open))
}

// portsEvent returns the event for a change of the ports that can't be opened. closed lists new problems, and open
// lists ports that no longer have a problem. before is the result of portCodes before the change.
func (n *Node) portsEvent(before string, closed, open []model.PortProblem) Event {
	data := map[string]string{"name": n.Name}
	if len(closed) > 0 {
		data["closed"], data["reason"] = portNames(closed), closed[0].Reason
	}
	if len(open) > 0 {
		data["open"] = portNames(open)
	}
	return Event{
		Type: model.EventNodePort, Subject: "node/" + string(n.ID), Before: before,
		After: portCodes(n.Self.Ports), Data: data,
	}
}

func samePort(a, b model.PortProblem) bool { return comparePorts(a, b) == 0 }

func samePortCode(a, b model.PortProblem) bool { return samePort(a, b) && a.Code == b.Code }

// portsBeyond returns the problems in list that have no counterpart in other. same reports whether two problems are
// counterparts.
func portsBeyond(list, other []model.PortProblem, same func(a, b model.PortProblem) bool) []model.PortProblem {
	return slices.DeleteFunc(slices.Clone(list), func(a model.PortProblem) bool {
		return slices.ContainsFunc(other, func(b model.PortProblem) bool { return same(a, b) })
	})
}

// portNames lists ports for an event, each with the service that exposes it.
func portNames(list []model.PortProblem) string {
	var names []string
	for _, p := range list[:min(len(list), eventPorts)] {
		names = append(names, strings.TrimSuffix(fmt.Sprintf("%d %s", p.Port, p.Service), " "))
	}
	if more := len(list) - eventPorts; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// portCodes lists the codes of problems, each code once. It returns "ok" if there are no problems.
func portCodes(list []model.PortProblem) string {
	var codes []string
	for _, p := range list {
		codes = append(codes, string(p.Code))
	}
	slices.Sort(codes)
	return cmp.Or(strings.Join(slices.Compact(codes), ", "), "ok")
}

func soundPorts(list []model.PortProblem) bool {
	sorted := slices.IsSortedFunc(list, func(a, b model.PortProblem) int { return cmp.Or(comparePorts(a, b), -1) })
	return sorted && len(list) <= model.MaxPortProblems
}
