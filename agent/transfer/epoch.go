package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

// A file beside a volume's directory, NAME@copy, has the epoch of the data in that directory. No volume's name contains
// an @. The file is written before a program uses the directory. Data of another epoch is put aside as NAME@EPOCH, or
// as NAME@EPOCH.1 if NAME@EPOCH exists already.

// Epoch returns the epoch of the data in a volume's directory, as decimal digits. It returns "" if no epoch is noted.
func Epoch(dir string) (string, error) {
	text, err := os.ReadFile(dir + "@copy")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return strings.TrimSpace(string(text)), nil
}

// SetEpoch notes the epoch of the data in dir. The note is on the disk when SetEpoch returns.
func SetEpoch(dir, epoch string) error {
	return durable.ReplaceBytes(dir+"@copy", []byte(epoch+"\n"), 0o600)
}

// ForgetEpoch removes the note of SetEpoch, if there is one. The removal is on the disk when ForgetEpoch returns.
func ForgetEpoch(dir string) error {
	if err := os.Remove(dir + "@copy"); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// Empty reports whether a directory is empty or missing. It reads at most one name, since a directory may have very
// many names.
func Empty(dir string) (bool, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer d.Close()
	_, err = d.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// PutAside renames dir to the first free name for its epoch: dir@epoch, dir@epoch.1 and so on. It does nothing if dir
// is empty or missing.
func PutAside(dir, epoch string) error {
	if empty, err := Empty(dir); empty || err != nil {
		return err
	}
	if epoch == "" {
		epoch = "unknown"
	}
	for n := 0; ; n++ {
		if to := aside(dir, epoch, n); !exists(to) {
			return move(dir, to)
		}
	}
}

func aside(dir, epoch string, n int) string {
	if n == 0 {
		return dir + "@" + epoch
	}
	return fmt.Sprintf("%s@%s.%d", dir, epoch, n)
}

// asides returns what PutAside has left of the data of one epoch. There may be gaps, since operators remove such data.
func asides(dir, epoch string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), filepath.Base(dir)+"@")
		if ok && asideEpoch(rest) == epoch {
			list = append(list, filepath.Join(filepath.Dir(dir), e.Name()))
		}
	}
	return list, nil
}

// asideEpoch returns the epoch in what follows the @ in a name of PutAside: it leaves out a number at the end.
func asideEpoch(rest string) string {
	epoch, n, numbered := strings.Cut(rest, ".")
	if _, err := strconv.ParseUint(n, 10, 31); numbered && err != nil {
		return rest // somebody else's name, such as NAME@EPOCH.old
	}
	return epoch
}

// volume is one of the task's volumes.
type volume struct {
	name, dir string
	epoch     string // of the data that the servers' order names; "" if the order names no epoch
	here      bool   // the directory has data of this epoch
}

func (t *task) volumes() ([]volume, error) {
	all := make([]volume, len(t.Names))
	for i, name := range t.Names {
		v := volume{name: name, dir: filepath.Join(t.slotDir(), name)}
		if i < len(t.Epochs) {
			v.epoch = strconv.FormatUint(t.Epochs[i], 10)
		}
		have, err := Epoch(v.dir)
		if err != nil {
			return nil, asCode(err, "read the epoch of volume "+name)
		}
		v.here = v.epoch != "" && have == v.epoch && exists(v.dir)
		all[i] = v
	}
	return all, nil
}

// mustBeHere checks that each volume's directory has data of the epoch that the servers ordered. Codes: not_found,
// integrity_check_failed.
func (t *task) mustBeHere() error {
	all, err := t.volumes()
	if err != nil {
		return err
	}
	for _, v := range all {
		switch {
		case !exists(v.dir):
			return model.Refuse(model.CodeNotFound, "volume %s has no data here", v.name)
		case !v.here:
			return model.Refuse(model.CodeIntegrity,
				"the data of volume %s on this node is not the newest: it is not of epoch %s", v.name, v.epoch)
		}
	}
	return nil
}
