package agent

import (
	"strconv"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/transfer"
	"github.com/outspan/outspan/model"
)

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
