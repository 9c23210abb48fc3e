package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

const eventInstances = 16 // the most instances that one event lists

func (c *NodeAck) apply(s *State) error {
	n, ok := s.Nodes.Get(c.ID)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no node %s", c.ID)
	}
	if n.Intent != model.IntentDraining && n.Intent != model.IntentDisabled {
		return model.Refuse(model.CodeConflict, "node %s is %s: there is nothing to acknowledge", n.Name, n.Intent).
			WithHint("drain it first: outspan node drain %s", n.Name)
	}
	ids := c.Instances
	if len(ids) == 0 {
		for inst := range s.InstancesOn(c.ID) {
			if inst.Desired == model.DesiredRunning && s.Movable(inst) != nil {
				ids = append(ids, inst.ID)
			}
		}
	}
	next := *n
	next.Acked = slices.DeleteFunc(slices.Clone(n.Acked), func(id model.InstanceID) bool { return !s.Instances.Has(id) })
	kept := len(next.Acked)
	for _, id := range ids {
		inst, ok := s.Instances.Get(id)
		if !ok || inst.Node != c.ID {
			return model.Refuse(model.CodeNotFound, "there is no instance %s on node %s", id, n.Name)
		}
		if !slices.Contains(next.Acked, id) {
			next.Acked = append(next.Acked, id)
		}
	}
	s.setNode(n, next)
	if fresh := next.Acked[kept:]; len(fresh) > 0 {
		data := map[string]string{"name": n.Name, "instances": instanceNames(fresh)}
		s.emit(Event{Type: model.EventNodeAck, Subject: "node/" + string(n.ID), Data: data})
	}
	return nil
}

// instanceNames joins ids for an event: at most eventInstances of them, and the number of the others.
func instanceNames(ids []model.InstanceID) string {
	var names []string
	for _, id := range ids[:min(len(ids), eventInstances)] {
		names = append(names, string(id))
	}
	if more := len(ids) - eventInstances; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// Acknowledged returns how many instances stay running on a node because they can't be moved and somebody acknowledged
// them.
func (s *State) Acknowledged(n *Node) (total int) {
	for _, id := range n.Acked {
		inst, ok := s.Instances.Get(id)
		total += count(ok && inst.Node == n.ID && inst.Desired == model.DesiredRunning &&
			inst.holdsClaims() && s.Movable(inst) != nil)
	}
	return total
}
