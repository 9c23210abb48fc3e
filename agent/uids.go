package agent

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/transfer"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// uids gives user ids of the node's range to instances whose job files name no user, so that no instance can read the
// environment, memory or files of another. An instance without volumes gets an id of its own. A slot with volumes keeps
// its id, because that id owns the files. Safe for concurrent use.
type uids struct {
	all     driver.UIDRange
	volumes string // the directory of all volumes

	mu   sync.Mutex
	next int // the id that take tries first
	of   map[uidHolder]int
	used map[int]uidHolder
	// ownersUnknown is the error of the last lookAtVolumes, or nil. While it is not nil, take gives no new id, because
	// the id might own data that lookAtVolumes did not see.
	ownersUnknown error
}

// uidHolder names the holder of a user id: an instance, a slot with volumes, or stagedHolder.
type uidHolder string

func instanceHolder(id model.InstanceID) uidHolder { return "instance " + uidHolder(id) }

func slotHolder(group model.GroupID, slot int) uidHolder {
	return uidHolder("slot " + string(group) + "/" + strconv.Itoa(slot))
}

// stagedHolder is the holder of all ids that own staged copies of transfers, until their slots claim the ids.
const stagedHolder uidHolder = "staged"

func holderOf(a transport.Assignment) uidHolder {
	if a.Spec != nil && len(a.Spec.Volumes) > 0 {
		return slotHolder(a.Group, a.Slot)
	}
	return instanceHolder(a.ID)
}

// newUIDs reads the owners of the volumes from the disk. If this fails, take tries it again.
func newUIDs(all driver.UIDRange, volumes string, log hclog.Logger) *uids {
	u := &uids{all: all, volumes: volumes, of: map[uidHolder]int{}, used: map[int]uidHolder{}}
	if all != (driver.UIDRange{}) {
		u.next = all.First + rand.IntN(all.Last-all.First+1) // random, since the last id of an earlier process is not known
		if u.ownersUnknown = u.lookAtVolumes(); u.ownersUnknown != nil {
			log.Error("the owners of volumes can't be read: no instance gets a new user id", "error", u.ownersUnknown)
		}
	}
	return u
}

// lookAtVolumes notes the owners of all volumes, JOB/GROUP/SLOT/NAME, and of staged copies, .transfer/ID/tree/NAME.
// Only root can write to the parent directories, so the owners can be trusted.
func (u *uids) lookAtVolumes() error {
	found, err := fs.Glob(os.DirFS(u.volumes), "*/*/*/*")
	for _, name := range found {
		uid, failure := ownerOf(filepath.Join(u.volumes, name))
		if failure != nil {
			err = errors.Join(err, failure)
			continue
		}
		holder := uidHolder("slot " + path.Dir(name))
		if name[0] == '.' {
			holder = stagedHolder
		}
		if _, known := u.used[uid]; u.all.Has(uid) && !known {
			u.used[uid] = holder
		}
	}
	return err
}

// ownerOf returns the user id that owns a directory, or -1 if the directory does not exist.
func ownerOf(dir string) (int, error) {
	info, err := os.Lstat(dir)
	if os.IsNotExist(err) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, nil
	}
	return int(st.Uid), nil
}

// keep notes the user id of an instance that an earlier agent process started. If uid is 0, the instance has no id of
// the range, and keep does nothing.
func (u *uids) keep(a transport.Assignment, uid int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if uid != 0 {
		u.of[holderOf(a)], u.used[uid] = uid, holderOf(a)
	}
}

// take returns the user id of a holder. If the holder has no id yet, take gives it the next free one. It returns false
// if all ids are in use, or if the owners of the volumes can't be read.
func (u *uids) take(holder uidHolder) (uid int, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if uid := u.of[holder]; u.all.Has(uid) {
		return uid, true
	}
	if u.ownersUnknown != nil {
		if u.ownersUnknown = u.lookAtVolumes(); u.ownersUnknown != nil {
			return 0, false
		}
	}
	for range u.all.Last - u.all.First + 1 {
		uid := u.next
		if u.next++; u.next > u.all.Last {
			u.next = u.all.First
		}
		if _, busy := u.used[uid]; !busy {
			u.of[holder], u.used[uid] = uid, holder
			return uid, true
		}
	}
	return 0, false
}

// claim gives a slot the user id that owns its data. It returns false if an instance or another slot has that id.
func (u *uids) claim(slot uidHolder, uid int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if by, used := u.used[uid]; used && by != slot && by != stagedHolder {
		return false
	}
	u.of[slot], u.used[uid] = uid, slot
	return true
}

