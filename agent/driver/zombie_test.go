package driver_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// shims returns the shims that are children of this process, by pid. The value is true if the shim has exited and was
// not reaped.
func shims() map[string]bool {
	list := map[string]bool{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		name, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == fmt.Sprint(os.Getpid()) && strings.Contains(name, "shim") {
			list[e.Name()] = fields[0] == "Z"
		}
	}
	return list
}

// Every shim that has exited is reaped, however many exit at once. Shims that an earlier test left behind are ignored:
// their driver was closed before they exited, so nobody reaps them.
func TestShimsAreReaped(t *testing.T) {
	earlier := shims()
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
		eventually(t, fmt.Sprintf("no zombie of round %d", round), func() bool {
			for pid, zombie := range shims() {
				if _, known := earlier[pid]; zombie && !known {
					return false
				}
			}
			return true
		})
	}
}
