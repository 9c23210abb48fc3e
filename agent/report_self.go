package agent

import (
	"context"
	"slices"
	"time"

	"github.com/outspan/outspan/model"
)

// selfReport is the agent's report about its own machine.
type selfReport struct {
	troubles []model.Trouble
	disk     []model.DiskUse
	measured bool // disk was measured
	ports    []model.PortProblem
	runtime  *model.ContainerRuntime // nil without one; its Images are in images
	images   []model.NodeImage       // what is known of the images that the servers asked for
	filler   string                  // a message about the instance that fills the data directory; "" if there is none
	// now begins at 1 and grows with each change; acked is the newest number that the servers have
	now, acked uint64
}

// report returns the report for the servers. It appends filler to the reason of the trouble disk_full.
func (x *selfReport) report() *model.SelfReport {
	troubles := slices.Clone(x.troubles)
	for i := range troubles {
		if troubles[i].Check == model.SelfDiskFull && x.filler != "" {
			troubles[i].Reason += "; " + x.filler
		}
	}
	report := &model.SelfReport{Gen: x.now, Troubles: troubles, Disk: x.disk, Measured: x.measured, Ports: x.ports}
	if x.runtime != nil {
		runtime := *x.runtime
		runtime.Pulls, runtime.Images = true, x.images
		report.Runtime = &runtime
	}
	return report
}

func (r *reporter) setSelf(troubles []model.Trouble) {
	r.mu.Lock()
	r.self.troubles = troubles
	r.self.now++
	r.mu.Unlock()
	r.kick()
}

// setDisk records the newest list of instances above their disk limits, and reports it.
func (r *reporter) setDisk(above []model.DiskUse) {
	r.mu.Lock()
	r.self.disk, r.self.measured = above, true
	r.self.now++
	r.mu.Unlock()
	r.kick()
}

// setPorts records the newest list of ports that can't be opened, and reports it.
func (r *reporter) setPorts(closed []model.PortProblem) {
	r.mu.Lock()
	r.self.ports = closed
	r.self.now++
	r.mu.Unlock()
	r.kick()
}

// setFiller records a message about the instance that fills the data directory. A new message is sent at once only
// while there are troubles, because it is a part of the reason of disk_full.
func (r *reporter) setFiller(text string) {
	r.mu.Lock()
	r.self.filler = text
	if len(r.self.troubles) > 0 {
		r.self.now++
	}
	r.mu.Unlock()
	r.kick()
}

// setRuntime records what is known of the container runtime, and reports a change. nil means that the node has none.
// Containers that run, and the commands of their checks, don't need the runtime. turned is true if it stopped answering
// or answers again.
func (r *reporter) setRuntime(now *model.ContainerRuntime) (turned bool) {
	r.mu.Lock()
	old := r.self.runtime
	same := now == nil && old == nil || now != nil && old != nil && now.Version == old.Version && now.Down == old.Down &&
		now.Bridge == old.Bridge && now.NoBridge == old.NoBridge
	turned = now != nil && (now.Down != "") != (old != nil && old.Down != "")
	if !same {
		r.self.runtime = now
		r.self.now++
	}
	r.mu.Unlock()
	if !same {
		r.kick()
	}
	return turned
}

// awaitSelf blocks until the servers have the report about this machine as it is now, and returns true. It returns
// false after limit, or when ctx ends.
func (r *reporter) awaitSelf(ctx context.Context, limit time.Duration) bool {
	r.mu.Lock()
	want := r.self.now
	r.mu.Unlock()
	return r.awaitThat(ctx, limit, func() bool { return r.self.acked >= want })
}

// setImages records what is known of the images that the servers asked for, and reports it.
func (r *reporter) setImages(images []model.NodeImage) {
	r.mu.Lock()
	r.self.images = images
	r.self.now++
	r.mu.Unlock()
	r.kick()
}
