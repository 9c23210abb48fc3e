package fsm

import "github.com/outspan/outspan/model"

// ClassOf returns the data class of an instance: stateful if its group has volumes.
func (i *Instance) ClassOf() model.DataClass {
	if i.Links.HasVolumes {
		return model.Stateful
	}
	return model.Stateless
}
