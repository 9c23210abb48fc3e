package driver

import (
	"os"
	"os/user"
	"slices"
	"strconv"

	"github.com/outspan/outspan/model"
)

// account is a user of this node with its ids.
type account struct {
	Name   string `cbor:"1,keyasint"`
	UID    int    `cbor:"2,keyasint"`
	GID    int    `cbor:"3,keyasint"`
	Groups []int  `cbor:"4,keyasint"`
	Home   string `cbor:"5,keyasint"`
	Switch bool   `cbor:"6,keyasint"` // whether the init step must change to this user; only root can do so
}

// resolveAccount returns the account that an instance runs as. An empty name stands for DefaultUser if the agent is
// root, and otherwise for the agent's own user. Codes: user_unknown, user_not_allowed, root_not_allowed.
func resolveAccount(name string, cfg Config) (account, error) {
	root := os.Geteuid() == 0
	if name == "" && !root {
		return ownAccount(), nil
	}
	named := name != ""
	if !named {
		name = cfg.DefaultUser
	}
	a, err := lookupAccount(name)
	if err != nil {
		return account{}, err
	}
	switch {
	case named && !cfg.allows(a):
		return account{}, model.Refuse(CodeUserNotAllowed, "user %q (uid %d) is none that this node allows", name, a.UID).
			WithHint("name another user, or add it to allow_users in the agent's configuration")
	case a.UID == 0 && !cfg.AllowRoot:
		return account{}, model.Refuse(CodeRootNotAllowed, "user %q is root, which this node refuses for instances", name).
			WithHint("name another user, or allow root in the agent's configuration")
	case !root && a.UID != os.Geteuid():
		return account{},
			model.Refuse(CodeUserNotAllowed, "user %q needs an agent that runs as root; this one runs as uid %d",
				name, os.Geteuid()).
				WithHint("leave the user out, or run the agent as root")
	}
	a.Switch = root
	return a, nil
}

// Account returns the uid of the user that a Spec names, and its groups, the primary group first. An empty user stands
// for DefaultUser if the agent is root, and otherwise for the agent's own user. Codes: user_unknown, user_not_allowed,
// root_not_allowed.
func (c Config) Account(user string) (uid int, groups []int, err error) {
	a, err := resolveAccount(user, c)
	if err != nil {
		return 0, nil, err
	}
	return a.UID, append([]int{a.GID}, a.Groups...), nil
}

// UIDRange is a range of user ids, both ends included. The zero value is the empty range.
type UIDRange struct{ First, Last int }

// String returns the range as it is written in a configuration.
func (r UIDRange) String() string { return strconv.Itoa(r.First) + "-" + strconv.Itoa(r.Last) }

// Has reports whether a user id is in the range.
func (r UIDRange) Has(uid int) bool { return r.Last > 0 && r.First <= uid && uid <= r.Last }

// allows reports whether a Spec may name this account. It returns true for root, because resolveAccount checks
// AllowRoot itself.
func (c Config) allows(a account) bool {
	if a.UID == 0 || c.OwnUIDs.Has(a.UID) || slices.ContainsFunc(c.AllowUsers, func(user string) bool {
		return user == a.Name && user != "" || user == strconv.Itoa(a.UID)
	}) {
		return true
	}
	if c.MinUID > 0 {
		return a.UID >= c.MinUID
	}
	return len(c.AllowUsers) == 0
}

// ownAccount returns the account of the agent's own user, even if the user database has no entry for that user.
func ownAccount() account {
	a := account{UID: os.Geteuid(), GID: os.Getegid()}
	if u, err := user.LookupId(strconv.Itoa(a.UID)); err == nil {
		a.Name, a.Home = u.Username, u.HomeDir
	}
	return a
}

func lookupAccount(name string) (account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return lookupNumber(name)
	}
	a := account{Name: u.Username, Home: u.HomeDir}
	var errUID, errGID error
	a.UID, errUID = strconv.Atoi(u.Uid)
	a.GID, errGID = strconv.Atoi(u.Gid)
	if errUID != nil || errGID != nil {
		return account{}, model.Refuse(CodeUserUnknown, "user %q has no numeric uid and gid on this node", name)
	}
	ids, err := u.GroupIds()
	if err != nil {
		return account{}, model.Refuse(CodeUserUnknown, "groups of user %q can't be read: %v", name, err)
	}
	for _, id := range ids {
		if g, err := strconv.Atoi(id); err == nil {
			a.Groups = append(a.Groups, g)
		}
	}
	return a, nil
}

// nogroup is the group of a uid without an account. A group with the same number as the uid would not be safe: it could
// be a system group with special rights, such as kmem.
const nogroup = 65534

// lookupNumber returns the account of a uid, even if the user database has no entry for it. It returns user_unknown if
// name is not a number.
func lookupNumber(name string) (account, error) {
	uid, err := strconv.ParseUint(name, 10, 31)
	if err != nil {
		return account{}, model.Refuse(CodeUserUnknown, "user %q does not exist on this node", name).
			WithHint("create the user on every node that may run it, or name another")
	}
	if u, err := user.LookupId(name); err == nil {
		return lookupAccount(u.Username)
	}
	return account{UID: int(uid), GID: nogroup, Groups: []int{nogroup}}, nil
}
