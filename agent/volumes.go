package agent

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// volumes lets one holder at a time use the directory of a volume. A holder is an instance or a transfer. No directory
// is removed, so that the next instance of the slot finds the data. Safe for concurrent use.
type volumes struct {
	root string

	mu      sync.Mutex
	holders map[model.VolumeID]model.InstanceID
	freed   chan struct{} // closed and replaced at each release
}

func newVolumes(root string) *volumes {
	return &volumes{root: root, holders: map[model.VolumeID]model.InstanceID{}, freed: make(chan struct{})}
}

// claim claims all volumes of an assignment for its instance, and returns "". If another holder has one of the volumes,
// claim claims no volume, and returns that other holder and a channel that is closed at the next release.
func (v *volumes) claim(a transport.Assignment) (holder model.InstanceID, freed <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range volumeIDs(a) {
		if h, taken := v.holders[id]; taken && h != a.ID {
			return h, v.freed
		}
	}
	for _, id := range volumeIDs(a) {
		v.holders[id] = a.ID
	}
	return "", nil
}

// hold claims volumes for a transfer, so that no instance can use them, and returns "". If another holder has one of
// the volumes, hold claims no volume and returns that other holder.
func (v *volumes) hold(ids []model.VolumeID, holder model.InstanceID) (user model.InstanceID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range ids {
		if h, taken := v.holders[id]; taken && h != holder {
			return h
		}
	}
	for _, id := range ids {
		v.holders[id] = holder
	}
	return ""
}

// release gives back all volumes of a holder. Call it only when no process uses the volumes any more.
func (v *volumes) release(id model.InstanceID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for volume, holder := range v.holders {
		if holder == id {
			delete(v.holders, volume)
		}
	}
	close(v.freed)
	v.freed = make(chan struct{})
}

func volumeIDs(a transport.Assignment) []model.VolumeID {
	if a.Spec == nil {
		return nil
	}
	ids := make([]model.VolumeID, 0, len(a.Spec.Volumes))
	for _, v := range a.Spec.Volumes {
		ids = append(ids, model.NewVolumeID(a.Group, a.Slot, v.Name))
	}
	return ids
}

func volumeNames(a transport.Assignment) []string {
	names := make([]string, len(a.Spec.Volumes))
	for i, v := range a.Spec.Volumes {
		names[i] = v.Name
	}
	return names
}

func (v *volumes) dir(a transport.Assignment, name string) string {
	_, group := a.Group.Split()
	return filepath.Join(v.root, string(a.Job), group, strconv.Itoa(a.Slot), name)
}

// prepare makes the directories of an assignment's volumes, with the given account as their owner. It puts data of
// another epoch aside, or refuses it (see freshen). Files inside the directories are not changed.
func (v *volumes) prepare(a transport.Assignment, as account) error {
	for _, spec := range a.Spec.Volumes {
		dir := v.dir(a, spec.Name)
		if !model.ValidName(spec.Name) {
			return model.Refuse(model.CodeInvalid, "volume name %q can't be a directory", spec.Name)
		}
		// With 0711, the instance's user can pass through the parents of its directories, but can't list them.
		if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
			return diskError("make volume "+spec.Name, err)
		}
		if err := freshen(a, spec, dir); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return diskError("make volume "+spec.Name, err)
		}
		if as.other {
			if err := os.Lchown(dir, as.uid, as.gid); err != nil {
				return diskError("give volume "+spec.Name+" to user "+as.name, err)
			}
		}
	}
	return nil
}

// account is the user as which an instance will run. Its directories get this owner.
type account struct {
	name     string
	uid, gid int
	other    bool // this is not the user that the agent runs as
}

// nogroup is the group id for a user id without an account. The driver uses the same one.
const nogroup = 65534

// accountOf finds a user by name or number. If name is "", it finds the user fallback. If the agent does not run as
// root, it always returns the agent's own account. Whether an instance may run as the user is checked by the driver.
// Code: invalid.
func accountOf(name, fallback string) (account, error) {
	own := account{uid: os.Geteuid(), gid: os.Getegid()}
	if own.uid != 0 {
		return own, nil // only root can change the user; the driver refuses all users but the agent's own
	}
	if name == "" {
		name = fallback
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			uid, nerr := strconv.Atoi(name)
			if nerr != nil {
				return account{}, model.Refuse(model.CodeInvalid, "user %q does not exist on this node", name)
			}
			return account{name: name, uid: uid, gid: nogroup, other: uid != 0}, nil
		}
	}
	uid, uerr := strconv.Atoi(u.Uid)
	gid, gerr := strconv.Atoi(u.Gid)
	if err := errors.Join(uerr, gerr); err != nil {
		return account{}, model.Refuse(model.CodeInvalid, "user %q has no numeric id: %v", name, err)
	}
	return account{name: name, uid: uid, gid: gid, other: uid != own.uid}, nil
}
