package frame

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// Kind says what a section of a frame has.
type Kind uint8

// The kinds, in the order in which the sections of a snapshot come.
const (
	KindBanner    Kind = 1 // JSON: Banner
	KindCounts    Kind = 2 // JSON: Counts
	KindNodes     Kind = 3
	KindGroups    Kind = 4
	KindInstances Kind = 5
)

// Tables returns the kinds that are tables, in the order in which a snapshot sends them.
func Tables() []Kind { return []Kind{KindNodes, KindGroups, KindInstances} }

// State is the first column of each table. 0 means that there is no row at the handle.
const State = 0

// The columns of KindNodes. Each row also has a name, that of the node. CPU is in shares, 1,000 for each core, and
// memory in MiB. They are what instances can use, and what is allocated to instances, also to hidden ones. A value that
// does not fit is the largest that fits: 4,294,967,294.
const (
	NodeCPU = 1 + iota
	NodeMemory
	NodeCPUPlaced
	NodeMemoryPlaced
	NodeInstances // not confirmed stopped
)

// The columns of KindInstances. KindGroups has only State, and the name JOB/GROUP.
const (
	InstanceNode  = 1 + iota // handle in KindNodes, or None
	InstanceGroup            // handle in KindGroups
	InstanceSlot
)

// None is the handle of no row.
const None = ^uint32(0)

// The states of a node.
const (
	NodeActive = 1 + iota
	NodeCordoned
	NodeDraining
	NodeDisabled
	NodeDegraded
	NodeUnreachable
	NodeOffline
	// NodeNamed is a node that the caller may not read, with instances that it may read: only the name is sent.
	NodeNamed
)

// The state of an instance consists of these parts. An instance that ended has no row.
const (
	InstanceObserved  = 0x0f // the position in ObservedStates, beginning with 1
	InstanceDesired   = 0x30 // 0: running
	DesiredDraining   = 0x10
	DesiredStopped    = 0x20
	InstanceRequested = 0x40 // its eviction is requested
	InstanceVolumes   = 0x80 // its group has volumes
)

// NodeStates returns the names of the states of a node, from NodeActive on, without NodeNamed.
func NodeStates() []model.NodeState {
	return []model.NodeState{model.NodeActive, model.NodeCordoned, model.NodeDraining, model.NodeDisabled,
		model.NodeDegraded, model.NodeUnreachable, model.NodeOffline}
}

// ObservedStates returns the observed states of an instance, in the order of InstanceObserved.
func ObservedStates() []model.Observed {
	return []model.Observed{model.ObservedPending, model.ObservedBooting, model.ObservedReady, model.ObservedUnready,
		model.ObservedDraining, model.ObservedStopped, model.ObservedFailed, model.ObservedLost}
}

// shape is what a table has: the number of its columns, and whether its rows have names.
type shape struct {
	columns int
	names   bool
}

func shapeOf(kind Kind) (s shape, ok bool) {
	switch kind {
	case KindNodes:
		return shape{1 + NodeInstances, true}, true
	case KindGroups:
		return shape{1, true}, true
	case KindInstances:
		return shape{1 + InstanceSlot, false}, true
	case KindBanner, KindCounts:
	}
	return shape{}, false
}

// Table is a table in columns. The row at a handle is what the columns have at that position. All columns have the same
// length. A handle without a row has the State 0; its other columns have no meaning.
type Table struct {
	Columns [][]uint32
	Names   []string // nil if the table's rows have no names
}

// NewTable returns an empty table of a kind.
func NewTable(kind Kind) Table {
	s, _ := shapeOf(kind)
	t := Table{Columns: make([][]uint32, s.columns)}
	if s.names {
		t.Names = []string{}
	}
	return t
}

// Len returns the number of handles, which is at least the number of rows.
func (t *Table) Len() int { return len(t.Columns[State]) }

// Has reports whether there is a row at a handle.
func (t *Table) Has(h uint32) bool { return int64(h) < int64(t.Len()) && t.Columns[State][h] != 0 }

// Grow makes the table have n handles at least.
func (t *Table) Grow(n int) {
	if more := n - t.Len(); more > 0 {
		for i := range t.Columns {
			t.Columns[i] = slices.Grow(t.Columns[i], more)[:n]
		}
		if t.Names != nil {
			t.Names = slices.Grow(t.Names, more)[:n]
		}
	}
}
