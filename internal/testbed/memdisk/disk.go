package memdisk

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Disk simulates the disk of one machine. New makes one. It is safe for concurrent use.
type Disk struct {
	root string // contains a data directory for each image

	mu      sync.Mutex
	random  *rand.Rand
	image   int // number of the data directory in use
	logs    map[*Log]struct{}
	fault   error         // the error of every write to logs; nil means that writes succeed
	hang    chan struct{} // not nil while writes hang; closed when they continue
	latency time.Duration // every write takes between one and two times latency
	size    int64         // in bytes; 0 means unlimited
	other   int64         // bytes that other programs use
}

// New returns a disk without faults. Its files are below the directory root, and its random choices come from random.
// Nothing else may use this directory or this generator.
func New(root string, random *rand.Rand) *Disk {
	return &Disk{root: root, random: random, logs: map[*Log]struct{}{}}
}

// Dir returns the path of the data directory. It does not create the directory. The path changes with each PowerLoss
// and Wipe.
func (d *Disk) Dir() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dir()
}

func (d *Disk) dir() string { return filepath.Join(d.root, fmt.Sprintf("data-%d", d.image)) }

// Fail makes every later write to logs fail with err, until PowerLoss. If err is nil, writes succeed again.
func (d *Disk) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = err
}

// Hang makes each write to logs wait until Resume or PowerLoss.
func (d *Disk) Hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hang == nil {
		d.hang = make(chan struct{})
	}
}

// Resume undoes Hang, so that the waiting writes continue.
func (d *Disk) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hang != nil {
		close(d.hang)
		d.hang = nil
	}
}

// Slow makes every write to logs take between one and two times latency, until PowerLoss. If latency is 0, writes have
// no delay.
func (d *Disk) Slow(latency time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latency = latency
}

// Busy reports whether a write to a log is in progress.
func (d *Disk) Busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for l := range d.logs {
		if len(l.pending) > 0 {
			return true
		}
	}
	return false
}

// Fill simulates other programs that use all of the disk except the given number of bytes. Later the free space changes
// with the size of the machine's own files. If free is negative, the disk is unlimited again.
func (d *Disk) Fill(free int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if free < 0 {
		d.size, d.other = 0, 0
		return
	}
	d.size = diskBytes
	d.other = d.size - d.used() - free
}

// diskBytes is the size of every disk. It is a limit only after Fill.
const diskBytes = 1 << 30

// Space returns the free space and the size of the disk in bytes. It is a cluster.SpaceFunc and ignores the path.
func (d *Disk) Space(string) (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free(), diskBytes, nil
}

func (d *Disk) free() int64 {
	if d.size == 0 {
		return diskBytes
	}
	return max(d.size-d.other-d.used(), 0)
}

// used returns how many bytes the machine's own files take on the disk.
func (d *Disk) used() (bytes int64) {
	_ = filepath.WalkDir(d.dir(), func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // the file was removed meanwhile, or the directory does not exist yet
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += st.Blocks * 512
			}
		}
		return nil
	})
	return bytes
}

// PowerLoss simulates a power loss. The machine's next process gets an image of the files, as the package documentation
// describes. The old process continues in the old directory without faults, so that it can stop. The caller must first
// have taken the machine off the network. report says what happened to the files, for the log of a test.
func (d *Disk) PowerLoss() (report string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.dir()
	d.image++
	if err := copyDir(d.dir(), old); err != nil {
		return "", fmt.Errorf("image of %s: %w", old, err)
	}
	for l := range d.logs {
		did, err := l.lose(filepath.Join(d.dir(), l.name))
		if err != nil {
			return "", err
		}
		report += did
	}
	clear(d.logs)
	d.fault, d.latency = nil, 0
	if d.hang != nil {
		close(d.hang)
		d.hang = nil
	}
	return report, nil
}

// Wipe replaces the disk with an empty one. The machine's process must have stopped.
func (d *Disk) Wipe() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.image++
}

// copyDir copies a directory that a process may still be using. It does nothing if the directory is missing.
func copyDir(to, from string) (err error) {
	for range 10 {
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err = os.CopyFS(to, os.DirFS(from)); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// The copy starts again, because a file was removed after it was listed.
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
	return err
}
