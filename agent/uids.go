package agent

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// uids hands out user ids of the node's range, one to each instance that names no user: none of them can read the environment, the memory or the files of
// another. Safe for many goroutines.
type uids struct {
	all driver.UIDRange

	mu   sync.Mutex
	next int
	of   map[fsm.InstanceID]int
	used map[int]fsm.InstanceID
}

func newUIDs(all driver.UIDRange) *uids {
	u := &uids{all: all, of: map[fsm.InstanceID]int{}, used: map[int]fsm.InstanceID{}}
	if all != (driver.UIDRange{}) {
		u.next = all.First + rand.IntN(all.Last-all.First+1) // what an earlier agent gave last is not known
	}
	return u
}

// keep notes the user id of an instance that an earlier agent started; 0: it has none.
func (u *uids) keep(id fsm.InstanceID, uid int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if uid != 0 {
		u.of[id], u.used[uid] = uid, id
	}
}

// take returns the user id of an instance: the one that it has, else wanted if that is in the range and free, else the next free one. False: all are in use.
func (u *uids) take(id fsm.InstanceID, wanted int) (uid int, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if uid, ok := u.of[id]; ok {
		return uid, true
	}
	if _, busy := u.used[wanted]; u.all.Has(wanted) && !busy {
		u.of[id], u.used[wanted] = wanted, id
		return wanted, true
	}
	for range u.all.Last - u.all.First + 1 {
		uid := u.next
		if u.next++; u.next > u.all.Last {
			u.next = u.all.First
		}
		if _, busy := u.used[uid]; !busy {
			u.of[id], u.used[uid] = uid, id
			return uid, true
		}
	}
	return 0, false
}

// give gives back the user id of an instance that is forgotten.
func (u *uids) give(id fsm.InstanceID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.used, u.of[id])
	delete(u.of, id)
}

// asOwnUser returns the assignment with a user of its own, and that user's id, if the node has a range and the job file names nobody; else the assignment as it is. Data in its
// volumes keeps a user of the range from one instance of the slot to the next. What belonged to the default user, or to a user of a range of another node, gets that
// of the instance.
func (w *workshop) asOwnUser(a transport.Assignment) (transport.Assignment, int, error) {
	all := w.uids.all
	if name := a.Spec.Exec.User; name != "" {
		if who, err := accountOf(name, ""); err == nil && all.Has(who.uid) {
			return a, 0, fsm.Refuse(fsm.CodeInvalid, "user %q is one of those that this node gives to instances", name).WithHint("name another user, or none")
		}
		return a, 0, nil
	}
	owner, err := w.ownerOf(a)
	if err != nil {
		return a, 0, err
	}
	usual, err := accountOf("", w.defaultUser)
	if err != nil {
		return a, 0, err
	}
	moved := owner > nogroup && !all.Has(owner) // no account of a machine: see instance_uids
	if all == (driver.UIDRange{}) || owner != 0 && owner != usual.uid && !moved && !all.Has(owner) {
		if moved {
			err = w.disown(a, owner, usual.uid)
		}
		return a, 0, err
	}
	uid, ok := w.uids.take(a.ID, owner)
	if !ok {
		return a, 0, fsm.Refuse(fsm.CodeInternal, "all user ids from %d to %d are in use", all.First, all.Last).WithHint("give the node a larger instance_uids")
	}
	if owner != 0 && uid != owner {
		if err := w.disown(a, owner, uid); err != nil {
			return a, 0, err
		}
	}
	spec := *a.Spec
	spec.Exec.User = strconv.Itoa(uid)
	a.Spec = &spec
	return a, uid, nil
}

// ownerOf is the user id that the data in the volumes of an assignment belongs to; 0: there is none.
func (w *workshop) ownerOf(a transport.Assignment) (int, error) {
	owner := 0
	for _, v := range a.Spec.Volumes {
		dir := w.volumes.dir(a, v.Name)
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
			continue
		}
		info, err2 := os.Lstat(dir)
		if err := errors.Join(err, err2); err != nil {
			return 0, diskError("look at volume "+v.Name, err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			owner = int(st.Uid)
		}
	}
	return owner, nil
}

// disown gives what belongs to one user in the volumes of an assignment to another one.
func (w *workshop) disown(a transport.Assignment, from, to int) error {
	for _, v := range a.Spec.Volumes {
		err := filepath.WalkDir(w.volumes.dir(a, v.Name), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != from {
				return nil
			}
			return os.Lchown(path, to, -1)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return diskError("give volume "+v.Name+" to user "+strconv.Itoa(to), err)
		}
	}
	return nil
}
