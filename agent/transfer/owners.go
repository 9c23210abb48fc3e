package transfer

import (
	"os"
	"slices"
)

// Account is a user of this node.
type Account struct {
	UID    int
	Groups []int // its own first
}

// owners decides whom the files of a copy belong to. They come from another node, which must not plant files of any
// account here: each of them belongs to the user of the slot, or else to one that a job may name on this node, with a
// group of that user. A job on this node could have made them too.
type owners struct {
	t      *task
	theirs int                // the user that the volumes had at their source; 0: not known
	slot   *Account           // nil: not asked for yet
	others map[int]lookedUpAs // by user id
}

// lookedUpAs is an account, unless no job may run as it.
type lookedUpAs struct {
	Account
	ok bool
}

// maxOwners is how many accounts one copy can name. Files of others belong to the user of the slot.
const maxOwners = 1000

// readdress gives the files of a copy to users of this node. Only copies that nothing has used yet are dressed by it.
// Code: that of Config.Owner.
func (t *task) readdress(m *manifest) error {
	if os.Geteuid() != 0 { // everything belongs to the user of the agent
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

// of is whom a file belongs to that belonged to a user id of the source.
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

// checkUser refuses to copy for a job whose user this node lacks or does not allow: its instance would not start here.
// Code: that of Config.Owner.
func (t *task) checkUser() error {
	if t.User == "" || os.Geteuid() != 0 {
		return nil
	}
	_, err := t.m.cfg.Owner(t.Group, t.Slot, t.User)
	return err
}

// userOf is the user id that the instances of the slot had at this node: it owns the first volume. 0: root, or not
// known.
func (t *task) userOf(entries []entry) int {
	i := slices.IndexFunc(entries, func(e entry) bool { return e.Path == t.Names[0] })
	if i < 0 {
		return 0
	}
	return max(entries[i].UID, 0)
}

// isVolume reports whether a path is the directory of a volume.
func isVolume(path string) bool {
	_, _, below := cutPath(path)
	return !below
}
