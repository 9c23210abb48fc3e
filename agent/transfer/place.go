package transfer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/internal/erase"
	"github.com/outspan/outspan/model"
)

// attach moves the copy of each volume to where instances find it, and notes its new epoch. Existing data is put aside,
// never removed. If attach was interrupted, the next try continues it. Code: integrity_check_failed (there is no
// verified copy).
func (t *task) attach(context.Context) error {
	if err := os.MkdirAll(t.slotDir(), 0o711); err != nil {
		return asCode(err, "make the directory of the slot")
	}
	all, err := t.volumes()
	if err != nil {
		return err
	}
	for i := range all {
		if err := t.attachOne(&all[i], strconv.FormatUint(t.Epoch, 10)); err != nil {
			return err
		}
	}
	t.report(model.SideAttached, 0, 0, "")
	return nil
}

// attachOne notes the new epoch before it moves the copy. So an instance that starts in between fails, because the
// directory is missing although its epoch is noted. If the ordered data is in its place already, attachOne only notes
// the new epoch.
func (t *task) attachOne(v *volume, epoch string) error {
	have, err := Epoch(v.dir)
	if err != nil {
		return asCode(err, "read the epoch of volume "+v.name)
	}
	copies, err := t.copiesOf(v)
	if err != nil {
		return err
	}
	from := ""
	if len(copies) > 0 {
		from = copies[0]
	}
	switch {
	case from == "" && exists(v.dir) && have == epoch:
		return nil
	case from == "" && v.here && len(t.Epochs) > 0: // the ordered data is in its place already
		return asCode(SetEpoch(v.dir, epoch), "note the epoch of volume "+v.name)
	case from == "":
		return model.Refuse(model.CodeIntegrity, "there is no verified copy of %s to attach", v.name)
	}
	if have != epoch {
		if err := PutAside(v.dir, have); err != nil {
			return asCode(err, "put aside what stands in the place of volume "+v.name)
		}
	}
	// PutAside does not move an empty directory. With the new epoch, it would look like the copy.
	if err := os.Remove(v.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return asCode(err, "remove the empty directory of volume "+v.name)
	}
	if have != epoch {
		if err := SetEpoch(v.dir, epoch); err != nil {
			return asCode(err, "note the epoch of volume "+v.name)
		}
	}
	return asCode(move(from, v.dir), "put the copy of "+v.name+" in its place")
}

// copiesOf returns the path of the staged copy of a volume if that copy was verified. Otherwise it returns all paths
// at which data of the ordered epoch was put aside.
func (t *task) copiesOf(v *volume) ([]string, error) {
	by := t.Staged
	if by == "" {
		by = t.ID
	}
	if staged := t.staging(by, "tree", v.name); exists(staged) && exists(t.staging(by, "verified")) {
		return []string{staged}, nil
	}
	if v.epoch == "" {
		return nil, nil
	}
	copies, err := asides(v.dir, v.epoch)
	return copies, asCode(err, "look for old copies of volume "+v.name)
}

// retire puts the data of the ordered epoch aside, so that no program uses this old copy. Data of other epochs is not
// touched.
func (t *task) retire(context.Context) error {
	if err := t.setAside(); err != nil {
		return err
	}
	t.report(model.SideRetired, 0, 0, "")
	return nil
}

func (t *task) setAside() error {
	all, err := t.volumes()
	if err != nil {
		return err
	}
	for _, v := range all {
		if !v.here {
			continue
		}
		if err := PutAside(v.dir, v.epoch); err != nil {
			return asCode(err, "put the old copy of "+v.name+" aside")
		}
	}
	return nil
}

// drop removes the data of the ordered epoch, after putting it aside if that was not done yet. Data of other epochs is
// not touched. Code: cleanup_failed.
func (t *task) drop(context.Context) error {
	if err := t.setAside(); err != nil {
		return err
	}
	all, err := t.volumes()
	if err != nil {
		return err
	}
	for _, v := range all {
		if v.epoch == "" {
			continue
		}
		copies, err := asides(v.dir, v.epoch)
		if err != nil {
			return asCode(err, "look for old copies of volume "+v.name)
		}
		for _, old := range copies {
			if err := erase.Tree(old); err != nil {
				return model.Refuse(model.CodeCleanup, "the old copy can't be removed: %v", err)
			}
		}
	}
	t.report(model.SideDropped, 0, 0, "")
	return nil
}

// move renames a directory and syncs both parents, so that the change survives a power cut.
func move(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if err := durable.SyncDir(filepath.Dir(to)); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(from))
}
