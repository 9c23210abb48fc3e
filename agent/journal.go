package agent

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/journal"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// entry is the journal's record of one instance, with which the agent can supervise the instance without a server.
type entry struct {
	Assignment transport.Assignment `cbor:"1,keyasint"`
	Status     model.InstanceStatus `cbor:"2,keyasint"` // written before it is reported, so that generations only grow
	// Live is set before the program is started, and cleared once the end of the program was handled. So the next agent
	// handles an end that no agent has seen, and no end is handled twice.
	Live       bool    `cbor:"3,keyasint,omitempty"`
	RestartSeq uint64  `cbor:"4,keyasint,omitempty"` // number of the last requested restart that was done
	Failures   []int64 `cbor:"5,keyasint,omitempty"` // times of recent failures in Unix ms, for the restart limit
	Restarts   int     `cbor:"6,keyasint,omitempty"`
	// AfterStart is set before a program with an after_start hook is started. It is cleared once the hook has ended,
	// unless the hook's failure stops the program. An agent that adopts a program with AfterStart set runs the hook again.
	AfterStart bool `cbor:"7,keyasint,omitempty"`
	// Host is the boot and the machine on which the program was last started; see hostID. On another boot or machine, an
	// instance that must not run twice waits for the servers before it is started again; see holdSlot.
	Host string `cbor:"8,keyasint,omitempty"`
	// UID is the instance's user id from the node's range of such ids, or 0 if the instance has no id from that range.
	UID int `cbor:"9,keyasint,omitempty"`
}

// over reports whether the instance has stopped, or has failed and was not started again.
func (e entry) over() bool {
	return e.Status.Observed == model.ObservedStopped || e.Status.Observed == model.ObservedFailed && !e.Live
}

const (
	keySeen     = "seen"      // the value is the model.Seen of the newest assignments that were acted on
	keyInstance = "instance/" // followed by the instance's id; the value is its entry
	keyStopped  = "stopped/"  // followed by the id of a forgotten instance; the value is when it was forgotten, in Unix ms
)

// records is the agent's journal of instances. Safe for concurrent use.
type records struct {
	*journal.Journal
	log hclog.Logger
}

// openRecords opens the journal at path. It renames a damaged journal and begins a new one, because the driver knows
// what runs, and the servers know the assignments. Codes: those of journal.Open except journal_damaged; internal (the
// damaged journal can't be renamed).
func openRecords(path string, log hclog.Logger) (*records, error) {
	j, err := journal.Open(path, journal.SyncEach)
	if errors.Is(err, &model.Error{Code: journal.CodeDamaged}) {
		log.Error("journal is damaged and put aside; what runs is taken over all the same", "error",
			err, "kept", path+damagedSuffix)
		if err := os.Rename(path, path+damagedSuffix); err != nil {
			return nil, diskError("put the damaged journal aside", err)
		}
		j, err = journal.Open(path, journal.SyncEach)
	}
	if err != nil {
		return nil, err
	}
	return &records{Journal: j, log: log}, nil
}

const damagedSuffix = ".damaged"

// save writes e. Once it has returned nil, e survives a power cut. It also logs an error.
func (r *records) save(id model.InstanceID, e entry) error {
	err := r.put(keyInstance+string(id), e)
	if err != nil {
		r.log.Error("instance could not be noted in the journal", "instance", id, "error", err)
	}
	return err
}

func (r *records) put(key string, v any) error {
	b, err := cbor.Marshal(v)
	if err != nil {
		return err
	}
	return r.Put(key, b)
}

func (r *records) remove(id model.InstanceID) {
	if err := r.Delete(keyInstance + string(id)); err != nil {
		r.log.Error("instance could not be removed from the journal", "instance", id, "error", err)
	}
}

// keepStopped limits how many forgotten instances are recorded as stopped. They are recorded because a restored state
// may want them to run.
const keepStopped = 4096

// noteStopped records that a forgotten instance has stopped, so that the instance is never started again. If there are
// more than keepStopped such records, it removes the oldest.
func (r *records) noteStopped(id model.InstanceID) {
	if err := r.put(keyStopped+string(id), time.Now().UnixMilli()); err != nil {
		r.log.Error("it could not be noted in the journal that an instance has stopped", "instance", id, "error", err)
	}
	var notes []string
	at := map[string]int64{}
	for key, value := range r.All() {
		if strings.HasPrefix(key, keyStopped) {
			var when int64
			_ = cbor.Unmarshal(value, &when) // a record that can't be read is the first to be removed
			notes, at[key] = append(notes, key), when
		}
	}
	if len(notes) <= keepStopped {
		return
	}
	slices.SortFunc(notes, func(a, b string) int { return cmp.Compare(at[a], at[b]) })
	if err := r.Delete(notes[0]); err != nil {
		r.log.Error("a note of a stopped instance could not be removed from the journal", "error", err)
	}
}

// hasStopped reports whether noteStopped has recorded the instance.
func (r *records) hasStopped(id model.InstanceID) bool {
	_, ok := r.Get(keyStopped + string(id))
	return ok
}

// entries returns the record of each instance. It logs and skips records that can't be read.
func (r *records) entries() map[model.InstanceID]entry {
	found := map[model.InstanceID]entry{}
	for key, value := range r.All() {
		name, ok := strings.CutPrefix(key, keyInstance)
		if !ok {
			continue
		}
		var e entry
		id := model.InstanceID(name)
		if err := cbor.Unmarshal(value, &e); err != nil || e.Status.ID != id || !driver.ID(id).Valid() {
			r.log.Error("what the journal says of an instance can't be read", "instance", id, "error", err)
			continue
		}
		found[id] = e
	}
	return found
}

// lastSeen returns the incarnation and index of the newest assignments that the agent acted on. If the journal does not
// have them, or they can't be read, it returns the zero value, with which the agent accepts any answer.
func (r *records) lastSeen() (s model.Seen) {
	if b, ok := r.Get(keySeen); ok {
		if err := cbor.Unmarshal(b, &s); err != nil {
			r.log.Error("index of the last assignments can't be read", "error", err)
			return model.Seen{}
		}
	}
	return s
}
