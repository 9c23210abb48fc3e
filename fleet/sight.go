package fleet

import "github.com/outspan/outspan/model"

// Sight is what a reader may see by the rights of one state. Its functions are called while the Publisher is locked, so
// they must not block.
type Sight struct {
	// Key is equal for readers who may see the same. They share what is encoded.
	Key string
	// Node reports whether the reader may see a node by its name. nil means all nodes.
	Node func(name string) bool
	// Instance reports whether the reader may see the instances of a job of a class on a node. nil means all instances.
	Instance func(job model.JobName, class model.ClassName, node string) bool
	// Status says that the reader may see the status of the cluster and its problems.
	Status bool
}

// Scope is the part of the cluster that a reader asks for. The zero value is everything.
type Scope struct {
	Job  model.JobName // only the instances of this job, their nodes and their groups
	Node string        // only this node, its instances and their groups
	Bare bool          // no rows, only the banner and the counts
}

// node reports whether a node belongs to the scope by itself. With Job, nodes belong to it only by their instances.
func (s Scope) node(name string) bool { return s.Job == "" && (s.Node == "" || s.Node == name) }

func (s Scope) instance(job model.JobName, node string) bool {
	return (s.Job == "" || s.Job == job) && (s.Node == "" || s.Node == node)
}
