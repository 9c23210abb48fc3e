package bubble

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/outspan/outspan/agent/journal"
)

// tearJournal appends part of a record to the journal of a machine that has lost power, as an interrupted write may
// leave it. Sometimes that part contains only zeros or a damaged byte, because some file systems leave blocks of zeros
// or of older content. tearJournal does nothing if there is no journal.
func (n *node) tearJournal() {
	n.w.t.Helper()
	path := filepath.Join(n.disk.Dir(), "journal")
	before, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	must(n.w.t, err)
	j, err := journal.Open(path, journal.SyncNever)
	must(n.w.t, err)
	must(n.w.t, j.Put("torn", make([]byte, n.random.IntN(3000))))
	must(n.w.t, j.Close())
	after, err := os.ReadFile(path)
	must(n.w.t, err)
	if len(after) <= len(before) {
		return // Put has compacted the journal, so there is no appended record
	}
	record := after[len(before):]
	record = record[:n.random.IntN(len(record))]
	switch n.random.IntN(3) {
	case 0:
		clear(record)
	case 1:
		if len(record) > 0 {
			record[n.random.IntN(len(record))] ^= 0xff
		}
	}
	must(n.w.t, os.WriteFile(path, append(before, record...), 0o600))
}
