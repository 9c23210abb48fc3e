package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// stormDisk is a disk that can fail or hang. Its faults affect only writes of log entries. Terms and votes are still
// written.
type stormDisk struct {
	dir  string
	mu   sync.Mutex
	err  error
	hang chan struct{}
}

// stormLog is a log store on a stormDisk.
type stormLog struct {
	LogStore
	disk *stormDisk
}

func (d *stormDisk) open(path string) (LogStore, error) {
	inner, err := raftboltdb.New(raftboltdb.Options{Path: path, NoSync: true,
		BoltOptions: &bbolt.Options{Timeout: lockTimeout, NoFreelistSync: true}})
	if err != nil {
		return nil, err
	}
	return stormLog{inner, d}, nil
}

func (d *stormDisk) fail() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = errors.New("input/output error")
}

func (d *stormDisk) stall() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hang = make(chan struct{})
}

func (d *stormDisk) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hang != nil {
		close(d.hang)
	}
	d.err, d.hang = nil, nil
}

func (d *stormDisk) broken() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err != nil || d.hang != nil
}

// StoreLogs implements raft.LogStore.
func (l stormLog) StoreLogs(logs []*raft.Log) error {
	l.disk.mu.Lock()
	err, hang := l.disk.err, l.disk.hang
	l.disk.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if err != nil {
		return err
	}
	return l.LogStore.StoreLogs(logs)
}

// memoryDir returns the path of a data directory in memory, or on a disk if the system has no /dev/shm.
func memoryDir(t *testing.T) string {
	const memory = "/dev/shm"
	dir, err := os.MkdirTemp(memory, "outspan-storm-") //nolint:usetesting // t.TempDir may be on a real disk
	if err != nil {
		return filepath.Join(t.TempDir(), "data")
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "data")
}