// release frees the user id of a forgotten instance. A slot keeps its id, since its data is still there.
func (u *uids) release(id model.InstanceID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if uid, has := u.of[instanceHolder(id)]; has {
		delete(u.used, uid)
		delete(u.of, instanceHolder(id))
	}
}

// exhausted returns the error for an instance for which take returned false.
func (u *uids) exhausted() *model.Error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ownersUnknown != nil {
		return model.Refuse(model.CodeInternal,
			"the owners of the volumes can't be read, so no instance gets a new user id: %v",
			u.ownersUnknown).WithHint("look at the disk of the volumes")
	}
	return model.Refuse(model.CodeInternal, "all user ids from %d to %d are in use", u.all.First, u.all.Last).
		WithHint("give the node a larger instance_uids")
}

// asOwnUser gives an assignment a user id of the node's range. It returns the changed assignment and the id. If the
// instance gets no such id, asOwnUser returns the assignment unchanged, and 0. The parameter shared is true if the
// instance ran as the default user before. Codes: invalid (the job file names a user of the range), internal.
func (w *shared) asOwnUser(a transport.Assignment, shared bool) (transport.Assignment, int, error) {
	if a.Spec.Container != nil {
		return a, 0, nil // its user is one of the image
	}
	all := w.uids.all
	if a.Spec.Exec.User != "" {
		if who, err := accountOf(a.Spec.Exec.User, ""); err == nil && all.Has(who.uid) {
			return a, 0, refuseOwnUser(a.Spec.Exec.User)
		}
		return a, 0, nil
	}
	if os.Geteuid() != 0 {
		return a, 0, nil // everything runs as the user of the agent
	}
	owner, err := w.dataOwner(a)
	switch {
	case err != nil:
		return a, 0, err
	// Data of an account of the machine keeps its owner. An instance that ran as the default user before remains that
	// user, so that it can read its files.
	case all == (driver.UIDRange{}), owner >= 0 && !all.Has(owner), owner < 0 && shared:
		return a, 0, nil
	}
	var uid int
	var ok bool
	if owner >= 0 {
		uid, ok = owner, w.uids.claim(holderOf(a), owner)
	} else {
		uid, ok = w.uids.take(holderOf(a))
	}
	switch {
	case !ok && owner >= 0:
		return a, 0, model.Refuse(model.CodeInternal, "the volumes belong to user id %d, which another instance has", owner).
			WithHint("stop the instance, and give its volumes to a free id of instance_uids")
	case !ok:
		return a, 0, w.uids.exhausted()
	}
	spec := *a.Spec
	spec.Exec.User = strconv.Itoa(uid)
	a.Spec = &spec
	return a, uid, nil
}

func refuseOwnUser(name string) *model.Error {
	return model.Refuse(model.CodeInvalid, "user %q is one of those that this node gives to instances", name).
		WithHint("name another user, or none")
}

// dataOwner returns the user id that owns the data in an assignment's volumes, or -1 if there is no data yet. Code:
// internal (the volumes belong to two users, or to an id above those of accounts that is not in the range).
func (w *shared) dataOwner(a transport.Assignment) (int, error) {
	owner, of := -1, ""
	for _, v := range a.Spec.Volumes {
		dir := w.volumes.dir(a, v.Name)
		uid, err := ownerOf(dir)
		if err != nil {
			return -1, diskError("look at volume "+v.Name, err)
		}
		epoch, err := transfer.Epoch(dir)
		if err != nil {
			return -1, diskError("read the epoch of volume "+v.Name, err)
		}
		if want := a.Copies[v.Name]; uid < 0 || want != 0 && epoch != strconv.FormatUint(want, 10) {
			continue // the instance will not get this data; see freshen
		}
		if empty, err := transfer.Empty(dir); err == nil && empty && !w.uids.all.Has(uid) {
			continue // an empty volume gets the user of the instance
		}
		switch {
		case uid > nogroup && !w.uids.all.Has(uid):
			return -1,
				model.Refuse(model.CodeInternal, "volume %s belongs to user id %d, which is not in instance_uids of this node",
					v.Name, uid).
					WithHint("take the id into the range again, or stop the instance and give the volume to another user")
		case owner >= 0 && uid != owner:
			return -1,
				model.Refuse(model.CodeInternal, "volumes %s and %s belong to two users, %d and %d", of, v.Name, owner, uid).
					WithHint("stop the instance and give both to one user")
		}
		owner, of = uid, v.Name
	}
	return owner, nil
}
