package fsm

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

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

// parts returns the noun with its slash, and the id. touch puts a whole topic into noun.
func (o object) parts() (noun, id string) {
	if at := strings.IndexByte(o.noun, '/'); at >= 0 && o.id == "" {
		return o.noun[:at+1], o.noun[at+1:]
	}
	return o.noun, o.id
}

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

// maxTouched is how many touched topics Changes keeps before it reports that any row may have changed. It bounds the
// memory of a reader that does not come.
const maxTouched = 1 << 20

// Changes collects which rows entries touch, for a reader that keeps a copy of parts of the state. Safe for concurrent
// use.
type Changes struct {
	m *Machine

	// guarded by m.wait
	state   *State
	touched [][]object
	count   int // of the objects in touched
	all     bool
}

// Touched lists rows that may have changed since the last Take. A list may contain an id more than once. The row of a
// node also changes with the instances that are placed there: then Instances has those, and Nodes may lack the node.
type Touched struct {
	All       bool // any row may have changed, and the lists are empty
	Nodes     []model.NodeID
	Instances []model.InstanceID
	Jobs      []model.JobName
}

// Changes begins to collect. The first Take reports All. The caller must call Close when it has finished.
func (m *Machine) Changes() *Changes {
	c := &Changes{m: m, all: true}
	m.wait.Lock()
	defer m.wait.Unlock()
	c.state = m.Current() // publish takes m.wait after it has stored a newer state, and then adds to c
	m.changes = append(m.changes, c)
	return c
}

// Close ends the collection. It may be called more than once.
func (c *Changes) Close() {
	c.m.wait.Lock()
	defer c.m.wait.Unlock()
	c.m.changes = slices.DeleteFunc(c.m.changes, func(one *Changes) bool { return one == c })
	c.touched = nil
}

// Take returns a published state, and which of its rows may differ from the state of the last Take. It doesn't block.
// The caller must not change the state.
func (c *Changes) Take() (*State, Touched) {
	c.m.wait.Lock()
	state, batches, all := c.state, c.touched, c.all
	c.touched, c.count, c.all = nil, 0, false
	c.m.wait.Unlock()
	if all {
		return state, Touched{All: true}
	}
	var t Touched
	for _, batch := range batches {
		for _, o := range batch {
			switch noun, id := o.parts(); noun {
			case "instance/":
				t.Instances = append(t.Instances, model.InstanceID(id))
			case "node/":
				t.Nodes = append(t.Nodes, model.NodeID(id))
			case "job/":
				t.Jobs = append(t.Jobs, model.JobName(id))
			}
		}
	}
	return state, t
}

// add records a state that was just published, and what the entries before it touched. m.wait must be held. It keeps
// the slice, so it costs the entry no more than that, however many rows were touched.
func (c *Changes) add(state *State, touched []object, all bool) {
	c.state = state
	c.count += len(touched)
	c.all = c.all || all || c.count > maxTouched
	if c.all {
		c.touched = nil
		return
	}
	c.touched = append(c.touched, touched)
}
