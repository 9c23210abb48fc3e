package agent

import (
	"strconv"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/transfer"
	"github.com/outspan/outspan/model"
)

// copyOwners says whom the files of volumes belong to that come from another node or from a backup.
type copyOwners struct {
	users  driver.Config
	uids   *uids
	mapped uidMap
}

// ofSlot is whom the instances of a slot run as on this node: user, if the job file names one. Codes: internal if all
// user ids are in use, user_unknown, user_not_allowed, root_not_allowed, invalid.
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
		err = givenUser(user)
	}
	return transfer.Account{UID: uid, Groups: groups}, err
}

// account is that of a user id which a job file may name on this node. The ids that this node gives to instances are
// not among them.
func (o copyOwners) account(uid int) (transfer.Account, bool) {
	if uid < 0 || o.uids.all.Has(uid) || !o.mapped.has(driver.UIDRange{First: uid, Last: uid}) {
		return transfer.Account{}, false
	}
	named, groups, err := o.users.Account(strconv.Itoa(uid))
	return transfer.Account{UID: named, Groups: groups}, err == nil && named == uid
}
