package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine describes the machine on which the figures were measured.
type machine struct {
	Cores    int     `json:"cores"`
	Model    string  `json:"model"`
	Memory   int64   `json:"memory_bytes"`
	Kernel   string  `json:"kernel"`
	Go       string  `json:"go"`
	SyncP50  float64 `json:"fsync_p50_ms"` // median time to append 4 KiB to a file in options.dir and sync it
	SyncP99  float64 `json:"fsync_p99_ms"`
	Load     string  `json:"load"` // load averages when the run began; high values mean that others use the machine
	Measured string  `json:"measured"`
}

func describeMachine(dir string) (machine, error) {
	m := machine{Cores: runtime.NumCPU(), Model: runtime.GOARCH, Go: runtime.Version(),
		Measured: time.Now().UTC().Format(time.RFC3339)}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.Model = strings.TrimSpace(value)
				break
			}
		}
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit) //nolint:gosec // no machine has that much memory
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(text))[:3], " ")
	}
	times, err := syncTimes(dir, 200)
	m.SyncP50, m.SyncP99 = millis(quantile(times, 0.5)), millis(quantile(times, 0.99))
	return m, err
}

// syncTimes appends 4 KiB to a new file in dir n times, with an fdatasync after each. It returns the duration of each
// append together with its fdatasync.
func syncTimes(dir string, n int) ([]time.Duration, error) {
	path := filepath.Join(dir, "fsync")
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("measure the disk: %w", err)
	}
	defer func() { _ = os.Remove(path) }()
	defer f.Close()
	block := make([]byte, 4096)
	var times []time.Duration
	for range n {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, fmt.Errorf("measure the disk: %w", err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, fmt.Errorf("measure the disk: %w", err)
		}
		times = append(times, time.Since(began))
	}
	return times, nil
}

func (m machine) String() string {
	return fmt.Sprintf("%d x %s, %.0f GiB, Linux %s, %s, fdatasync of 4 KiB p50 %.2f ms p99 %.2f ms, load before %s",
		m.Cores, m.Model, float64(m.Memory)/(1<<30), m.Kernel, m.Go, m.SyncP50, m.SyncP99, m.Load)
}
