package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/internal/durable"
)

// sealedSnapshots is raft's store of snapshots, with a seal for each snapshot. The seal is a checksum of meta.json,
// which has the index, the term and the servers; raft's own checksum covers only the state. Without the seal, a flipped
// bit in the index could go unnoticed, and the server would continue after entries that it never applied.
type sealedSnapshots struct {
	raft.SnapshotStore
	dir string // the directory of all snapshots
	log hclog.Logger
}

// fileSeal contains the checksum of the meta.json in the same directory.
const fileSeal = "meta.crc32c"

// newSealedSnapshots opens the snapshots of a data directory, which no other process may use. It removes unfinished
// snapshots that a crash left behind: raft ignores them, but never removes them.
func newSealedSnapshots(dataDir string, log hclog.Logger) (raft.SnapshotStore, error) {
	torn, err := filepath.Glob(filepath.Join(dataDir, dirSnapshots, "*"+unfinished))
	if err != nil {
		return nil, fmt.Errorf("look for unfinished snapshots: %w", err)
	}
	for _, dir := range torn {
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("remove an unfinished snapshot: %w", err)
		}
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(dataDir, snapshotsKept, log)
	if err != nil {
		return nil, fmt.Errorf("open the snapshots: %w", err)
	}
	return sealedSnapshots{files, filepath.Join(dataDir, dirSnapshots), log}, nil
}

// List implements raft.SnapshotStore. It omits damaged snapshots, so that raft uses an older one.
func (s sealedSnapshots) List() ([]*raft.SnapshotMeta, error) {
	all, err := s.SnapshotStore.List()
	whole := all[:0]
	for _, meta := range all {
		if err := s.check(meta); err != nil {
			s.log.Warn("passed over a damaged snapshot", "id", meta.ID, "error", err)
			continue
		}
		whole = append(whole, meta)
	}
	return whole, err
}

// check returns an error if meta differs from the meta.json on disk, or if that meta.json does not match its seal.
func (s sealedSnapshots) check(meta *raft.SnapshotMeta) error {
	dir := filepath.Join(s.dir, meta.ID)
	text, err := os.ReadFile(filepath.Join(dir, snapshotMeta))
	if err != nil {
		return err
	}
	var own raft.SnapshotMeta
	if err := json.Unmarshal(text, &own); err != nil || !reflect.DeepEqual(&own, meta) {
		return fmt.Errorf("it says that it is %.40q, which is another", meta.ID)
	}
	return checkSeal(dir, text)
}

// checkSeal compares meta, the contents of a snapshot's meta.json, with the seal in the snapshot's directory. It
// accepts a snapshot without a seal, because the server may have stopped before it wrote the seal, or an older program
// may have written the snapshot.
func checkSeal(dir string, meta []byte) error {
	want, err := os.ReadFile(filepath.Join(dir, fileSeal))
	switch got := sealOf(meta); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case got != strings.TrimSpace(string(want)):
		return fmt.Errorf("%s has the checksum %s and not %.20q, which stands in %s", snapshotMeta, got, want, fileSeal)
	}
	return nil
}

func sealOf(meta []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(meta, crc32.MakeTable(crc32.Castagnoli)))
}

// Create implements raft.SnapshotStore.
func (s sealedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	return sealedSink{sink, s}, nil
}

// sealedSink writes the seal when the complete snapshot is closed.
type sealedSink struct {
	raft.SnapshotSink
	store sealedSnapshots
}

// Close implements raft.SnapshotSink.
func (s sealedSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	dir := filepath.Join(s.store.dir, s.ID())
	meta, err := os.ReadFile(filepath.Join(dir, snapshotMeta))
	if err != nil {
		return fmt.Errorf("seal the snapshot: %w", err)
	}
	return durable.ReplaceBytes(filepath.Join(dir, fileSeal), []byte(sealOf(meta)+"\n"), 0o600)
}
