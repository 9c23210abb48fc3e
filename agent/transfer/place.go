package transfer

import (
	"context"
	"os"
	"path/filepath"

	"github.com/outspan/outspan/fsm"
)

// attach puts the copy where instances find it. What is there is put aside first, never removed. Told again, it goes on with what is not done.
func (t *task) attach(context.Context) error {
	from := t.Staged
	if from == "" {
		from = t.ID
	}
	if err := os.MkdirAll(t.slotDir(), 0o711); err != nil {
		return asCode(err, "make the directory of the slot")
	}
	for _, name := range t.Names {
		staged, final := t.staging(from, "tree", name), filepath.Join(t.slotDir(), name)
		switch {
		case exists(staged) && exists(t.staging(from, "verified")):
			if err := t.putAside(name); err != nil {
				return err
			}
			if err := move(staged, final); err != nil {
				return asCode(err, "put the copy of "+name+" in its place")
			}
		case !exists(final):
			return fsm.Refuse(fsm.CodeIntegrity, "there is no verified copy of %s to attach", name)
		}
	}
	t.report(fsm.SideAttached, 0, 0, "")
	return nil
}

// retire puts the old copy aside, so that nothing finds it by mistake.
func (t *task) retire(context.Context) error {
	for _, name := range t.Names {
		if err := t.putAside(name); err != nil {
			return err
		}
	}
	t.report(fsm.SideRetired, 0, 0, "")
	return nil
}

// putAside keeps what stands where instances would find it, unless this transfer did that before.
func (t *task) putAside(name string) error {
	final := filepath.Join(t.slotDir(), name)
	if !exists(final) || exists(t.kept(name)) {
		return nil
	}
	if err := os.MkdirAll(t.kept(), 0o700); err != nil {
		return asCode(err, "make a place for the old copy")
	}
	return asCode(move(final, t.kept(name)), "put the old copy of "+name+" aside")
}

// drop removes what was put aside. Code: cleanup_failed.
func (t *task) drop(context.Context) error {
	if err := os.RemoveAll(t.kept()); err != nil {
		return fsm.Refuse(fsm.CodeCleanup, "the old copy can't be removed: %v", err)
	}
	t.report(fsm.SideDropped, 0, 0, "")
	return nil
}

// move renames a directory and makes both parents remember it after a power cut.
func move(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(to)); err != nil {
		return err
	}
	return syncDir(filepath.Dir(from))
}
