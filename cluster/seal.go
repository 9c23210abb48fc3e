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

// sealedSnapshots keeps a checksum of what raft notes of each snapshot: its index, its term and the servers. raft
// itself has a checksum of the state only. A flipped bit can change a digit of an index and leave valid JSON. The
// server would then continue after entries that it never applied.
type sealedSnapshots struct {
	raft.SnapshotStore
	dir string // of all snapshots
	log hclog.Logger
}

// fileSeal holds the checksum of the meta.json beside it.
const fileSeal = "meta.crc32c"

func newSealedSnapshots(dataDir string, log hclog.Logger) (raft.SnapshotStore, error) {
	files, err := raft.NewFileSnapshotStoreWithLogger(dataDir, snapshotsKept, log)
	if err != nil {
		return nil, fmt.Errorf("open the snapshots: %w", err)
	}
	return sealedSnapshots{files, filepath.Join(dataDir, dirSnapshots), log}, nil
}

// List implements raft.SnapshotStore. It leaves out snapshots with a broken seal, so that an older one is used.
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

// check compares a listed snapshot with the meta.json in its directory, and that file with its seal.
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

// checkSeal compares what raft noted of the snapshot in a directory with its seal. A snapshot without a seal is
// accepted: the server ended while it wrote the snapshot, or an older program wrote it.
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

// sealedSink seals a snapshot once it is complete.
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
