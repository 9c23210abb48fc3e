package driver_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// shimZombies returns the pids of shims that are children of this process, have exited and were not reaped.
func shimZombies() (list []string) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		name, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[0] == "Z" && fields[1] == fmt.Sprint(os.Getpid()) && strings.Contains(name, "shim") {
			list = append(list, e.Name())
		}
	}
	return list
}

// Every shim that has exited is reaped, however many exit at once.
func TestShimsAreReaped(t *testing.T) {
	b := newBench(t)
	for round := range 5 {
		var all sync.WaitGroup
		for i := range 12 {
			script := "exit 0"
			if i%3 == 1 {
				script = "sleep 0.05"
			}
			task := b.start(b.sh(script))
			all.Go(func() { <-task.Done() })
		}
		all.Wait()
		eventually(t, fmt.Sprintf("no zombie of round %d: %v", round, shimZombies()), func() bool {
			return len(shimZombies()) == 0
		})
	}
}
