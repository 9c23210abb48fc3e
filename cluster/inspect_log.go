package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// RecordKind is the kind of a LogRecord.
type RecordKind string

// The kinds of records.
const (
	RecordCommand       RecordKind = "command"       // an fsm.Entry
	RecordNoop          RecordKind = "noop"          // raft's first entry of a leader's term
	RecordBarrier       RecordKind = "barrier"       // raft's entry that a read or a new leader waits for
	RecordConfiguration RecordKind = "configuration" // raft's entry with a new list of servers
	RecordDamaged       RecordKind = "damaged"       // an entry that can't be read, or missing entries
	RecordUnknown       RecordKind = "unknown"       // an entry that only a newer program understands
)

// Valid reports whether k is in the closed set.
func (k RecordKind) Valid() bool {
	switch k {
	case RecordCommand, RecordNoop, RecordBarrier, RecordConfiguration, RecordDamaged, RecordUnknown:
		return true
	}
	return false
}

// String implements fmt.Stringer.
func (k RecordKind) String() string { return string(k) }

// LogRecord is one entry of the log, or a gap in the log.
type LogRecord struct {
	Index uint64
	Term  uint64
	Kind  RecordKind
	Time  time.Time // when the entry was proposed; if that is unknown, when the leader appended it
	Bytes int       // size of the entry's content
	Entry fsm.Entry // only for a RecordCommand
	// Servers are the cluster's servers. Only a RecordConfiguration has them.
	Servers []StoredMember
	// Err says why the entry can't be read, or why this program can't understand it. Otherwise it is nil.
	Err *model.Error
}

// StoredMember is a server in a stored raft configuration.
type StoredMember struct {
	ID      model.ServerID `json:"id"`
	Address string         `json:"address"`
	Voter   bool           `json:"voter"`
}

// Records iterates over the log's entries between two indexes, both included. A damaged entry, or a gap of any length,
// is one record with Err set, and later entries follow. If the log can't be read at all, Records yields only an error
// with code invalid.
func (d *StoppedDir) Records(from, to uint64) iter.Seq2[LogRecord, error] {
	return func(yield func(LogRecord, error) bool) {
		if d.broken != nil {
			yield(LogRecord{}, d.broken)
			return
		}
		if d.bounds.Last == 0 {
			return
		}
		last := min(to, d.bounds.Last)
		for i := max(from, d.bounds.First); i <= last; {
			r, next := d.read(i)
			if !yield(r, nil) || next <= i {
				return
			}
			i = next
		}
	}
}

// Record returns the entry at an index. If the entry is damaged or missing, the record has Err set. Codes: not_found if
// the index is outside the log's bounds; invalid if the log can't be read at all.
func (d *StoppedDir) Record(index uint64) (LogRecord, error) {
	if d.broken != nil {
		return LogRecord{}, d.broken
	}
	if index < d.bounds.First || index > d.bounds.Last || d.bounds.Last == 0 {
		return LogRecord{},
			model.Refuse(model.CodeNotFound, "the log %s has no entry %d: it %s", d.logFile(), index, d.bounds).
				WithHint("older entries are in no file any more, only what they led to: outspan debug snapshot %s", d.path)
	}
	r, _ := d.read(index)
	return r, nil
}

// String returns a predicate for a sentence about the log: "is empty", or for example "has 3 to 9".
func (b LogBounds) String() string {
	if b.Last == 0 {
		return "is empty"
	}
	return fmt.Sprintf("has %d to %d", b.First, b.Last)
}

func (d *StoppedDir) logFile() string { return filepath.Join(d.path, fileLog) }

