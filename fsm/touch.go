package fsm

import "slices"

// Topic names an object that readers can wait for: "node/ID", "assigned/NODE", "job/NAME", "drain/ID", "instance/ID",
// "service", "peers/GROUP", or a whole table: "nodes", "jobs", "instances", "drains", "events", "settings",
// "deployments".
type Topic string

// touchedTopics are the topics of what an entry changed. An object may stand in it more than once.
type touchedTopics struct {
	tables  []Topic
	objects []object
}

// object is a topic in two parts: put together they would be one more text for each row that changes, and hardly any is
// waited for.
type object struct{ noun, id string }

// touchedAGroup is how many objects a group of commands mostly touches: a placement an instance, its job, its group's
// list, and what its node is assigned.
const touchedAGroup = 4

// touch notes that readers who wait for these topics must look again.
func (s *State) touch(topics ...Topic) {
	for _, t := range topics {
		s.touchObject(string(t), "")
	}
}

// touchTable is touch for one of the topics that are whole tables.
func (s *State) touchTable(t Topic) {
	if !s.entry.draft && !slices.Contains(s.entry.touched.tables, t) {
		s.entry.touched.tables = append(s.entry.touched.tables, t)
	}
}

// touchObject is touch for the topic that begins with noun, such as "node/", and ends with id.
func (s *State) touchObject(noun, id string) {
	if !s.entry.draft {
		s.entry.touched.objects = append(s.entry.touched.objects, object{noun, id})
	}
}
