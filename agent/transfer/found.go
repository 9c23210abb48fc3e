package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// find checks that the data to attach is on this disk exactly once, and reports the result. Codes: not_found, conflict
// (it is in its place and put aside too, or put aside twice).
func (t *task) find(context.Context) error {
	all, err := t.volumes()
	if err != nil {
		return err
	}
	for i := range all {
		v := &all[i]
		copies, err := t.copiesOf(v)
		if err != nil {
			return err
		}
		if !v.here && len(copies) == 0 {
			return model.Refuse(model.CodeNotFound, "there is no data of epoch %s of volume %s on this node", v.epoch, v.name)
		}
		twice := ""
		if len(copies) > 1 {
			twice = copies[0]
		}
		if written, err := newest(v.dir); v.here && len(copies) > 0 && (err != nil || !written.IsZero()) {
			twice = "its place"
		}
		if twice != "" {
			return model.Refuse(model.CodeConflict, "data of epoch %s of volume %s stands in %s, and in %s too",
				v.epoch, v.name, twice, copies[len(copies)-1]).
				WithHint("move the one that is not meant out of the data directory of the agent")
		}
	}
	t.report(model.SideVerified, 0, 0, "")
	return nil
}

// List returns the data of volumes below a directory: data in its place and data that was put aside. It leaves out
// empty directories and data without an epoch.
func List(volumes string) ([]transport.VolumeData, error) {
	dirs, err := filepath.Glob(filepath.Join(volumes, "[^.]*", "*", "[0-9]*", "*")) // job, group, slot, name
	if err != nil {
		return nil, err
	}
	var list []transport.VolumeData
	for _, dir := range dirs {
		data, ok := dataAt(dir)
		if !ok {
			continue
		}
		written, err := newest(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the directory may have moved meanwhile
			return nil, err
		}
		if !written.IsZero() {
			data.Written = written
			list = append(list, data)
		}
	}
	return list, nil
}

// dataAt returns which data dir has: from its path, and from the epoch noted beside it unless the data was put aside.
// It returns false if dir is not a volume's, or if the epoch is not known.
func dataAt(dir string) (d transport.VolumeData, ok bool) {
	slotDir, base := filepath.Split(dir)
	name, epoch, aside := strings.Cut(base, "@")
	if aside {
		epoch = asideEpoch(epoch)
	} else {
		epoch, _ = Epoch(dir) // an unreadable epoch counts as unknown
	}
	slot, err := strconv.Atoi(filepath.Base(slotDir))
	if err != nil || !model.ValidName(name) {
		return d, false
	}
	group := filepath.Dir(filepath.Clean(slotDir))
	d.Group = model.NewGroupID(model.JobName(filepath.Base(filepath.Dir(group))), filepath.Base(group))
	d.Slot, d.Name, d.Aside = slot, name, aside
	d.Epoch, err = strconv.ParseUint(epoch, 10, 64)
	return d, err == nil && d.Epoch > 0
}

// newest returns when something directly in a directory was last written. It returns the zero time if dir is empty or
// no directory.
func newest(dir string) (at time.Time, err error) {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return at, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return at, err
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(1024) // not all names at once, since a directory may have very many
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.ModTime().After(at) {
				at = info.ModTime()
			}
		}
		if errors.Is(err, io.EOF) {
			return at, nil
		}
		if err != nil {
			return at, err
		}
	}
}
