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

// owners decides which accounts of this node own the files of a copy. A file gets the user of the slot, unless it
// belonged to another user at the source, and a job may name that user on this node. So another node, or whoever wrote
// a backup, can create only files here that a job on this node could create. The user of a container is one of its
// image and has the same id on each node, so its files keep it in the same way.
type owners struct {
	t      *task
	theirs int                // user id that owned the volumes at their source; 0 if that was root or is not known
	slot   *Account           // the user of the slot here; nil if not looked up yet
	others map[int]lookedUpAs // by user id
}

// lookedUpAs is an account. ok is true if a job may name the account on this node.
type lookedUpAs struct {
	Account
	ok bool
}

// maxOwners is how many user ids of one copy are looked up. Files of further user ids get the user of the slot.
const maxOwners = 1000

// readdress replaces the users and groups in a manifest by those of this node, if the agent runs as root. dress then
// sets them on the files. Codes: those of Config.Owner.
func (t *task) readdress(m *manifest) error {
	if os.Geteuid() != 0 { // then all files belong to the agent's user
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
	if uid != o.theirs || uid == 0 || o.t.Container {
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

// checkUser refuses to copy volumes of a job whose user this node lacks or does not allow, because no instance could
// start here on the copy. Codes: those of Config.Owner.
func (t *task) checkUser() error {
	if t.User == "" || os.Geteuid() != 0 {
		return nil
	}
	_, err := t.m.cfg.Owner(t.Group, t.Slot, t.User)
	return err
}

// userOf returns the owner of the first volume, which is the user id as which the slot's instances ran on this node. It
// returns 0 if the owner is root or is not known.
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
