package model

import (
	"fmt"
)

// MaxDiskUses bounds how many instances above their disk limit are known of one node.
const MaxDiskUses = 64

// DiskUse is an instance whose work directory is larger than its job file allows.
type DiskUse struct {
	ID         InstanceID `cbor:"1,keyasint"`
	UsedBytes  int64      `cbor:"2,keyasint"`
	LimitBytes int64      `cbor:"3,keyasint"`
	AtLeast    bool       `cbor:"4,keyasint,omitempty"` // the agent could not measure all of it
	Dir        string     `cbor:"5,keyasint,omitempty"` // on the node; at most 256 bytes
}

// Words says how much it uses and what its limit is.
func (u DiskUse) Words() string {
	about := ""
	if u.AtLeast {
		about = "at least "
	}
	return fmt.Sprintf("its work directory has %s%s, its limit is %s", about, SizeText(u.UsedBytes), SizeText(u.LimitBytes))
}
