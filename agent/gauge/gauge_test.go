package gauge

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A machine with two cores uses one and a half of them.
func TestUse(t *testing.T) {
	now := time.Unix(1000, 0)
	m := &Machine{root: t.TempDir(), now: func() time.Time { return now }}
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(m.root, "proc", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, ok := m.Use(); ok {
		t.Error("a use without /proc")
	}
	write("stat", "cpu  100 0 100 1000 100 0 0 0 50 0\ncpu0 1 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1 1\nintr 5\n")
	write("meminfo",
		"MemTotal:       8192 kB\nMemFree:         100 kB\nMemAvailable:    2048 kB\nHugePages_Total:       0\n")
	now = now.Add(every)
	if _, _, ok := m.Use(); ok {
		t.Error("a use after one measurement")
	}
	write("stat", "cpu  1000 100 500 1200 400 0 0 0 90 0\ncpu0 1 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1 1\nintr 5\n")
	now = now.Add(every - 1)
	if _, _, ok := m.Use(); ok {
		t.Error("it measured before its time")
	}
	now = now.Add(1)
	cpu, memory, ok := m.Use() // 900+100+400 of 1900 ticks
	if cpu != 1473 || memory != 6<<20 || !ok {
		t.Errorf("cpu %d, memory %d, %v", cpu, memory, ok)
	}
	write("stat", "cpu  1 0 0 0 0 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1\n") // ticks went back
	now = now.Add(every)
	if _, _, ok := m.Use(); ok {
		t.Error("a use from ticks that went back")
	}
}

// The machine of this test says what it uses.
func TestUseOfThisMachine(t *testing.T) {
	now := time.Now()
	m := New()
	m.now = func() time.Time { return now }
	deadline := time.Now().Add(20 * time.Second) // generous
	for time.Now().Before(deadline) {
		now = now.Add(every)
		cpu, memory, ok := m.Use()
		if ok && cpu >= 0 && memory > 1<<20 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("/proc says nothing")
}
