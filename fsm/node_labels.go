package fsm

import "maps"

// told is l after the agent said what its configuration has. What operators took away stays away.
func (l NodeLabels) told(labels map[string]string) NodeLabels {
	l.Agent = maps.Clone(labels)
	return l.normal()
}

// set is l after operators set labels, or with an empty value removed some.
func (l NodeLabels) set(labels map[string]string) NodeLabels {
	people := map[string]string{}
	maps.Copy(people, l.People)
	maps.Copy(people, labels)
	maps.DeleteFunc(people, func(name, value string) bool { return value == "" && l.Agent[name] == "" })
	l.People = people
	return l.normal()
}

// all is what counts: the labels of the agent, over them those of operators; nil if there are none.
func (l NodeLabels) all() map[string]string {
	if len(l.Agent) == 0 && len(l.People) == 0 {
		return nil
	}
	all := map[string]string{}
	maps.Copy(all, l.Agent)
	maps.Copy(all, l.People)
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

// normal is l as it reads back.
func (l NodeLabels) normal() NodeLabels {
	if len(l.Agent) == 0 {
		l.Agent = nil
	}
	if len(l.People) == 0 {
		l.People = nil
	}
	return l
}
