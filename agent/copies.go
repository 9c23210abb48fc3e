package agent

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/transfer"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// freshen prepares a volume's directory for an instance. The assignment names the epoch of the data that the instance
// must have. Data of that epoch stays. Data of another epoch is put aside and not deleted, and the directory starts
// empty. If the assignment names no epoch, a replicated volume stays as it is.
//
// A local volume that a program has used has no other copy. If its directory does not have the expected data, freshen
// changes nothing and returns integrity_check_failed. After a disk error it returns internal.
func freshen(a transport.Assignment, spec model.VolumeSpec, dir string) error {
	want := strconv.FormatUint(a.Copies[spec.Name], 10)
	local, noted := spec.Kind != model.VolumeReplicated, want != "0"
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
	case local && have == "" && slices.Contains(a.Held, spec.Name) && (noted || !holdsData(dir)):
		return lostVolume(a, "the data of volume %s is not on this disk: nothing says that %s was ever used", spec.Name, dir)
	case local && have != "" && (slices.Contains(a.Held, spec.Name) || !noted):
		return lostVolume(a, "the data in %s is not the newest of volume %s: it is of epoch %s, not %s",
			dir, spec.Name, have, want)
	case noted: // if noted is false, the directory stays as it is and gets epoch 0 below
		if err := transfer.PutAside(dir, have); err != nil {
			return diskError("put the older data of volume "+spec.Name+" aside", err)
		}
		// Otherwise, if the agent stopped before SetEpoch below, the empty directory would keep the older epoch.
		if err := transfer.ForgetEpoch(dir); err != nil {
			return diskError("forget the older epoch of volume "+spec.Name, err)
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

func holdsData(dir string) bool {
	empty, err := transfer.Empty(dir)
	return err == nil && !empty
}

// lostVolume returns the error for an instance whose data is missing or is not the newest.
func lostVolume(a transport.Assignment, format string, args ...any) error {
	return model.Refuse(model.CodeIntegrity, format, args...).
		WithHint("mount the disk or put the data back, or restore a backup; look for it, also where it was put aside: "+
			"outspan volume find; what happened to it: outspan volume status %s",
			model.NewVolumeID(a.Group, a.Slot, a.Spec.Volumes[0].Name))
}

// copyOwners finds the owner of the files of a volume that is copied from another node or from a backup.
type copyOwners struct {
	users  driver.Config
	uids   *uids
	mapped uidMap
}

// ofSlot returns the account as which the instances of a slot run on this node. The parameter user is the user that the
// job file names, or "". Codes: internal (no user id is free), user_unknown, user_not_allowed, root_not_allowed,
// invalid.
func (o copyOwners) ofSlot(group model.GroupID, slot int, user string) (transfer.Account, error) {
	if user == "" && o.uids.all != (driver.UIDRange{}) {
		uid, ok := o.uids.take(slotHolder(group, slot))
		if !ok {
			return transfer.Account{}, o.uids.exhausted()
		}
		return transfer.Account{UID: uid, Groups: []int{nogroup}}, nil
	}
	uid, groups, err := o.users.Account(user)
	if err == nil && o.uids.all.Has(uid) {
		err = refuseOwnUser(user)
	}
	return transfer.Account{UID: uid, Groups: groups}, err
}

// account returns the account of a user id. It returns false if no job file may name that id on this node, for example
// because this node gives the id to instances.
func (o copyOwners) account(uid int) (transfer.Account, bool) {
	if uid < 0 || o.uids.all.Has(uid) || !o.mapped.has(driver.UIDRange{First: uid, Last: uid}) {
		return transfer.Account{}, false
	}
	named, groups, err := o.users.Account(strconv.Itoa(uid))
	return transfer.Account{UID: named, Groups: groups}, err == nil && named == uid
}
