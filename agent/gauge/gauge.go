// Package gauge measures what a machine uses, from /proc.
package gauge

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// every is the least time between two measurements.
const every = 5 * time.Second

// Machine measures the use of this machine. Safe for concurrent use.
type Machine struct {
	root string // "/" except in tests
	now  func() time.Time

	mu          sync.Mutex
	at          time.Time
	busy, total uint64 // ticks of all processors together, at that time
	cpu, memory int64
	ok          bool
}

// New returns a Machine that has measured nothing yet.
func New() *Machine { return &Machine{root: "/", now: time.Now} }

// Use returns the CPU that the machine uses, in thousandths of a core on average over some seconds, and the memory in
// bytes that programs could not have. ok is false until there were two measurements, and while /proc can't be read. It
// reads /proc at most every 5 s.
func (m *Machine) Use() (cpu, memory int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.now(); m.at.IsZero() || now.Sub(m.at) >= every {
		m.at = now
		m.measure()
	}
	return m.cpu, m.memory, m.ok
}

func (m *Machine) measure() {
	busy, total, cores, known := m.processors()
	memory, there := m.usedMemory()
	m.ok = known && there && m.total > 0 && total > m.total && busy >= m.busy
	if m.ok {
		m.cpu, m.memory = int64(busy-m.busy)*cores*1000/int64(total-m.total), memory
	}
	m.busy, m.total = busy, total
}

// processors returns the ticks that all processors together were busy, and all their ticks, since the machine started.
func (m *Machine) processors() (busy, total uint64, cores int64, ok bool) {
	text, err := os.ReadFile(filepath.Join(m.root, "proc", "stat"))
	if err != nil {
		return 0, 0, 0, false
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) < 6 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		if f[0] != "cpu" {
			cores++
			continue
		}
		// user nice system idle iowait irq softirq steal; guest time is part of user
		for i, word := range f[1:min(len(f), 9)] {
			n, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				return 0, 0, 0, false
			}
			if total += n; i != 3 && i != 4 {
				busy += n
			}
		}
		ok = true
	}
	return busy, total, cores, ok && cores > 0
}

func (m *Machine) usedMemory() (used int64, ok bool) {
	text, err := os.ReadFile(filepath.Join(m.root, "proc", "meminfo"))
	if err != nil {
		return 0, false
	}
	var all, free int64
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) != 3 || f[2] != "kB" {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return 0, false
		}
		switch f[0] {
		case "MemTotal:":
			all = n << 10
		case "MemAvailable:":
			free = n << 10
		}
	}
	return all - free, all > 0 && free > 0 && free <= all
}