// read decodes one entry. If the entry is damaged or missing, the record has Err set. next is the index to read next.
// It is 0 if the entry is missing and no later entry is found.
func (d *StoppedDir) read(index uint64) (r LogRecord, next uint64) {
	var l raft.Log
	next = index + 1
	err := guard(func() error { return d.store.GetLog(index, &l) })
	switch {
	case errors.Is(err, raft.ErrLogNotFound):
		next, err = d.nextAfterGap(index)
	case err == nil && l.Index != index:
		err = fmt.Errorf("it says that it is entry %d", l.Index)
	}
	r = LogRecord{Index: index, Term: l.Term, Bytes: len(l.Data), Time: l.AppendedAt}
	if err != nil {
		return r.damaged(d, err), next
	}
	return r.decode(d, &l), next
}

// nextAfterGap returns the index of the first entry after a missing entry. It returns 0 if there is no later entry or
// the search fails. The error is never nil: it says what is missing, or why the search failed.
func (d *StoppedDir) nextAfterGap(index uint64) (next uint64, _ error) {
	err := guard(func() error {
		return d.keys.View(func(tx *bbolt.Tx) error {
			if key, _ := tx.Bucket([]byte("logs")).Cursor().Seek(binary.BigEndian.AppendUint64(nil, index)); len(key) == 8 {
				next = binary.BigEndian.Uint64(key)
			}
			return nil
		})
	})
	switch {
	case err != nil:
		return 0, err
	case next <= index:
		return 0, errors.New("it is missing, and nothing follows it")
	case next == index+1:
		return next, errors.New("it is missing, although there are older and newer ones")
	}
	return next, fmt.Errorf("it and all before entry %d are missing", next)
}

func (r LogRecord) decode(d *StoppedDir, l *raft.Log) LogRecord {
	switch l.Type {
	case raft.LogCommand:
		entry, err := fsm.DecodeEntry(l.Data)
		if err != nil {
			return r.damaged(d, err)
		}
		r.Kind, r.Entry, r.Time = RecordCommand, entry, entryTime(entry.Wall, l.AppendedAt)
	case raft.LogNoop:
		r.Kind = RecordNoop
	case raft.LogBarrier:
		r.Kind = RecordBarrier
	case raft.LogConfiguration:
		r.Kind = RecordConfiguration
		err := guard(func() error {
			r.Servers = membersOf(raft.DecodeConfiguration(l.Data))
			return nil
		})
		if err != nil {
			return r.damaged(d, err)
		}
	default:
		r.Kind = RecordUnknown
		r.Err = model.Refuse(model.CodeNeedsFormat, "entry %d of %s is of the kind %d, which this program doesn't know",
			r.Index, d.logFile(), l.Type).
			WithHint("use the outspan that wrote it; look at the others with --from %d", r.Index+1)
	}
	return r
}

// membersOf returns the servers of a raft configuration. From an address of the form id@host:port it removes the id.
func membersOf(c raft.Configuration) []StoredMember {
	members := make([]StoredMember, len(c.Servers))
	for i, s := range c.Servers {
		address := string(s.Address)
		if _, rest, ok := strings.Cut(address, "@"); ok {
			address = rest
		}
		members[i] = StoredMember{model.ServerID(s.ID), address, s.Suffrage == raft.Voter}
	}
	return members
}

// damaged returns the record as a RecordDamaged with Err set. If err has the code needs_format, only a newer program
// understands the entry. Then the record becomes a RecordUnknown, and Err has the code and hint of err.
func (r LogRecord) damaged(d *StoppedDir, err error) LogRecord {
	r.Kind = RecordDamaged
	code, hint := model.CodeInvalid,
		fmt.Sprintf("what was before it can be seen with: outspan debug state %s --at %d; the server itself comes back as "+
			"a new one with an empty data directory", d.path, r.Index-1)
	var known *model.Error
	if errors.As(err, &known) && known.Code == model.CodeNeedsFormat {
		r.Kind, code, hint = RecordUnknown, known.Code, known.Hint
	}
	if errors.As(err, &known) {
		err = errors.New(known.Message)
	}
	r.Err = model.Refuse(code, "entry %d of %s can't be read: %v", r.Index, d.logFile(), err).WithHint("%s", hint)
	return r
}
