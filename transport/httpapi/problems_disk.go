package httpapi

import (
	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func (r *reading) disk(i *fsm.Instance) api.InstanceDisk {
	spec, ok := r.Spec(i.Group, i.Version)
	use, above := r.DiskUse(i)
	switch {
	case above:
		return api.InstanceDisk{
			LimitBytes: use.LimitBytes, Above: true, UsedBytes: use.UsedBytes, AtLeast: use.AtLeast, Next: r.emptyDisk(i, use),
		}
	case ok && spec.Resources.DiskBytes > 0:
		return api.InstanceDisk{LimitBytes: spec.Resources.DiskBytes}
	}
	return api.InstanceDisk{}
}

// emptyDisk returns the commands that show what fills an instance's work directory, and that replace the instance.
func (r *reading) emptyDisk(i *fsm.Instance, use model.DiskUse) string {
	return "on " + r.nodeName(i.Node) + ": du -ah " + use.Dir +
		" | sort -h; to begin anew with an empty one: outspan instance evict " + string(i.ID)
}

// disks adds the instances that use more disk than their limit.
func (p *problems) disks() {
	for _, n := range p.r.Nodes.All() {
		for _, use := range n.Self.Disk {
			i, ok := p.r.Instances.Get(use.ID)
			if !ok || i.Node != n.ID {
				continue
			}
			if use, above := p.r.DiskUse(i); above {
				p.add(api.ProblemInstanceDisk, "instance/"+string(i.ID), p.r.emptyDisk(i, use), "%s on %s: %s",
					i.Group, n.Name, use.Words())
			}
		}
	}
}
