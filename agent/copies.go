package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// freshen makes sure that an instance of a replicated group finds in its volume's directory the copy that the servers mean: what was kept there, if it comes back to
// it, and nothing, if the copy is a new one. Data of an older copy is put aside beside it, as NAME@MADE; nothing is ever deleted.
//
// Which copy is in the directory stands in a file beside it, NAME@copy, whose name can't be that of a volume. It is written last: a directory without
// it has never been used by a program, or is one of before.
func freshen(a transport.Assignment, spec fsm.VolumeSpec, dir string) error {
	made := a.Copies[spec.Name]
	if spec.Kind != fsm.VolumeReplicated || made == 0 {
		return nil
	}
	want, note := strconv.FormatUint(made, 10), dir+"@copy"
	have, err := os.ReadFile(note)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return diskError("read which copy is in volume "+spec.Name, err)
	}
	old := strings.TrimSpace(string(have))
	if old == want {
		return nil
	}
	if err := putAside(dir, old); err != nil {
		return diskError("put the older copy of volume "+spec.Name+" aside", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return diskError("make volume "+spec.Name, err)
	}
	if err := writeNote(note, want); err != nil {
		return diskError("note which copy is in volume "+spec.Name, err)
	}
	return nil
}

// putAside renames a directory that isn't empty to the first free name of DIR@MADE, DIR@MADE.1 ...
func putAside(dir, made string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if made == "" {
		made = "unknown"
	}
	for n, aside := 0, dir+"@"+made; ; n, aside = n+1, fmt.Sprintf("%s@%s.%d", dir, made, n+1) {
		if _, err := os.Lstat(aside); errors.Is(err, os.ErrNotExist) {
			return os.Rename(dir, aside)
		} else if err != nil {
			return err
		}
	}
}

// writeNote replaces a small file as a whole, on the disk when it returns.
func writeNote(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".note-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already if all went well
	_, werr := f.WriteString(text + "\n")
	if err := errors.Join(werr, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
