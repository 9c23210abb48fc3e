package httpapi

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// InstanceDisk is an instance's disk limit, and whether it is above it.
type InstanceDisk struct {
	LimitBytes int64 `json:"limit_bytes" doc:"0: the job file sets none"`
	Above      bool  `json:"above" doc:"the last measurement found more than the limit"`
	UsedBytes  int64 `json:"used_bytes" doc:"below its work directory; 0 unless it is above its limit"`
	AtLeast    bool  `json:"at_least" doc:"the agent could not measure everything there"`

	Next string `json:"next" doc:"the way out; empty unless it is above its limit"`
}

func (r *reading) disk(i *fsm.Instance) InstanceDisk {
	spec, ok := r.Spec(i.Group, i.Version)
	use, above := r.DiskUse(i)
	switch {
	case above:
		return InstanceDisk{
			LimitBytes: use.LimitBytes, Above: true, UsedBytes: use.UsedBytes, AtLeast: use.AtLeast, Next: r.emptyDisk(i, use),
		}
	case ok && spec.Resources.DiskBytes > 0:
		return InstanceDisk{LimitBytes: spec.Resources.DiskBytes}
	}
	return InstanceDisk{}
}

// emptyDisk is how a person finds out what fills a work directory.
func (r *reading) emptyDisk(i *fsm.Instance, use model.DiskUse) string {
	return "on " + r.nodeName(i.Node) + ": du -ah " + use.Dir + " | sort -h; to begin anew with an empty one: outspan instance evict " + string(i.ID)
}

// disks are the instances above their disk limit.
func (p *problems) disks() {
	for _, n := range p.r.Nodes.All() {
		for _, use := range n.Self.Disk {
			i, ok := p.r.Instances.Get(use.ID)
			if !ok || i.Node != n.ID {
				continue
			}
			if use, above := p.r.DiskUse(i); above {
				p.add(ProblemInstanceDisk, "instance/"+string(i.ID), p.r.emptyDisk(i, use), "%s on %s: %s", i.Group, n.Name, use.Words())
			}
		}
	}
}
