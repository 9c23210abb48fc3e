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

// find checks that the data to attach is on this disk exactly once, and then reports the data as verified. Codes:
// not_found, conflict (the data is on this disk more than once).
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

// List returns the data of all volumes below the directory volumes, including data that was put aside. It skips empty
// directories, and data whose epoch is not known.
func List(volumes string) ([]transport.VolumeData, error) {
	dirs, err := filepath.Glob(filepath.Join(volumes, "[^.]*", "*", "[0-9]*", "*")) // not .transfer
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

// dataAt returns the volume and the epoch of the data in dir. The name of dir contains the epoch if the data was put
// aside; otherwise the epoch is noted beside dir. dataAt returns false if dir is not the directory of a volume, or if
// the epoch is not known.
func dataAt(dir string) (d transport.VolumeData, ok bool) {
	slotDir, base := filepath.Split(dir)
	name, epoch, aside := strings.Cut(base, "@")
	if aside {
		epoch = asideEpoch(epoch)
	} else {
		epoch, _ = Epoch(dir) // after an error, epoch is "", which means unknown
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

// newest returns the latest modification time of the files directly in dir. It returns the zero time if dir is empty or
// is not a directory.
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
		entries, err := d.ReadDir(1024) // not all names at once, since a directory may have millions
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
