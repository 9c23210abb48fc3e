package fsm

import "maps"

// withAgent returns l with labels as those of the agent's configuration. Labels that operators removed stay removed.
func (l NodeLabels) withAgent(labels map[string]string) NodeLabels {
	l.Agent = maps.Clone(labels)
	return l.normal()
}

// set returns l after an operator has set labels. An empty value removes a label. token are the labels of the agent's
// join token.
func (l NodeLabels) set(labels, token map[string]string) NodeLabels {
	people := map[string]string{}
	maps.Copy(people, l.People)
	maps.Copy(people, labels)
	maps.DeleteFunc(people, func(name, value string) bool {
		return value == "" && l.Agent[name] == "" && token[name] == ""
	})
	l.People = people
	return l.normal()
}

// all returns the resulting labels: those of the agent, overridden by those of its join token, and these by those of
// operators. It returns nil if nobody set a label.
func (l NodeLabels) all(token map[string]string) map[string]string {
	if len(l.Agent) == 0 && len(token) == 0 && len(l.People) == 0 {
		return nil
	}
	all := map[string]string{}
	maps.Copy(all, l.Agent)
	maps.Copy(all, token)
	maps.Copy(all, l.People)
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

// normal returns l with nil instead of empty maps, as decoding would return it.
func (l NodeLabels) normal() NodeLabels {
	if len(l.Agent) == 0 {
		l.Agent = nil
	}
	if len(l.People) == 0 {
		l.People = nil
	}
	return l
}
