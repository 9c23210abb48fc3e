package agent

import (
	"slices"

	"github.com/outspan/outspan/fsm"
)

// selfWord is what the agent says of its own machine.
type selfWord struct {
	troubles   []fsm.Trouble
	disk       []fsm.DiskUse
	measured   bool // disk is known
	ports      []fsm.PortProblem
	filler     string // what fills the data directory, in words; "" while that is not full, or not known
	now, acked uint64 // grows with each change, from 1
}

// report is what the servers are told. What fills the data directory is part of the reason why that is full.
func (x *selfWord) report() *fsm.SelfReport {
	troubles := slices.Clone(x.troubles)
	for i := range troubles {
		if troubles[i].Check == fsm.SelfDiskFull && x.filler != "" {
			troubles[i].Reason += "; " + x.filler
		}
	}
	return &fsm.SelfReport{Gen: x.now, Troubles: troubles, Disk: x.disk, Measured: x.measured, Ports: x.ports}
}

// setSelf is the newest word on the agent's own machine.
func (r *reporter) setSelf(troubles []fsm.Trouble) {
	r.mu.Lock()
	r.self.troubles = troubles
	r.self.now++
	r.mu.Unlock()
	r.kick()
}

// setDisk is the newest list of instances above their disk limit.
func (r *reporter) setDisk(above []fsm.DiskUse) {
	r.mu.Lock()
	r.self.disk, r.self.measured = above, true
	r.self.now++
	r.mu.Unlock()
	r.kick()
}

// setPorts is the newest list of ports that can't be opened.
func (r *reporter) setPorts(closed []fsm.PortProblem) {
	r.mu.Lock()
	r.self.ports = closed
	r.self.now++
	r.mu.Unlock()
	r.kick()
}

// setFiller says what fills the data directory.
func (r *reporter) setFiller(text string) {
	r.mu.Lock()
	r.self.filler = text
	if len(r.self.troubles) > 0 {
		r.self.now++
	}
	r.mu.Unlock()
	r.kick()
}
