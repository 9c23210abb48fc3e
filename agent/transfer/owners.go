package transfer

import (
	"os"
	"slices"
)

// Account is a user of this node.
type Account struct {
	UID    int
	Groups []int // ids; the primary group is first
}

// owners decides which account gets the files of a copy. The copy comes from another node or a backup, which must not
// be able to create files of any account here. Each file gets the user of the slot, or a user that a job may name on
// this node, with a group of that user. A job on this node could have made the same files.
type owners struct {
	t      *task
	theirs int                // user id that owned the volumes at their source; 0 if it was root or is not known
	slot   *Account           // nil if not looked up yet
	others map[int]lookedUpAs // by user id
}

// lookedUpAs is an account; ok means that a job may run as it.
type lookedUpAs struct {
	Account
	ok bool
}

// maxOwners is how many user ids of one copy are looked up. Files of all others get the user of the slot.
const maxOwners = 1000

// readdress assigns the files of a copy to users of this node, if the agent runs as root. Nothing may have used the
// copy yet. Codes: those of Config.Owner.
func (t *task) readdress(m *manifest) error {
	if os.Geteuid() != 0 { // all files belong to the agent's user
		return nil
	}
	o := owners{t: t, theirs: m.OwnUID, others: map[int]lookedUpAs{}}
	for i := range m.Entries {
		e := &m.Entries[i]
		to, err := o.of(e.UID)
		if err != nil {
			return err
		}
		e.UID = to.UID
		if !slices.Contains(to.Groups, e.GID) {
			e.GID = to.Groups[0]
		}
	}
	return nil
}

// of returns the account on this node that gets the files that belonged to uid at the source.
func (o *owners) of(uid int) (Account, error) {
	if uid != o.theirs || uid == 0 {
		known, asked := o.others[uid]
		if !asked && len(o.others) < maxOwners {
			known.Account, known.ok = o.t.m.cfg.MayRunAs(uid)
			o.others[uid] = known
		}
		if known.ok {
			return known.Account, nil
		}
	}
	if o.slot == nil {
		slot, err := o.t.m.cfg.Owner(o.t.Group, o.t.Slot, o.t.User)
		if err != nil {
			return Account{}, err
		}
		o.slot = &slot
	}
	return *o.slot, nil
}

// checkUser refuses to copy volumes of a job whose user this node lacks or does not allow: the instance could not start
// here. Codes: those of Config.Owner.
func (t *task) checkUser() error {
	if t.User == "" || os.Geteuid() != 0 {
		return nil
	}
	_, err := t.m.cfg.Owner(t.Group, t.Slot, t.User)
	return err
}

// userOf returns the owner of the first volume, which is the user id that the slot's instances had on this node. It
// returns 0 for root, or if the owner is not known.
func (t *task) userOf(entries []entry) int {
	i := slices.IndexFunc(entries, func(e entry) bool { return e.Path == t.Names[0] })
	if i < 0 {
		return 0
	}
	return max(entries[i].UID, 0)
}

func isVolume(path string) bool {
	_, _, below := cutPath(path)
	return !below
}
