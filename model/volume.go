package model

import (
	"fmt"
)

// VolumeID is "job/group/slot/name"; of a copy of a replicated volume "job/group/slot/name@node".
type VolumeID string

// NewVolumeID names a volume of a slot.
func NewVolumeID(group GroupID, slot int, name string) VolumeID {
	return VolumeID(fmt.Sprintf("%s/%d/%s", group, slot, name))
}
