package fsm

import "github.com/outspan/outspan/model"

// ClassOf returns the data class of an instance.
func (i *Instance) ClassOf() model.DataClass {
	if i.Links.HasVolumes {
		return model.Stateful
	}
	return model.Stateless
}
