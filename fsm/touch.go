package fsm

import "slices"

// Topic names an object that readers can wait for: "node/ID", "assigned/NODE", "job/NAME", "drain/ID", "deployment/ID",
// "instance/ID", "transfer/ID", "budget/NAME", "peers/GROUP", "member/SUBJECT", or a whole table: "nodes", "jobs",
// "instances", "drains", "events", "settings", "deployments", "services", "volumes", "budgets", "keys", "tokens",
// "members", "newcomers".
type Topic string

// touchedTopics are the topics of the rows that an entry changed. objects may contain a topic more than once.
type touchedTopics struct {
	tables  []Topic
	objects []object
}

// object is a topic in two parts. Joining them would allocate a string for each changed row, although hardly any topic
// has readers.
type object struct{ noun, id string }

// touchedAGroup is how many objects a group of commands usually touches. For example, a placement touches an instance,
// its job, its group's list, and the assignment of its node.
const touchedAGroup = 4

// touch records that readers who wait for these topics must look again.
func (s *State) touch(topics ...Topic) {
	for _, t := range topics {
		s.touchObject(string(t), "")
	}
}

// touchTable records that readers of a whole table must look again. It adds a table only once.
func (s *State) touchTable(t Topic) {
	if !s.entry.draft && !slices.Contains(s.entry.touched.tables, t) {
		s.entry.touched.tables = append(s.entry.touched.tables, t)
	}
}

// touchObject records that readers of the topic noun+id must look again. noun is a prefix such as "node/".
func (s *State) touchObject(noun, id string) {
	if !s.entry.draft {
		s.entry.touched.objects = append(s.entry.touched.objects, object{noun, id})
	}
}
