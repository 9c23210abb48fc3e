package agent

import (
	"math/rand/v2"
	"strconv"
	"sync"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// uids hands out user ids of the node's range, one to each instance that names no user and has no volumes: none of them can read the environment, the memory or the
// files of another. Safe for many goroutines.
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

// take returns the user id of an instance: the one that it has, else the next free one. False: all are in use.
func (u *uids) take(id fsm.InstanceID) (uid int, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if uid := u.of[id]; u.all.Has(uid) {
		return uid, true
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

// asOwnUser returns the assignment with a user of its own, and that user's id, if the node has a range, the job file names nobody, and there are no volumes: their data
// would have to change its owner with each instance.
func (w *workshop) asOwnUser(a transport.Assignment) (transport.Assignment, int, error) {
	all := w.uids.all
	switch {
	case all == (driver.UIDRange{}):
		return a, 0, nil
	case a.Spec.Exec.User != "":
		if who, err := accountOf(a.Spec.Exec.User, ""); err == nil && all.Has(who.uid) {
			return a, 0, fsm.Refuse(fsm.CodeInvalid, "user %q is one of those that this node gives to instances", a.Spec.Exec.User).WithHint("name another user, or none")
		}
		return a, 0, nil
	case len(a.Spec.Volumes) > 0:
		return a, 0, nil
	}
	uid, ok := w.uids.take(a.ID)
	if !ok {
		return a, 0, fsm.Refuse(fsm.CodeInternal, "all user ids from %d to %d are in use", all.First, all.Last).WithHint("give the node a larger instance_uids")
	}
	spec := *a.Spec
	spec.Exec.User = strconv.Itoa(uid)
	a.Spec = &spec
	return a, uid, nil
}
