package memdisk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"
)

// fate is what happens to a bbolt transaction that a power loss interrupts. bbolt first writes the pages of the
// transaction and syncs them to the disk. Then it writes a meta page that refers to these pages, and syncs the meta
// page too. It never writes to a page that the previous meta page refers to.
type fate int

const (
	lost     fate = iota // nothing was written
	torn                 // some sectors of the pages were written, but not the meta page
	tornMeta             // all pages were written, and a part of the meta page
	whole                // everything was written, but the write was not acknowledged
)

var fates = [...]fate{lost, torn, tornMeta, whole}

// String describes the fate in reports.
func (f fate) String() string {
	return [...]string{"lost", "torn", "torn at its meta page", "written"}[f]
}

const (
	pageBytes   = 4096
	sectorBytes = 512
	metaPages   = 2 // number of meta pages, at the beginning of the file; transactions use them in turn
)

// mix returns the content of the log's file after the power loss. The parameters before and after are the file's
// contents before and after the interrupted transaction. f must not be the fate lost.
func (f fate) mix(before, after []byte, random *rand.Rand) []byte {
	out := slices.Clone(after)
	if f == whole || f == lost {
		return out
	}
	was := append(slices.Clone(before), make([]byte, max(len(after)-len(before), 0))...)
	for page := 0; page*pageBytes < len(after); page++ {
		at, end := page*pageBytes, min((page+1)*pageBytes, len(after))
		if bytes.Equal(was[at:end], after[at:end]) {
			continue
		}
		switch {
		case page < metaPages && f == torn:
			copy(out[at:end], was[at:end])
		case page < metaPages:
			keep := at + random.IntN(128) // the metadata are in the first 80 bytes; often only a part of them is new
			copy(out[keep:end], was[keep:end])
		case f == torn:
			for s := at; s < end; s += sectorBytes {
				if random.IntN(2) == 0 {
					copy(out[s:min(s+sectorBytes, end)], was[s:])
				}
			}
		}
	}
	return out
}

const snapshotsDir = "snapshots" // the directory of raft's snapshots

// unfinish may make the newest snapshot of an image unfinished. A server may find such a snapshot if its disk wrote
// later log entries before the snapshot. unfinish does this in half of the cases in which the log still has all entries
// since the previous snapshot.
func (l *Log) unfinish(image string) (report string, err error) {
	dir := filepath.Join(image, snapshotsDir)
	snaps := finished(dir)
	if len(snaps) == 0 || l.disk.random.IntN(2) == 0 {
		return "", nil
	}
	newest := snaps[len(snaps)-1]
	var older uint64 // index of the previous snapshot
	if len(snaps) > 1 {
		older = snaps[len(snaps)-2].index
	}
	for i := older + 1; i <= newest.index; i++ {
		if err := l.GetLog(i, new(raft.Log)); errors.Is(err, raft.ErrLogNotFound) {
			return "", nil // the log was truncated, which happens only after the snapshot is on the disk
		} else if err != nil {
			return "", err
		}
	}
	name := filepath.Join(dir, newest.name)
	if err := os.Rename(name, name+".tmp"); err != nil {
		return "", err
	}
	state := filepath.Join(name+".tmp", "state.bin")
	info, err := os.Stat(state)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(" the snapshot at %d is unfinished", newest.index),
		os.Truncate(state, l.disk.random.Int64N(info.Size()+1))
}

// snapshot is a finished snapshot. The name of its directory has the form term-index-milliseconds.
type snapshot struct {
	name        string
	term, index uint64
}

// finished lists the finished snapshots, the newest last.
func finished(dir string) (out []snapshot) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // there is no snapshot yet
	}
	for _, e := range entries {
		parts := strings.Split(e.Name(), "-")
		if len(parts) != 3 || strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		term, err := strconv.ParseUint(parts[0], 10, 64)
		index, err2 := strconv.ParseUint(parts[1], 10, 64)
		if err == nil && err2 == nil {
			out = append(out, snapshot{e.Name(), term, index})
		}
	}
	slices.SortFunc(out, func(a, b snapshot) int {
		if a.term != b.term {
			return int(a.term) - int(b.term)
		}
		return int(a.index) - int(b.index)
	})
	return out
}
