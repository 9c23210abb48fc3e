package series

import (
	"math"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Use is what a machine uses, as its agent measured it.
type Use struct {
	CPU         int64 // shares: thousandths of a core
	MemoryBytes int64
	Age         time.Duration // since the server heard it
}

// freshUse is how old a measurement may be to count. It is several times the interval of heartbeats.
const freshUse = time.Minute

// sample has the values of one step, by column.
type sample [columns]float32

func emptySample() (s sample) {
	for i := range s {
		s[i] = unknown()
	}
	return s
}

// shortage remembers since when groups are short.
type shortage struct {
	since map[model.GroupID]int64 // slot; before the first look of this process: beforeStart
	begun bool
}

const beforeStart = math.MinInt64

// ofState fills in the values of the replicated state. It walks over the nodes, the groups and the kept drains, and not
// over the instances. use returns what a machine uses; ok is false if nobody said so.
func (s *sample) ofState(state *fsm.State, use func(model.NodeID) (Use, bool)) {
	var n [columns]int64
	for id, node := range state.Nodes.All() {
		n[stateColumn(node.State())]++
		if node.State() != model.NodeDisabled && node.State() != model.NodeOffline {
			can := node.Allocatable()
			n[cpuCapacity] += can.CPU
			n[memoryCapacity] += can.MemoryBytes
		}
		n[cpuAllocated] += node.Placed.CPU
		n[memoryAllocated] += node.Placed.MemoryBytes
		if u, ok := use(id); ok && u.Age < freshUse {
			n[nodesMeasured]++
			n[cpuUsed] += u.CPU
			n[memoryUsed] += u.MemoryBytes
		}
	}
	for _, g := range state.Groups.All() {
		n[instancesWanted] += int64(g.Want())
		n[instancesRunning] += int64(g.Running)
		n[instancesReady] += int64(g.Ready)
		n[instancesLost] += int64(g.Lost)
		n[instancesEnding] += int64(g.Alive - g.Running)
	}
	for _, d := range state.Drains.All() {
		if d.Phase() != model.PhaseDraining {
			continue
		}
		n[drainsRunning]++
		for _, part := range d.Nodes {
			if part.Phase == model.PhaseDraining {
				n[drainNodes]++
			}
		}
	}
	for column := nodesActive; column <= drainNodes; column++ {
		s[column] = float32(n[column])
	}
	if n[nodesMeasured] == 0 {
		s[cpuUsed], s[memoryUsed] = unknown(), unknown()
	}
}

// look fills in how many groups are short, and for how long.
func (h *shortage) look(s *sample, state *fsm.State, slot int64, step time.Duration) {
	now := make(map[model.GroupID]int64)
	oldest := slot
	for id, g := range state.Groups.All() {
		if g.Ready >= g.Want() {
			continue
		}
		since, known := h.since[id]
		if !known {
			if since = slot; !h.begun {
				since = beforeStart
			}
		}
		now[id] = since
		oldest = min(oldest, since)
	}
	h.since, h.begun = now, true
	s[groupsShort] = float32(len(now))
	if s[pendingAge] = unknown(); oldest != beforeStart {
		s[pendingAge] = float32(float64(slot-oldest) * step.Seconds())
	}
}

// jobTotals returns the numbers of each job's instances, in the order of ofJob.
func jobTotals(state *fsm.State) map[model.JobName][len(ofJob)]int {
	all := make(map[model.JobName][len(ofJob)]int, state.Jobs.Len())
	for id, g := range state.Groups.All() {
		name, _ := id.Split()
		if !state.Jobs.Has(name) {
			continue
		}
		one := all[name]
		one[0] += g.Want()
		one[1] += g.Running
		one[2] += g.Ready
		all[name] = one
	}
	return all
}
