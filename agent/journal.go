package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// entry is what the journal keeps of one instance: enough to go on supervising it without a server.
type entry struct {
	Assignment transport.Assignment `cbor:"1,keyasint"`
	Status     fsm.InstanceStatus   `cbor:"2,keyasint"` // written before it is reported, so generations only grow
	// Live is set before the program is started and cleared once its end is accounted for: a program that ended while
	// no agent ran is told by it from one whose end was handled.
	Live       bool    `cbor:"3,keyasint,omitempty"`
	RestartSeq uint64  `cbor:"4,keyasint,omitempty"` // the last restart that was carried out
	Failures   []int64 `cbor:"5,keyasint,omitempty"` // Unix ms of recent ends and failed starts, for the restart limit
	Restarts   int     `cbor:"6,keyasint,omitempty"`
}

// journal keeps one file for each instance. Each is replaced as a whole, so a crash at any byte leaves the old or the
// new entry. Safe for many goroutines as long as each id has one.
type journal struct {
	dir string
	log hclog.Logger
}

// save makes e survive a power cut. A disk that refuses costs the memory of a change, not the work: it is logged.
func (j *journal) save(id fsm.InstanceID, e entry) {
	if err := driver.WriteRecord(filepath.Join(j.dir, string(id)), e); err != nil {
		j.log.Error("journal entry could not be written", "instance", id, "error", err)
	}
}

func (j *journal) remove(id fsm.InstanceID) {
	if err := os.Remove(filepath.Join(j.dir, string(id))); err != nil && !os.IsNotExist(err) {
		j.log.Warn("journal entry could not be removed", "instance", id, "error", err)
	}
}

// load returns every entry that can be trusted. A damaged one is put aside: the servers say anew what the instance is,
// and the driver knows whether it runs.
func (j *journal) load() (map[fsm.InstanceID]entry, error) {
	files, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, diskError("read the journal "+j.dir, err)
	}
	entries := make(map[fsm.InstanceID]entry, len(files))
	for _, f := range files {
		id := fsm.InstanceID(f.Name())
		if f.IsDir() || !driver.ID(id).Valid() || strings.HasPrefix(f.Name(), damagedPrefix) {
			continue
		}
		var e entry
		path := filepath.Join(j.dir, f.Name())
		err := driver.ReadRecord(path, &e)
		if err == nil && e.Status.ID != id {
			err = fsm.Refuse(fsm.CodeInternal, "it is an entry of instance %q", e.Status.ID)
		}
		if err != nil {
			j.log.Error("journal entry is damaged and put aside", "instance", id, "error", err)
			if err := os.Rename(path, filepath.Join(j.dir, damagedPrefix+f.Name())); err != nil {
				j.log.Warn("damaged journal entry could not be put aside", "instance", id, "error", err)
			}
			continue
		}
		e.Failures = slices.Clip(e.Failures)
		entries[id] = e
	}
	return entries, nil
}

// damagedPrefix marks what could not be read. Instance ids are lower case, so none has it.
const damagedPrefix = "DAMAGED-"
