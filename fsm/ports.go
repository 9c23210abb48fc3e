package fsm

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/model"
)

func inOrder(p model.Ports) bool {
	return slices.IsSortedFunc(p, func(a, b model.Port) int { return cmp.Or(cmp.Compare(a.Name, b.Name), -1) })
}

// portsOf returns a copy of p whose names share memory with those of the spec, because many instances have the same
// names.
func portsOf(p model.Ports, spec *model.GroupSpec) model.Ports {
	own := slices.Clone(p)
	for i := range own {
		for j := range spec.Ports {
			if spec.Ports[j].Name == own[i].Name {
				own[i].Name = spec.Ports[j].Name
			}
		}
	}
	return own
}
