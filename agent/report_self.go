package agent

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// selfWord is what the agent says of its own machine.
type selfWord struct {
	troubles   []model.Trouble
	disk       []model.DiskUse
	measured   bool // disk is known
	ports      []model.PortProblem
	filler     string // what fills the data directory, in words; "" while that is not full, or not known
	now, acked uint64 // grows with each change, from 1
}

// report is what the servers are told. What fills the data directory is part of the reason why that is full.
func (x *selfWord) report() *model.SelfReport {
	troubles := slices.Clone(x.troubles)
	for i := range troubles {
		if troubles[i].Check == model.SelfDiskFull && x.filler != "" {
			troubles[i].Reason += "; " + x.filler
		}
	}
	return &model.SelfReport{Gen: x.now, Troubles: troubles, Disk: x.disk, Measured: x.measured, Ports: x.ports}
}

// setSelf is the newest word on the agent's own machine.
func (r *reporter) setSelf(troubles []model.Trouble) {
	r.mu.Lock()
	r.self.troubles = troubles
	r.self.now++
	r.mu.Unlock()
	r.kick()
}

// setDisk is the newest list of instances above their disk limit.
func (r *reporter) setDisk(above []model.DiskUse) {
	r.mu.Lock()
	r.self.disk, r.self.measured = above, true
	r.self.now++
	r.mu.Unlock()
	r.kick()
}

// setPorts is the newest list of ports that can't be opened.
func (r *reporter) setPorts(closed []model.PortProblem) {
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
