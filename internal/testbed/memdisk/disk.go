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

// Disk is one machine's disk. Make it with New. Safe for many goroutines.
type Disk struct {
	root string // of all images

	mu      sync.Mutex
	random  *rand.Rand
	image   int // number of the directory in use
	logs    map[*Log]struct{}
	fault   error         // of each write
	hang    chan struct{} // open while writes hang
	latency time.Duration // of each write: up to twice that
	size    int64         // 0: endless
	other   int64         // bytes that somebody else uses
}

// New returns a disk without faults. Its files are below root, a directory of its own; what is left to chance comes
// from random, which must not be used elsewhere.
func New(root string, random *rand.Rand) *Disk {
	return &Disk{root: root, random: random, logs: map[*Log]struct{}{}}
}

// Dir is the data directory; another one after each PowerLoss and Wipe. It is not made.
func (d *Disk) Dir() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dir()
}

func (d *Disk) dir() string { return filepath.Join(d.root, fmt.Sprintf("data-%d", d.image)) }

// Fail makes each write to logs fail with err from now on; nil ends that.
func (d *Disk) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = err
}

// Hang makes each write to logs wait for Resume, or for the end of the power.
func (d *Disk) Hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hang == nil {
		d.hang = make(chan struct{})
	}
}

// Resume ends Hang: what waits is written.
func (d *Disk) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hang != nil {
		close(d.hang)
		d.hang = nil
	}
}

// Slow makes each write to logs take latency, and up to as much again; 0 ends that.
func (d *Disk) Slow(latency time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latency = latency
}

// Busy reports whether a write to a log is under way.
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

// Fill has somebody else write so much that only so many bytes are free; a negative number ends that. What the
// machine's own files take or give back from then on changes what is free.
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

// diskBytes is the size of a disk that Fill was called for, and the one that others show.
const diskBytes = 1 << 30

// Space tells the free space and the size, as a cluster.SpaceFunc does.
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

// used is how many bytes the blocks of the files take.
func (d *Disk) used() (bytes int64) {
	_ = filepath.WalkDir(d.dir(), func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // removed meanwhile, or not made yet
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

// PowerLoss ends the power and has the machine find a possible image of its files at the next start: see the package.
// It says what was done to the files, for the log of a test. What is left of the process works on in the old directory,
// without faults, so that it can end; the caller must have taken it off the network.
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

// Wipe puts an empty disk in the place of this one. The process must have ended.
func (d *Disk) Wipe() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.image++
}

// copyDir copies a directory while a process may still use it. One that isn't there has no copy.
func copyDir(to, from string) (err error) {
	for range 10 {
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err = os.CopyFS(to, os.DirFS(from)); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.RemoveAll(to); err != nil { // a file went away between its name and its text
			return err
		}
	}
	return err
}
