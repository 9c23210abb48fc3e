package agent

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/outspan/outspan/agent/transfer"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// freshen makes sure that an instance finds in its volume's directory the data that the servers mean, which its epoch names: what was kept there, if the instance
// comes back to it, and nothing, if the volume begins anew. Data of another epoch is put aside beside it; nothing is ever deleted.
//
// A local volume has no other copy. So one that a program has used must be there: it is never made anew. Code: integrity_check_failed.
func freshen(a transport.Assignment, spec fsm.VolumeSpec, dir string) error {
	want := strconv.FormatUint(a.Copies[spec.Name], 10)
	local, noted := spec.Kind != fsm.VolumeReplicated, want != "0"
	if !local && !noted {
		return nil
	}
	have, err := transfer.Epoch(dir)
	if err != nil {
		return diskError("read the epoch of volume "+spec.Name, err)
	}
	_, missing := os.Lstat(dir)
	switch {
	case have == want && local && errors.Is(missing, fs.ErrNotExist):
		return lostVolume(a, "the directory of volume %s, %s, was here and is missing", spec.Name, dir)
	case have == want:
		return nil
	case local && have == "" && slices.Contains(a.Held, spec.Name):
		return lostVolume(a, "the data of volume %s is not on this disk: nothing says that %s was ever used", spec.Name, dir)
	case local && have != "" && (slices.Contains(a.Held, spec.Name) || !noted):
		return lostVolume(a, "the data in %s is not the newest of volume %s: it is of epoch %s, not %s", dir, spec.Name, have, want)
	case noted: // without an epoch it is a directory from before there were any: it is taken once
		if err := transfer.PutAside(dir, have); err != nil {
			return diskError("put the older data of volume "+spec.Name+" aside", err)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return diskError("make volume "+spec.Name, err)
	}
	if err := transfer.SetEpoch(dir, want); err != nil {
		return diskError("note the epoch of volume "+spec.Name, err)
	}
	return nil
}

// lostVolume refuses to start an instance without its data.
func lostVolume(a transport.Assignment, format string, args ...any) error {
	return fsm.Refuse(fsm.CodeIntegrity, format, args...).
		WithHint("mount the disk or put the data back, or restore a backup; what happened to it: outspan volume status %s", fsm.NewVolumeID(a.Group, a.Slot, a.Spec.Volumes[0].Name))
}
