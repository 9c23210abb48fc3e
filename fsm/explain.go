package fsm

import "github.com/outspan/outspan/model"

// ClassOf returns Stateful if the instance has volumes, and otherwise Stateless.
func (i *Instance) ClassOf() model.DataClass {
	if i.Links.HasVolumes {
		return model.Stateful
	}
	return model.Stateless
}
